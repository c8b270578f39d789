"""`python -m lab.prove`: lemmas about the launches of align mode, for every number that is documented; `make prove` runs it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from statecheck.cli.main import CommandParser, run_parsed
from statecheck.cli.options import location, seconds
from statecheck.cli.process import run
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.text.command_lines import command_line, pip_line
from statecheck.text.terminal import cell, say

if TYPE_CHECKING:
    from lab.prove.lemmas import LemmaVerdict

NEEDS = "z3-solver>=4.13"
_DESCRIPTION = """Take the IR of the subject's kernels and the code of the oracle, and ask a solver for numbers on which they differ, on
which a kernel touches what it must not, or an integer overflows. 0: each lemma is proved, or declared defects explain all that was found.
1: one is refuted. 2: one is out of reach. 3: it cannot be run, z3 is missing for example."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code, as those of statecheck."""
    return run_parsed(parser(), arguments, "lab.prove")


def parser() -> CommandParser:
    """Of its options."""
    parser = CommandParser(prog="python -m lab.prove", description=_DESCRIPTION)
    parser.add_argument("--only", default="", help="a part of the names of lemmas, such as 'V1 postprocess'")
    parser.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    parser.add_argument(
        "--time-limit",
        default="20m",
        help="for the paths of one launch, and for the cases of a lemma: 90, 60s, 5m (default 20m)",
    )
    parser.add_argument(
        "--reports", type=location, default="reports/prove", help="where cases go (default reports/prove/)"
    )
    parser.set_defaults(run=run_prove)
    return parser


def run_prove(options: argparse.Namespace) -> int:
    """Decide the lemmas, save what refutes one, and print the table.

    Raises:
        ValueError: z3 is not installed, no lemma is chosen, or the declared defects match most of what can fail.
    """
    if find_spec("z3") is None:
        raise ValueError(f"z3 = not installed, but should be: {pip_line(NEEDS)} (the extra `prove`) [prove]")
    from statecheck.kernels import triton_mode

    limit = seconds(options.time_limit, "time_limit")
    triton_mode.prepare("cpu")
    from lab.prove.lemmas import lemmas
    from statecheck.cli.campaign import console
    from statecheck.execution.breadth import require_narrow
    from statecheck.subject import load

    subject, verdicts = load(options.subject), []
    require_narrow(subject)
    for verdict in lemmas(subject, limit, options.only):
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
    for one in verdicts:
        table.add_row(*map(cell, (one.lemma, _state(one), f"{one.seconds:.1f}", str(one.paths), one.why)))
    return table


def _state(verdict: LemmaVerdict) -> str:
    return f"{verdict.state}: {verdict.known}" if verdict.known else verdict.state


def code_of(verdicts: list[LemmaVerdict]) -> int:
    """The exit code for verdicts."""
    from lab.prove.lemmas import OUT_OF_REACH, REFUTED

    if any(one.state == REFUTED for one in verdicts):
        return FALSIFIED
    return INCOMPLETE if any(one.state == OUT_OF_REACH for one in verdicts) else CLEAN


if __name__ == "__main__":
    sys.exit(run(main))
