"""`python -m lab.prove`: lemmas about the launches of align mode, for every number that is documented."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click
from rich.table import Table

from statecheck.cli.main import run, run_command
from statecheck.cli.options import Duration, OptionsCommand, location, option, subject_options
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.util.command_lines import command_line, pip_line
from statecheck.util.text import cell, say

if TYPE_CHECKING:
    from lab.prove.lemmas import LemmaVerdict

NEEDS = "z3-solver>=4.13"


@click.command(cls=OptionsCommand, module="lab.prove")
@option("--only", default="", metavar="TEXT", help="a part of the names of lemmas, such as 'V1 postprocess'")
@subject_options()
@option(
    "--time-limit",
    type=Duration(),
    default="20m",
    help="for the paths of one launch, and for the cases of a lemma",
)
@option("--reports", type=location, default="reports/prove", metavar="FOLDER", help="where cases go")
def prove(options: SimpleNamespace) -> int:
    """Ask a solver for numbers on which the subject's kernels and the rules differ, or on which a kernel touches what it must not.

    Exit codes: 0 each lemma is proved, or declared defects explain all that was found; 1 a lemma is refuted; 2 a lemma is out of
    reach; 3 it cannot be run: z3 is missing, for example.
    """
    if find_spec("z3") is None:
        raise ValueError(f"z3 = not installed, but should be: {pip_line(NEEDS)} (the extra `prove`) [prove]")
    from statecheck.kernels import triton_mode

    triton_mode.prepare("cpu")
    from lab.prove.lemmas import lemmas
    from statecheck.cli.campaign import console
    from statecheck.execution.selection import require_declared_properties
    from statecheck.subject import load

    subject, verdicts = load(options.subject), []
    require_declared_properties(subject)
    for verdict in lemmas(subject, options.time_limit, options.only):
        say(f"{_state(verdict)}: {verdict.lemma}, {verdict.seconds:.1f} s")
        verdicts.append(verdict)
    if not verdicts:
        raise ValueError(f"subject = {subject.name!r}, but should have a call of a lemma [prove]")
    console(wide=True).print(_table(verdicts))
    for verdict in verdicts:
        path = saved(verdict, options.reports)
        if path is not None:
            say(f"{_state(verdict)}: {command_line('replay', path, subject=options.subject, device='cpu')}")
    return code_of(verdicts)


def saved(verdict: LemmaVerdict, reports: Path) -> Path | None:
    """Save a lemma's case, that of a declared defect below known/, and remove those of an earlier run."""
    name = re.sub(r"\W+", "-", verdict.lemma).strip("-") + ".json"
    new, known = reports / name, reports / "known" / name
    for path in (new, known):
        path.unlink(missing_ok=True)
    if verdict.case is None:
        return None
    return verdict.case.save(known if verdict.known else new, durable=False)


def _table(verdicts: list[LemmaVerdict]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("lemma", "verdict", "s", "paths", "why"):
        table.add_column(name, justify="right" if name in ("s", "paths") else "left")
    for verdict in verdicts:
        table.add_row(
            *map(
                cell,
                (verdict.lemma, _state(verdict), f"{verdict.seconds:.1f}", str(verdict.paths), verdict.why),
            )
        )
    return table


def _state(verdict: LemmaVerdict) -> str:
    return f"{verdict.state}: {verdict.known}" if verdict.known else verdict.state


def code_of(verdicts: list[LemmaVerdict]) -> int:
    """The exit code for verdicts."""
    from lab.prove.lemmas import OUT_OF_REACH, REFUTED

    if any(verdict.state == REFUTED for verdict in verdicts):
        return FALSIFIED
    return INCOMPLETE if any(verdict.state == OUT_OF_REACH for verdict in verdicts) else CLEAN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_command(prove, arguments, "python -m lab.prove")


if __name__ == "__main__":
    sys.exit(run(main))
