"""`test`: the properties under pytest, from any folder, whatever that folder's own configuration of pytest says."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from statecheck import rooms
from statecheck.cli.options import (
    add_only_option,
    add_reports_option,
    add_require_options,
    add_subject_options,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED

_PLUGIN = "statecheck.suite.options"
_USAGE = 4
_CODES = {0: CLEAN, 1: FALSIFIED, _USAGE: MISCONFIGURED}


def add_test(commands: Any) -> None:
    """The command, among the others."""
    parser = commands.add_parser("test", help="every property once under pytest, with a verdict for each")
    add_subject_options(parser)
    add_only_option(parser)
    parser.add_argument("--max-examples", default="", metavar="N", help="of each property (default 100)")
    add_require_options(parser)
    add_reports_option(parser)
    parser.add_argument("--workers", default="auto", help="processes (default: one per core)")
    parser.add_argument("arguments", nargs="*", metavar="-- ...", help="anything else is handed to pytest")
    parser.set_defaults(run=run_test)


def run_test(options: argparse.Namespace) -> int:
    """Run it in a process of its own, in which pytest finds the rooms from the first moment on."""
    command = [sys.executable, "-m", "pytest", *_arguments(options), *options.arguments]
    done = subprocess.run(command, env=os.environ | rooms.variables(), check=False)
    return _CODES.get(done.returncode, INCOMPLETE)


def _arguments(options: argparse.Namespace) -> Iterator[str]:
    configuration = rooms.FOLDER / "pyproject.toml" if rooms.is_checkout() else os.devnull
    yield from ("-c", str(configuration), f"--rootdir={rooms.FOLDER}", "-p", _PLUGIN, "-q")
    yield from ("-p", "no:cacheprovider", "-n", options.workers, "--reports", str(options.reports))
    yield from ("--subject", options.subject, "--device", options.device)
    given = {"-k": options.only, "--max-examples": options.max_examples, "--require": options.require}
    for name, value in given.items():
        yield from (name, value) if value else ()
    yield from ("--fail-on-untested",) if options.fail_on_untested else ()
    yield from map(str, rooms.property_files())
