"""`python -m lab.mutants`: small changes of a subject's source, and which of them the properties notice."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from statecheck.cli.main import run, run_command
from statecheck.cli.options import Duration, OptionsCommand, location, option
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE

if TYPE_CHECKING:
    from lab.mutants.page import Judged
    from lab.mutants.plan import MutantPlan


@click.command(cls=OptionsCommand)
@option("--subject", default="impl", metavar="MODULE", help="impl, or any importable module")
@option(
    "--files", default="", metavar="'A B'", help="files, folders or patterns: 'impl/align oracle/chunks.py'"
)
@option("--sample", type=int, help="judge so many only, chosen by the seed")
@option("--seed", type=int, default=0, help="chooses the sample")
@option("--workers", type=int, help="processes (default: one per core)")
@option("--shard", default="", metavar="K/N", help="judge a part of the mutants only: 1/4")
@option("--budget", type=Duration(), help="begin no mutant after so long: 60s, 8m, 2h")
@option("--examples", type=int, default=25, help="of each property; more give survivors another round")
@option("--again", is_flag=True, help="judge survivors again")
@option("--out", type=location, default="build/mutants", metavar="FOLDER", help="folder of results")
@option(
    "--reasons",
    type=location,
    default="lab/mutants/reasons.toml",
    metavar="FILE",
    help="why survivors are equivalent",
)
def mutants(options: SimpleNamespace) -> int:
    """Make small changes of a subject's source, and say which of them the properties notice."""
    from lab.mutants.page import PAGE, judged, summary, write_page
    from lab.mutants.plan import judge, unjudged
    from lab.mutants.reasons import explained, read_reasons, require_current
    from lab.mutants.results import merged

    plan = _plan(options)
    reasons = read_reasons(options.reasons) if options.reasons.is_file() else []
    judge(plan, lambda line: print(line, flush=True))
    results = merged(plan.folder)
    found, left = judged(plan, results, explained(reasons)), unjudged(plan, results)
    write_page(plan, found)
    for line in summary(found):
        print(line)
    if left:
        print(f"{left:,} mutants are not judged yet; the same command goes on")
    print(f"the page: {plan.folder / PAGE}")
    require_current(reasons, found.ids, found.results)
    return code_of(found, left)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_command(mutants, arguments, "python -m lab.mutants")


def _plan(options: SimpleNamespace) -> MutantPlan:
    from lab.mutants.plan import MutantPlan
    from lab.mutants.run import Settings
    from lab.mutants.targets import targets
    from statecheck.campaign.plan import shard_of
    from statecheck.cli.options import cores, require_processes

    for name in ("sample", "examples"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ValueError(f"{name} = {number}, but should be >= 1 [mutants]")
    workers = require_processes("workers", cores() if options.workers is None else options.workers, "mutants")
    until = time.monotonic() + options.budget if options.budget else float("inf")
    part, parts = shard_of(os.environ, options.shard)
    return MutantPlan(
        targets(options.subject, options.files.split()),
        Settings(options.examples, workers, until),
        options.out,
        part + 1,
        parts,
        options.sample,
        options.seed,
        options.again,
    )


def code_of(found: Judged, left: int) -> int:
    """What the command exits with.

    Args:
        left: how many mutants of the plan have no result.
    """
    if found.survivors:
        return FALSIFIED
    return INCOMPLETE if left or not found.results else CLEAN


if __name__ == "__main__":
    sys.exit(run(main))
