"""The bench of align mode: tables, and a file of all numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from statecheck.execution.port import choose_device
from statecheck.report import numbers
from statecheck.subject import Subject
from tools.bench import calls as bench_calls
from tools.bench import device as bench_device
from tools.bench import report as bench_report
from tools.bench.device import CopyTimes, Measured
from tools.bench.loads import POSTPROCESS

_TITLE = f"{POSTPROCESS}; µs per launch, median"


@dataclass(frozen=True)
class BenchOptions:
    """`out`: the folder for the file. `tiny`: small states, on a CPU as well, to try the bench itself."""

    out: Path
    device: str = "auto"
    peer: Subject | None = None
    tiny: bool = False


def run_align(options: BenchOptions) -> None:
    """Print the tables and save `align.json`."""
    device, console = choose_device(options.device), bench_report.console()
    scale = bench_device.TINY if options.tiny else bench_device.FULL
    measured = None
    if options.tiny or device == "cuda":
        measured = bench_device.measure(scale, device, options.peer)
    show(measured, console)
    calls = bench_calls.measure_calls(device, scale.host_repeats, options.peer)
    _print(console, bench_calls.tables(calls))
    saved = options.out / "align.json"
    numbers.save(saved, _content(measured, calls, options.peer))
    console.print(f"saved {saved}", highlight=False, soft_wrap=True)


def show(measured: Measured | None, console: Console | None = None) -> None:
    """Print what was measured on the device; None is no device."""
    _print(console or bench_report.console(), _shown(measured))


def _print(console: Console, shown: Iterable[Table | str]) -> None:
    for part in shown:
        console.print(part, highlight=False)
        console.print()


def _content(
    measured: Measured | None,
    calls: Sequence[bench_calls.CallTimes],
    peer: Subject | None,
) -> dict[str, Any]:
    device: dict[str, Any] = {}
    if measured is not None:
        rows = [asdict(row) | {"share": row.share, "ratio": row.ratio} for row in measured.rows]
        device = asdict(measured) | {"rows": rows}
    return {
        "environment": numbers.environment(),
        "unit": "microseconds",
        "peer": _name_of(peer),
        "device": device or None,
        "calls": [asdict(row) | {"ratio": row.ratio} for row in calls],
    }


def _name_of(peer: Subject | None) -> str | None:
    """A release by its name, a file by its path."""
    if peer is None:
        return None
    return f"{peer.name} {peer.release}" if peer.release else peer.module.__file__


def _shown(measured: Measured | None) -> Iterator[Table | str]:
    """A table for the driver of V1, one for those of V2, and what they are to be held against."""
    if measured is None:
        yield f"{_TITLE}: needs a GPU"
        return
    with_peer = any(row.peer is not None for row in measured.rows)
    yield _table(_TITLE, [row for row in measured.rows if row.driver == POSTPROCESS], with_peer)
    others = [row for row in measured.rows if row.driver != POSTPROCESS]
    yield _table(
        "run_fused_precopy, run_fused_postprocess_align and a V2 step's three launches; µs, median",
        others,
        with_peer,
    )
    yield "\n".join(_notes(measured))


def _table(title: str, rows: Sequence[CopyTimes], with_peer: bool) -> Table:
    columns = ("states", "requests", "crossing", "µs", "floor", "of ceiling", *["peer", "ratio"] * with_peer)
    made = bench_report.table(title, columns, ())
    for number, row in enumerate(rows, 1):
        ends = number < len(rows) and _states(rows[number]) != _states(row)
        made.add_row(*_cells(row), *_against(row) * with_peer, end_section=ends)
    return made


def _states(row: CopyTimes) -> str:
    return f"{row.shape} {row.layout}"


def _cells(row: CopyTimes) -> list[str]:
    name = [] if row.driver == POSTPROCESS else [row.driver.removeprefix("run_fused_")]
    floor, share = ("-", "-") if row.share is None else (f"{row.floor:,.1f}", f"{row.share:.1%}")
    rows = [str(row.requests), str(row.crossing)]
    return [" ".join([_states(row), *name]), *rows, f"{row.microseconds:,.1f}", floor, share]


def _against(row: CopyTimes) -> list[str]:
    if row.peer is None or row.ratio is None:
        return ["-", "-"]
    return [f"{row.peer:,.1f}", f"{row.ratio:.2f}x" + ("" if row.same else ", other bytes")]


def _notes(measured: Measured) -> Iterator[str]:
    yield f"ceiling: {measured.ceiling / 1e6:.3f} TB/s read and written by torch's copy_; floor: the copies' bytes at it"
    yield f"a launch: {measured.nothing:.1f} µs for nothing at all, {measured.smallest_kernel:.1f} µs to add 1 to a number"
    yield from (f"left out: {name}" for name in measured.left_out)
    different = sum(row.same is False for row in measured.rows)
    if different:
        yield f"the peer left other bytes than impl in {different} rows"
