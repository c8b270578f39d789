"""`python -m lab.bench`: times the builders and the copies of align mode beside their peers; `make bench` runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from statecheck.cli.folders import require_own
from statecheck.cli.main import CommandParser, run_parsed
from statecheck.cli.options import location
from statecheck.cli.process import run
from statecheck.data.marked import mark
from statecheck.execution.verdict import CLEAN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_parsed(parser(), arguments, "lab.bench")


def parser() -> CommandParser:
    """Of its options."""
    parser = CommandParser(prog="python -m lab.bench", description=__doc__)
    parser.add_argument(
        "--only",
        choices=("builders", "align"),
        default="",
        help="builders: host time of the metadata builders; align: device time of the copies of align mode, and host time of their calls (default: both)",
    )
    parser.add_argument(
        "--subject",
        default="",
        help="a subject that is timed beside impl: vllm, or any importable module; its copies where it offers align mode",
    )
    parser.add_argument(
        "--out", type=location, default="build/bench", help="where align.json goes (default build/bench/)"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    # To try the bench itself, without a GPU.
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_bench)
    return parser


def _bench(options: argparse.Namespace) -> int:
    require_own(options.out, "bench", "out", "bench")
    mark(options.out, "bench")
    if options.tiny:
        from statecheck.execution.ports import choose_device
        from statecheck.kernels import triton_mode

        # Where there is no GPU, kernels are executed on the CPU.
        triton_mode.prepare(choose_device(options.device))
    from lab.bench.builders import run_builders
    from lab.bench.cache import offers_copies
    from lab.bench.copies import run_copies
    from statecheck.subject import load

    beside = load(options.subject) if options.subject else None
    if options.only in ("", "builders"):
        run_builders(beside, options.device)
    if options.only != "builders":
        peer = beside if beside and offers_copies(beside) else None
        run_copies(options.out, options.device, peer, tiny=options.tiny)
    return CLEAN


if __name__ == "__main__":
    sys.exit(run(main))
