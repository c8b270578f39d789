"""The command `mutants`: small changes of a subject's source, and which of them the properties notice."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING, Any

from statecheck.cli.options import location, seconds
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE

if TYPE_CHECKING:
    from statecheck.mutants.page import Judged
    from statecheck.mutants.plan import MutantPlan

_EXAMPLES = 25


def add_mutants(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "mutants",
        help="change a subject's source in small ways, and list the changes that no property notices",
    )
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
        default="tests/mutants/reasons.toml",
        help="why survivors are equivalent (default tests/mutants/reasons.toml, if there is one)",
    )
    parser.set_defaults(run=_run)


def _plan(options: argparse.Namespace) -> MutantPlan:
    from statecheck.campaign.plan import shard_of
    from statecheck.execution.selection import cores, require_processes
    from statecheck.mutants.plan import MutantPlan
    from statecheck.mutants.run import Settings
    from statecheck.mutants.targets import targets

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
    from statecheck.mutants.page import PAGE, judged, summary, write_page
    from statecheck.mutants.plan import judge, unjudged
    from statecheck.mutants.reasons import explained, read_reasons, require_current
    from statecheck.mutants.results import merged

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
