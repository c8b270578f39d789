"""The command `upstream`: a case as a plain test for the project that has the defect."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import click

from statecheck.cli.options import OptionsCommand, corpus_option, location, option, subject_options
from statecheck.execution.verdict import CLEAN
from statecheck.util.command_lines import near
from statecheck.util.terminal import said, say
from statecheck.workers.commands import run_command

_FAILED = 1
"""Exit code of pytest where a test failed."""
_MOST_LINES, _LONGEST_LINE = 40, 1_200


@click.command(cls=OptionsCommand)
@click.argument("case")
@corpus_option("ids are looked up")
@option("--out", type=location, metavar="FILE", help="write it there (default: print it)")
@subject_options(default="")
def upstream(options: SimpleNamespace) -> int:
    """Write a saved CASE as a plain test that imports the verified project alone, once the test was seen to fail."""
    from statecheck.campaign.corpus import path_of
    from statecheck.case import Case
    from statecheck.diagnose.own_calls import with_own_calls
    from statecheck.report.files import subject_root
    from statecheck.report.scripts.calls import plain_calls, require_plain
    from statecheck.report.scripts.script import test_of
    from statecheck.subject import load
    from statecheck.util.files import write_text

    case = Case.load(path_of(options.case, options.corpus))
    require_plain(case)
    subject = load(options.subject or case.subject)
    case = with_own_calls(case, subject)
    text = test_of(case, plain_calls(case, subject))
    lines = text.splitlines()
    if len(lines) > _MOST_LINES or max(map(len, lines)) > _LONGEST_LINE:
        raise ValueError(
            f"test = {len(lines)} lines of up to {max(map(len, lines)):,} characters, but should be at most {_MOST_LINES} "
            f"of {_LONGEST_LINE} [upstream]"
        )
    _require_failure(text, subject_root(subject.module))
    if options.out is None:
        say(text.rstrip("\n"))
        return CLEAN
    write_text(options.out, text)
    say(f"{said(near(options.out))}: fails here, as it should", sys.stderr)
    return CLEAN


def _require_failure(text: str, root: Path | None) -> None:
    """Run the test with the project alone on the path.

    Raises:
        ValueError: it does not fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_upstream.py"
        file.write_text(text, encoding="utf-8")
        line = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "-p", "no:cacheprovider", file.name]
        path = os.pathsep.join(filter(None, (str(root or ""), os.environ.get("PYTHONPATH", ""))))
        environment = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        found = run_command(line, folder=folder, variables=environment)
    if found.returncode != _FAILED:
        last = " ".join(found.stdout.split()[-30:])
        raise ValueError(
            f"test = exit code {found.returncode}, but should be one that fails on this subject: {last} [upstream]"
        )
