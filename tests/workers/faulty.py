"""A subject that faults on real devices, to see a campaign go past it: `--subject tests.workers.faulty --isolated`.

Everything is the default subject's but two copy specifications, for requests without drafts. That of a temporal state touches
memory terabytes away if the block is above FAULTY_ABOVE (default 3), that of a conv state never ends if it is above
FAULTY_HANGS_ABOVE (default: none is). On a GPU kernels do so; on a CPU the process is ended by a segmentation fault, or loops.

    python -m tests.workers.faulty rates --device cuda

prints how many examples a second run of the default subject in this process, in a worker, and in a worker with its log.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton
import triton.language as tl
from rich.console import Console
from rich.table import Table

from subjects import load

ABOVE, HANGS_ABOVE = "FAULTY_ABOVE", "FAULTY_HANGS_ABOVE"
DEFAULT_ABOVE = 3
_FAR = 1 << 42
MODES = IN_PROCESS, WORKER, LOGGED = ("in process", "worker", "worker + log")
RATED = (
    "align_mode_keeps_the_running_column_and_the_speculative_ones",
    "a_state_is_precopied_to_the_column_where_its_request_goes_on",
    "an_accepted_state_on_a_boundary_is_stored_in_the_column_of_its_block",
    "no_order_of_programs_shows_in_copied_runs",
)
_ROUNDS = 4
_FIRST_EXAMPLES, _FEWEST = 10, 4


def __getattr__(name: str) -> Any:
    """What is not faulty is the default subject's."""
    return getattr(load("impl").module, name)


def get_temporal_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> Any:
    """The default subject's, but the device touches memory that is not there for high blocks."""
    right = load("impl").module.get_temporal_copy_spec(state, block_ids, cur_block_idx, num_accepted_tokens)
    if _only_block(block_ids, cur_block_idx) > int(os.environ.get(ABOVE, DEFAULT_ABOVE)):
        _touch_nothing(state.device)
    return right


def get_conv_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> Any:
    """The default subject's, but the device never ends for high blocks."""
    right = load("impl").module.get_conv_copy_spec(state, block_ids, cur_block_idx, num_accepted_tokens)
    if _only_block(block_ids, cur_block_idx) > int(os.environ.get(HANGS_ABOVE, sys.maxsize)):
        _never_end(state.device)
    return right


def _only_block(block_ids: list[int], column: int) -> int:
    """The running block, 0 where others follow for drafts.

    With these, fewer drafts would need more other blocks to get to the same number, and no search makes both steps at once.
    """
    return block_ids[column] if column == len(block_ids) - 1 else 0


def _touch_nothing(device: torch.device) -> None:
    if device.type == "cpu":
        ctypes.string_at(0)
    _store_far_away[(1,)](torch.zeros(1, dtype=torch.int32, device=device), _FAR)


def _never_end(device: torch.device) -> None:
    while device.type == "cpu":
        """For ever."""
    _wait_for_nobody[(1,)](torch.ones(1, dtype=torch.int32, device=device))


@triton.jit
def _store_far_away(place, distance):  # type: ignore[no-untyped-def]
    tl.store(place + distance.to(tl.int64), 1)


@triton.jit
def _wait_for_nobody(lock):  # type: ignore[no-untyped-def]
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@dataclass
class Rated:
    """What was measured of one property: examples a second of each round, by mode."""

    name: str
    examples: int = 0
    rates: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in MODES})

    def rate(self, mode: str) -> float:
        return median(self.rates[mode])

    def ratio(self, mode: str) -> float:
        """How fast a mode is beside the same examples in process, in the median round."""
        rounds = zip(self.rates[mode], self.rates[IN_PROCESS], strict=True)
        return median(one / plain for one, plain in rounds)

    def added(self, mode: str) -> float:
        """Microseconds that an example takes longer than in process."""
        return 1e6 / self.rate(mode) - 1e6 / self.rate(IN_PROCESS)


