"""The command `prove`: lemmas about the launches of align mode, for every number that is documented."""

from __future__ import annotations

import argparse
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from statecheck.cli.options import location, seconds
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.text.command_lines import command_line, pip_line
from statecheck.text.terminal import cell, say

if TYPE_CHECKING:
    from statecheck.prove.lemmas import LemmaVerdict

NEEDS = "z3-solver>=4.13"
_DESCRIPTION = """Take the IR of the subject's kernels and the code of the oracle, and ask a solver for numbers on which they differ, on
which a kernel touches what it must not, or an integer overflows. 0: all lemmas are proved, or refuted by declared defects alone.
1: one is refuted. 2: one is out of reach. 3: it cannot be run, z3 is missing for example."""


def add_prove(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "prove", help="prove lemmas about the kernels of align mode, or find a case", description=_DESCRIPTION
    )
    parser.add_argument("--only", default="", help="a part of the names of lemmas, such as 'V1 postprocess'")
    parser.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    parser.add_argument(
        "--time-limit", default="20m", help="for the paths of one launch: 90, 60s, 5m (default 20m)"
    )
    parser.add_argument(
        "--reports", type=location, default="reports/prove", help="where cases go (default reports/prove/)"
    )
    parser.set_defaults(run=run_prove)


def run_prove(options: argparse.Namespace) -> int:
    """Decide the lemmas, save what refutes one, and print the table.

    Raises:
        ValueError: z3 is not installed, or the subject has no call that a lemma is about.
    """
    if find_spec("z3") is None:
        raise ValueError(f"z3 = not installed, but should be: {pip_line(NEEDS)} (the extra `prove`) [prove]")
    from statecheck.kernels import triton_mode

    limit = seconds(options.time_limit, "time_limit")
    triton_mode.prepare("cpu")
    from statecheck.cli.campaign import console
    from statecheck.prove.lemmas import lemmas
    from statecheck.subject import load

    subject, verdicts = load(options.subject), []
    for verdict in lemmas(subject, limit, options.only):
        say(f"{verdict.state}: {verdict.lemma}, {verdict.seconds:.1f} s")
        verdicts.append(verdict)
    if not verdicts:
        raise ValueError(f"subject = {subject.name!r}, but should have a call of a lemma [prove]")
    console(wide=True).print(_table(verdicts))
    for verdict in verdicts:
        if verdict.case is not None:
            path = verdict.case.save(options.reports / f"{_file_name(verdict)}.json", durable=False)
            say(command_line("replay", path, subject=options.subject, device="cpu"))
    return code_of(verdicts)


def _table(verdicts: list[LemmaVerdict]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("lemma", "verdict", "s", "paths", "why"):
        table.add_column(name, justify="right" if name in ("s", "paths") else "left")
    for one in verdicts:
        state = f"{one.state}, known: {one.known}" if one.known else one.state
        why = one.case.message if one.case is not None else one.why
        table.add_row(*map(cell, (one.lemma, state, f"{one.seconds:.1f}", str(one.paths), why)))
    return table


def _file_name(verdict: LemmaVerdict) -> Path:
    return Path(re.sub(r"\W+", "-", verdict.lemma).strip("-"))


def code_of(verdicts: list[LemmaVerdict]) -> int:
    """The exit code for verdicts."""
    from statecheck.prove.lemmas import OUT_OF_REACH, REFUTED

    if any(one.state == REFUTED and not one.known for one in verdicts):
        return FALSIFIED
    return INCOMPLETE if any(one.state == OUT_OF_REACH for one in verdicts) else CLEAN
