"""`python -m lab.mutants`: small changes of a subject's source, and which of them the properties notice; `make mutants` runs it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from statecheck.cli.main import CommandParser, run_parsed
from statecheck.cli.options import location, seconds
from statecheck.cli.process import run
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE

if TYPE_CHECKING:
    from lab.mutants.page import Judged
    from lab.mutants.plan import MutantPlan

_EXAMPLES = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_parsed(parser(), arguments, "lab.mutants")


def parser() -> CommandParser:
    """Of its options."""
    parser = CommandParser(prog="python -m lab.mutants", description=__doc__)
    parser.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    parser.add_argument(
        "--files",
        nargs="*",
        default=[],
        metavar="FILE",
        help="files, folders or patterns: impl/align oracle/chunks.py",
    )
    parser.add_argument("--sample", type=int, default=None, help="judge so many only, chosen by the seed")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample (default 0)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument(
        "--shard",
        default="",
        help="judge a part of the mutants only: 1/4 (default: the variable SHARD, or all)",
    )
    parser.add_argument("--budget", default=None, help="begin no mutant after so long: 60s, 8m, 2h")
    parser.add_argument(
        "--examples",
        type=int,
        default=_EXAMPLES,
        help=f"of each property (default {_EXAMPLES}); more give survivors another round",
    )
    parser.add_argument("--again", action="store_true", help="judge survivors again")
    parser.add_argument(
        "--out", type=location, default="build/mutants", help="folder of results (default build/mutants)"
    )
    parser.add_argument(
        "--reasons",
        type=location,
        default="lab/mutants/reasons.toml",
        help="why survivors are equivalent (default lab/mutants/reasons.toml, if there is one)",
    )
    parser.set_defaults(run=_run)
    return parser


def _plan(options: argparse.Namespace) -> MutantPlan:
    from lab.mutants.plan import MutantPlan
    from lab.mutants.run import Settings
    from lab.mutants.targets import targets
    from statecheck.campaign.plan import shard_of
    from statecheck.execution.selection import cores, require_processes

    for name in ("sample", "examples"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise ValueError(f"{name} = {number}, but should be >= 1 [mutants]")
    workers = require_processes("workers", cores() if options.workers is None else options.workers, "mutants")
    until = time.monotonic() + seconds(options.budget) if options.budget else float("inf")
    part, parts = shard_of(os.environ, options.shard)
    return MutantPlan(
        targets(options.subject, options.files),
        Settings(options.examples, workers, until),
        options.out,
        part + 1,
        parts,
        options.sample,
        options.seed,
        options.again,
    )


def _run(options: argparse.Namespace) -> int:
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