class _Explorer:
    """A process of its own that explores properties in one mode, when told to."""

    def __init__(self, mode: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_explore_when_told, args=(mode, device, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def explored(self, name: str, seed: int, many: int) -> tuple[float, int]:
        """Seconds that it took, and how many examples it were.

        Raises:
            EOFError: the process died; it has said why on stderr.
        """
        self._pipe.send((name, seed, many))
        seconds, examples = self._pipe.recv()
        return seconds, examples

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _explore_when_told(mode: str, device: str, pipe: Connection) -> None:
    from statecheck.execution import profiles
    from statecheck.execution.example import Bench
    from statecheck.execution.registry import load_properties
    from statecheck.kernels import triton_mode

    torch.set_num_threads(1)
    triton_mode.prepare(device)
    profiles.load("nightly")
    known = load_properties()
    with tempfile.TemporaryDirectory() as folder:
        port = _port(mode, device, Path(folder) / "log.running")
        bench = Bench(load("impl"), port)
        while (task := _told(pipe)) is not None:
            name, seed, many = task
            if mode == LOGGED:
                port.begin_property(name)
            before, started = bench.examples, time.perf_counter()
            known[name].explore(bench, seed=seed, max_examples=many)
            pipe.send((time.perf_counter() - started, bench.examples - before))
        if mode != IN_PROCESS:
            port.close()


def _told(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _port(mode: str, device: str, log: Path) -> Any:
    from statecheck.execution.port import ordinary_port
    from statecheck.workers.port import InWorker

    if mode == IN_PROCESS:
        return ordinary_port(load("impl"), device)
    port = InWorker("impl", device, log=log if mode == LOGGED else None)
    port.warm_up()
    return port


def rated(name: str, explorers: dict[str, _Explorer], seconds: float) -> Rated:
    """Measure a property for about `seconds`: the same examples in each mode in turn, several times."""
    found = Rated(name)
    for explorer in explorers.values():
        # Kernels are compiled, or loaded, before anything counts.
        explorer.explored(name, 0, _FIRST_EXAMPLES)
    took, examples = explorers[IN_PROCESS].explored(name, 1, _FIRST_EXAMPLES)
    many = max(_FEWEST, int(examples / took * seconds / (_ROUNDS * len(MODES))))
    for seed in range(2, 2 + _ROUNDS):
        for mode, explorer in explorers.items():
            took, examples = explorer.explored(name, seed, many)
            found.rates[mode].append(examples / took)
        found.examples += examples
    return found


def table(found: Sequence[Rated]) -> Table:
    """A row for each property: examples a second by mode, and what a worker with its log costs."""
    shown = Table(show_edge=False, pad_edge=False)
    shown.add_column("property", overflow="fold")
    for column in ("examples", *MODES, "ratio", "added µs"):
        shown.add_column(column, justify="right", no_wrap=True)
    for one in found:
        rates = [f"{one.rate(mode):,.0f}/s" for mode in MODES]
        cost = f"{one.ratio(LOGGED):.2f}", f"{one.added(LOGGED):,.0f}"
        shown.add_row(one.name, f"{one.examples:,}", *rates, *cost)
    return shown


def rates(device: str, seconds: float, names: Sequence[str]) -> list[Rated]:
    """Measure properties of the default subject on a device, for about `seconds` each."""
    # Processes that are started from now on import Triton with this module, before they know their device.
    os.environ.pop("TRITON_INTERPRET", None)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        explorers = {mode: _Explorer(mode, device) for mode in MODES}
        try:
            return [rated(name, explorers, seconds) for name in names]
        finally:
            for explorer in explorers.values():
                explorer.close()


def _where(device: str) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    versions = f"torch {torch.__version__}, Triton {triton.__version__}, Python {platform.python_version()}"
    return f"{device} ({name}), {os.cpu_count()} CPUs, {versions}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.workers.faulty")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    chosen = commands.add_parser("rates", help="examples per second in process and in a worker")
    chosen.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    chosen.add_argument("--seconds", type=float, default=20.0, help="for each property (default 20)")
    chosen.add_argument("--only", nargs="+", default=RATED, metavar="PROPERTY", help="other properties")
    options = parser.parse_args(arguments)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(_where(device), highlight=False)
    found = rates(device, options.seconds, options.only)
    console.print(table(found))
    console.print(
        f"median of {_ROUNDS} rounds with the same examples in each mode, in turn; "
        "ratio and added time of an example: worker + log beside in process",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
