"""`python -m lab.bench`: times the builders and the copies of align mode beside their peers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import click

from statecheck.cli.main import run, run_command
from statecheck.cli.options import OptionsCommand, location, option, require_own, subject_options
from statecheck.execution.verdict import CLEAN
from statecheck.util.files import mark


@click.command(cls=OptionsCommand, module="lab.bench")
@option(
    "--only",
    type=click.Choice(["builders", "align"]),
    help="host time of the builders, or device time of the copies of align mode (default: both)",
)
@subject_options(default="")
@option("--out", type=location, default="build/bench", metavar="FOLDER", help="where align.json goes")
# To try the bench itself, without a GPU.
@option("--tiny", is_flag=True, hidden=True)
def bench(options: SimpleNamespace) -> int:
    """Time the builders and the copies of align mode of impl, beside those of a subject where one is named."""
    require_own(options.out, "bench", "out")
    mark(options.out, "bench")
    if options.tiny:
        from statecheck.execution.executors import choose_device
        from statecheck.kernels import triton_mode

        # Where there is no GPU, kernels are executed on the CPU.
        triton_mode.prepare(choose_device(options.device))
    from lab.bench.builders import run_builders
    from lab.bench.cache import offers_copies
    from lab.bench.copies import run_copies
    from statecheck.subject import load

    beside = load(options.subject) if options.subject else None
    if options.only != "align":
        run_builders(beside, options.device)
    if options.only != "builders":
        peer = beside if beside and offers_copies(beside) else None
        run_copies(options.out, options.device, peer, tiny=options.tiny)
    return CLEAN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_command(bench, arguments, "python -m lab.bench")


if __name__ == "__main__":
    sys.exit(run(main))
