"""Libraries of llama.cpp that are here, and the script of a library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from statecheck.case import Case
from statecheck.report.scripts.script import framed_sequence
from statecheck.subject import load
from statecheck.subject.loading import PROJECTS
from tests.helpers.processes import run_fresh


def libraries() -> list[Path]:
    named = os.environ.get("LLAMACPP_PATH", "")
    root = PROJECTS["llamacpp"].root
    return (
        [Path(named)] if named else sorted(root.glob("*/lib/python*/site-packages/xllamacpp/xllamacpp*.so"))
    )


def heads_of_a_script(port: Any, model: str, name: str) -> list[str]:
    """The start of each line that the script of two extensions prints; it has twenty lines at most, and needs the library alone."""
    operations = [("extend", {"context": 0, "rows": [(0, rows)], "features": {}}) for rows in ((1, 2), (3,))]
    lines: str = port.script(model, 0, {}, operations)
    case = Case("toys/extend", "Toys extend.", name, (), (), (), None)
    done = run_fresh("-I", "-c", framed_sequence(lines, case, load(name)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines.splitlines()) <= 20
    return [line.partition(":")[0] for line in done.stdout.splitlines()]
