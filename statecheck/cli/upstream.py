"""The command `upstream`: a case as a plain test for the project that has the defect."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from statecheck.cli.options import add_corpus_option, add_subject_options, location
from statecheck.execution.verdict import CLEAN
from statecheck.text.command_lines import near
from statecheck.text.terminal import said, say

_FAILED = 1
"""Exit code of pytest where a test failed."""


def add_upstream(commands: Any) -> None:
    """Add the command's parser."""
    upstream = commands.add_parser(
        "upstream", help="write a saved case as a plain test that imports the verified project alone"
    )
    upstream.add_argument("case", help="path to a case.json, or the first digits of an id in the corpus")
    add_corpus_option(upstream, "ids are looked up")
    upstream.add_argument(
        "--out", type=location, default=None, metavar="FILE", help="write it there (default: print it)"
    )
    add_subject_options(upstream)
    upstream.set_defaults(subject="")
    upstream.set_defaults(run=run_upstream)


def run_upstream(options: argparse.Namespace) -> int:
    """Write the test, once it was seen to fail.

    Raises:
        ValueError: the case is none that a plain call shows, or the test does not fail here.
    """
    from statecheck.campaign.corpus import path_of
    from statecheck.case import Case
    from statecheck.data.files import write_text
    from statecheck.diagnose.own_calls import with_own_calls
    from statecheck.report.markdown import subject_root
    from statecheck.report.repro.upstream import failing_call, upstream_test
    from statecheck.subject import load

    case = Case.load(path_of(options.case, options.corpus))
    failing_call(case)
    subject = load(options.subject or case.subject)
    text = upstream_test(with_own_calls(case, subject), subject)
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
        found = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if found.returncode != _FAILED:
        last = " ".join(found.stdout.split()[-30:])
        raise ValueError(
            f"test = exit code {found.returncode}, but should be one that fails on this subject: {last} [upstream]"
        )
