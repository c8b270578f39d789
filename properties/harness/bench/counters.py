"""What the memory of a GPU really read and wrote, as its counters have it: Nsight Compute around one launch."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from properties.harness import rooms

PROGRAM = "ncu"
_READ, _WRITTEN, _DURATION = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
_SECONDS = 300


@dataclass(frozen=True)
class Counted:
    """Bytes that one launch read and wrote, those that its copies need of each, and its microseconds.

    `error`: why there are none.
    """

    layout: str
    read: float = 0
    written: float = 0
    needed: int = 0
    microseconds: float = 0
    error: str = ""


def measure_counters(layouts: Sequence[str], needed: int, program: str = PROGRAM) -> list[Counted]:
    """Count `bench_align --one-launch` in every layout. `needed`: bytes that it has to read, and to write."""
    if shutil.which(program) is None:
        return [Counted("", error=f"{program} is not on the PATH")]
    return [_count(layout, needed, program) for layout in layouts]


def _count(layout: str, needed: int, program: str) -> Counted:
    # The clocks of a lent card are not ours to set, which Nsight Compute would do.
    options = ["--clock-control", "none", "--csv", "--print-units", "base", "--launch-count", "1"]
    kernel = ["-k", "regex:postprocess_mamba", "--metrics", f"{_READ},{_WRITTEN},{_DURATION}"]
    launch = [sys.executable, "-m", "properties.harness.bench.align", "--one-launch", layout]
    try:
        done = subprocess.run(
            [program, *options, *kernel, *launch],
            env=os.environ | rooms.variables(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Counted(layout, error=str(error))
    metrics = _metrics(done.stdout)
    if done.returncode != 0 or not {_READ, _WRITTEN, _DURATION} <= metrics.keys():
        said = (done.stdout + done.stderr).strip().splitlines()
        return Counted(layout, error=said[-1] if said else f"{program} ended with {done.returncode}")
    return Counted(layout, metrics[_READ], metrics[_WRITTEN], needed, metrics[_DURATION] / 1000)


def _metrics(output: str) -> dict[str, float]:
    """Metric -> value, from the table among what Nsight Compute and the program say."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    return {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in csv.DictReader(lines)}


def tables(counted: Sequence[Counted], title: str) -> Iterator[Table | str]:
    yield from (f"{one.layout} counters: {one.error}".lstrip() for one in counted if one.error)
    rows = [one for one in counted if not one.error]
    if rows:
        yield _table(rows, title)


def _table(rows: Sequence[Counted], title: str) -> Table:
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for name in ("layout", "read", "written", "needed of each", "µs"):
        table.add_column(name, justify="left" if name == "layout" else "right", no_wrap=True)
    for one in rows:
        megabytes = (f"{count / 1e6:,.1f}" for count in (one.read, one.written, one.needed))
        table.add_row(one.layout, *megabytes, f"{one.microseconds:,.1f}")
    return table
