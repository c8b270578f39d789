"""What a bench leaves behind: a file of all its numbers, and a plot of them."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from properties.harness import rooms
from properties.harness.report.environment import revision
from properties.harness.text.command_lines import command_line, pip_line

Row = Mapping[str, Any]
_PLAIN_WIDTH = 120
_COLORS = ("tab:blue", "tab:cyan", "tab:red", "tab:orange")


def console() -> Console:
    """Of the terminal, or of a file as wide as the tables."""
    found = Console()
    return found if found.is_terminal else Console(width=_PLAIN_WIDTH)


def environment() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "triton": _triton(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "revision": revision(rooms.home()),
    }


def _triton() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def draw(saved: Path) -> str:
    """Draw the copies of align mode from a saved file, as SVG beside it; returns what became of it.

    Raises:
        ValueError: there is no such file, or it is none that the bench of align mode has saved.
    """
    try:
        content = json.loads(saved.read_text(encoding="utf-8"))
        environment_, device = content["environment"], content["device"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = "but should be a file that `bench` saved"
        raise ValueError(f"plot = {str(saved)!r}, {rule} [draw]: {error!r}") from error
    if device is None:
        return "no plot: it was measured without a GPU"
    target = saved.with_suffix(".svg")
    try:
        _draw(device, environment_, target)
    except ImportError:
        return f"no plot: it needs matplotlib ({pip_line('matplotlib')}); then: {command_line('bench', plot=saved)}"
    return f"drawn {target}"


def _draw(device: Mapping[str, Any], environment_: Mapping[str, Any], target: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    shares, times = figure.subplots(1, 2)
    shares.set_xscale("log", base=2)
    rows = [row for row in device["rows"] if row["driver"] == "run_fused_postprocess"]
    for color, (name, found) in zip(_COLORS, _by_states(rows), strict=False):
        _draw_shares(shares, name, [row for row in found if row["crossing"] == row["requests"]], color)
    _draw_times(times, rows)
    shares.set(
        xlabel="requests",
        ylabel="share of copy_'s rate",
        ylim=(0, 1.05),
        title="all requests cross a boundary",
    )
    shares.legend(frameon=False, loc="lower right", ncols=2)
    times.set(xlabel="µs per launch", title="none or one of them crosses")
    figure.suptitle(
        f"run_fused_postprocess, {environment_['gpu'] or 'CPU'}, {environment_['revision']}",
        fontsize="medium",
    )
    figure.savefig(target, format="svg")


def _by_states(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for shape, layout in dict.fromkeys((row["shape"], row["layout"]) for row in rows):
        yield f"{shape} {layout}", [row for row in rows if (row["shape"], row["layout"]) == (shape, layout)]


def _draw_shares(axes: Any, name: str, rows: Sequence[Row], color: str) -> None:
    requests = [row["requests"] for row in rows]
    axes.plot(requests, [row["share"] for row in rows], "o-", color=color, label=name)
    axes.set_xticks(requests, [str(number) for number in requests])
    if all(row["peer"] for row in rows):
        shares = [row["floor"] / row["peer"] for row in rows]
        axes.plot(requests, shares, "x--", color=color, label=f"{name}, peer")


def _draw_times(axes: Any, rows: Sequence[Row]) -> None:
    """The launches that copy little or nothing, as bars."""
    most = max(row["requests"] for row in rows)
    few = [row for row in rows if row["crossing"] < row["requests"] == most]
    labels = [f"{row['shape']} {row['layout']}, {row['crossing']} of {row['requests']}" for row in few]
    axes.barh(labels, [row["microseconds"] for row in few], color="tab:gray")
    if any(row["peer"] for row in few):
        axes.plot([row["peer"] or 0 for row in few], labels, "x", color="black", label="peer")
        axes.legend(frameon=False, loc="lower right")
    axes.invert_yaxis()
