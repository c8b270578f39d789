"""Breaks copies of the implementation, one line each, and watches the campaign find out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.resolving import resolve
from statecheck.case.values import Let, Tensor
from statecheck.cli.options import seconds
from statecheck.execution.exit_codes import CLEAN, FALSIFIED
from statecheck.execution.registry import load_properties
from statecheck.execution.variants import Variant, broken_copy, implementation
from statecheck.text import command_lines

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


@dataclass(frozen=True)
class DemoReport:
    """One report: its case, and the exit codes of its `repro.py` on the broken and on the intact implementation."""

    case: Case
    broken: int
    intact: int

    @property
    def shrunk(self) -> str:
        """The last call, as the case's message spells it, behind its environment."""
        last = self.case.calls[-1]
        variables = "".join(f"{name}={value} " for name, value in last.environment)
        shown = self.case.failure.shown if self.case.failure is not None else ""
        return f"{variables}{shown}"

    def as_expected(self) -> bool:
        return (self.broken, self.intact) == (FALSIFIED, CLEAN) and is_minimal(self.case)


@dataclass(frozen=True)
class Caught:
    """What the campaign found out about a variant."""

    variant: Variant
    exit_code: int
    findings: list[DemoReport]

    def as_expected(self) -> bool:
        found = [finding.as_expected() for finding in self.findings]
        return self.exit_code == FALSIFIED and bool(found) and all(found)


def run_demo(budget: str) -> int:
    """Run a campaign of `budget` on each variant; 0 only if each is caught and every report does what it says."""
    seconds(budget)
    intact = implementation()
    folder = rooms.home() / "build" / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    caught = [_catch(variant, intact, folder, budget) for variant in VARIANTS]
    console = Console()
    console.print(_table(caught))
    failed = [variant.variant.package for variant in caught if not variant.as_expected()]
    conclusion = (
        f"NOT as expected: {', '.join(failed)}" if failed else "every defect was found, shrunk and reported"
    )
    console.print(conclusion, highlight=False)
    return FALSIFIED if failed else CLEAN


def _catch(variant: Variant, intact: Path, folder: Path, budget: str) -> Caught:
    broken_copy(variant, intact, folder)
    reports = folder / "reports" / variant.package
    console = Console()
    console.rule(f"{variant.package}: impl/{variant.file}")
    console.print(f"- {variant.old}\n+ {variant.new}\n", markup=False, highlight=False)
    code = _fuzz(variant, rooms.home(), reports, budget)
    scripts = sorted(reports.glob("*/repro.py"))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        findings = list(pool.map(lambda script: _check(script, intact.parent), scripts))
    return Caught(variant, code, findings)


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


def _check(script: Path, root: Path) -> DemoReport:
    case = Case.load(script.with_name("case.json"))
    return DemoReport(case, _repro(script), _repro(script, SUBJECT="impl", SUBJECT_PATH=str(root)))


def _repro(script: Path, **variables: str) -> int:
    # `make demo DEVICE=cuda` exports its variables; the script has to run as it stands.
    clean = {
        name: value for name, value in os.environ.items() if name not in ("SUBJECT", "SUBJECT_PATH", "DEVICE")
    }
    command = [sys.executable, str(script)]
    return subprocess.run(command, env=clean | variables, capture_output=True, check=False).returncode


def is_minimal(case: Case) -> bool:
    """Whether packed sequences, where there are any, are at most two with at most `chunk_size + 1` tokens."""
    first = case.calls[0].named
    if not first.keys() >= {"query_start_loc", "chunk_size"}:
        return True
    names = {step.name: step.value for step in case.steps if isinstance(step, Let)}
    starts = resolve(first["query_start_loc"], names)
    assert isinstance(starts, Tensor)
    return starts.shape[0] <= 3 and starts.values()[-1] <= first["chunk_size"] + 1


def _table(caught: list[Caught]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("defect, falsified properties, shrunk inputs", overflow="fold")
    table.add_column("repro.py on the broken copy", justify="right", width=15)
    table.add_column("on the intact one", justify="right", width=9)
    for variant in caught:
        old, new = escape(variant.variant.old), escape(variant.variant.new)
        table.add_section()
        table.add_row(
            f"[bold]{variant.variant.package}[/]: {variant.variant.file}\n[red]- {old}[/]\n[green]+ {new}[/]"
        )
        for finding in variant.findings:
            found = f"[bold]{escape(finding.case.property_name)}[/]\n  {escape(finding.shrunk)}"
            table.add_row(found, f"exit {finding.broken}", f"exit {finding.intact}")
    return table
