"""The command `mutants`: small changes of a subject's source, and which of them the properties notice."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from statecheck.cli.options import location, seconds
from statecheck.execution.verdict import CLEAN, FALSIFIED

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
    parser.add_argument("--shard", default="1/1", help="judge a part of the mutants only: 1/4")
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


def _run(options: argparse.Namespace) -> int:
    from statecheck.mutants.page import PAGE, judged, summary, write_page
    from statecheck.mutants.plan import MutantPlan, judge, part_of
    from statecheck.mutants.reasons import explained, read_reasons, require_current
    from statecheck.mutants.results import merged
    from statecheck.mutants.run import Settings
    from statecheck.mutants.targets import targets

    workers = options.workers or len(os.sched_getaffinity(0))
    until = time.monotonic() + seconds(options.budget) if options.budget else float("inf")
    part, parts = part_of(options.shard)
    plan = MutantPlan(
        targets(options.subject, options.files),
        Settings(options.examples, workers, until),
        options.out,
        part,
        parts,
        options.sample,
        options.seed,
        options.again,
    )
    reasons = read_reasons(options.reasons) if options.reasons.is_file() else []
    judge(plan, lambda line: print(line, flush=True))
    found = judged(plan, merged(plan.folder), explained(reasons))
    write_page(plan, found)
    for line in summary(found):
        print(line)
    print(f"the page: {plan.folder / PAGE}")
    require_current(reasons, found.ids, found.results)
    return FALSIFIED if found.survivors else CLEAN
