"""Breaks copies of the implementation, one line each, and watches the campaign find out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from statecheck import rooms
from statecheck.case import Case
from statecheck.cli.options import seconds
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import CLEAN, FALSIFIED
from statecheck.subject.variants import Variant, broken_copy, implementation
from statecheck.text import command_lines
from statecheck.text.terminal import said, say

VARIANTS = (
    Variant(
        "chunk_split_off_by_one",
        "chunks.py",
        "-(-(phases + lengths) // chunk_size)",
        "(phases + lengths) // chunk_size + 1",
    ),
    Variant(
        "gather_without_lower_clamp",
        "batch.py",
        "seq_lens.clamp(min=1).to(torch.int64) - 1",
        "seq_lens.to(torch.int64) - 1",
    ),
    Variant(
        "ds_orientation_swapped",
        "shapes.py",
        "(dim, state_len) if is_conv_state_dim_first() else (state_len, dim)",
        "(state_len, dim) if is_conv_state_dim_first() else (state_len, dim)",
    ),
)


def run_demo(budget: str) -> int:
    """Run a campaign of `budget` on each variant; 0 only if each is caught and every report does what it says."""
    seconds(budget)
    intact = implementation()
    folder = rooms.home() / "build" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    failed = [variant.package for variant in VARIANTS if not _is_caught(variant, intact, folder, budget)]
    if failed:
        say(f"NOT as expected: {', '.join(failed)}")
        return FALSIFIED
    say("every defect was found, shrunk and reported")
    return CLEAN


def _is_caught(variant: Variant, intact: Path, folder: Path, budget: str) -> bool:
    """Whether the campaign finds it, and each `repro.py` shows it on the broken copy only."""
    broken_copy(variant, intact, folder)
    reports = folder / "reports" / variant.package
    Console().rule(f"{variant.package}: impl/{variant.file}")
    say(f"- {variant.old}\n+ {variant.new}\n")
    code = _fuzz(variant, rooms.home(), reports, budget)
    scripts = sorted(reports.glob("*/repro.py"))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        exits = list(pool.map(lambda script: _exits(script, intact.parent), scripts))
    for script, (on_broken, on_intact) in zip(scripts, exits, strict=True):
        case = Case.load(script.with_name("case.json"))
        shown = case.failure.shown if case.failure is not None else ""
        say(f"{case.property_name}\n  {said(shown)}")
        say(f"  repro.py: exit {on_broken} on the broken copy, exit {on_intact} on the intact one")
    return code == FALSIFIED and bool(exits) and set(exits) == {(FALSIFIED, CLEAN)}


def _fuzz(variant: Variant, root: Path, reports: Path, budget: str) -> int:
    command = [sys.executable, "-m", "statecheck", "fuzz", "--subject", variant.package, "--device", "cpu"]
    command += ["--budget", budget, "--reports", str(reports.relative_to(root)), "--only", _without_kernels()]
    folder = str(reports.parents[1])
    variables = rooms.variables([folder]) | {command_lines.PYTHONPATH: folder}
    return subprocess.run(command, cwd=root, env=os.environ | variables, check=False).returncode


def _without_kernels() -> str:
    """The defects are none of kernels, which take most of the time on a CPU."""
    launching = (name for name, tested in load_properties().items() if tested.launches)
    return " and ".join(f"not {name}" for name in launching)


def _exits(script: Path, root: Path) -> tuple[int, int]:
    """Exit codes on the broken and on the intact implementation."""
    return _repro(script), _repro(script, SUBJECT="impl", SUBJECT_PATH=str(root))


def _repro(script: Path, **variables: str) -> int:
    # `make demo DEVICE=cuda` exports its variables; the script has to run as it stands.
    clean = {
        name: value for name, value in os.environ.items() if name not in ("SUBJECT", "SUBJECT_PATH", "DEVICE")
    }
    command = [sys.executable, str(script)]
    return subprocess.run(command, env=clean | variables, capture_output=True, check=False).returncode
