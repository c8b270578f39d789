"""`completion`: what makes a shell complete commands and options."""

from __future__ import annotations

import argparse
from typing import Any

from statecheck.execution.exit_codes import CLEAN

_SHELLS = ("bash", "zsh", "tcsh")


def add_completion(commands: Any, whole: argparse.ArgumentParser) -> None:
    """The command, among the others.

    Args:
        whole: the parser whose commands and options are completed.
    """
    parser = commands.add_parser(
        "completion", help="print what makes a shell complete commands: statecheck completion bash"
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=lambda options: _print(whole, options.shell))


def _print(parser: argparse.ArgumentParser, shell: str) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ValueError(
            "shtab = missing, but should be installed to write completions [completion]"
        ) from error
    parser.prog = "statecheck"
    print(shtab.complete(parser, shell=shell))
    return CLEAN
