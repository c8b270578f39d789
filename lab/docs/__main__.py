"""`python -m lab.docs`: the generated tables of README and docs, which `make table` and `make check-table` run."""

from __future__ import annotations

import sys

from lab.docs.generated import run_table
from statecheck.cli.main import CommandParser, run_parsed
from statecheck.cli.process import run


def parser() -> CommandParser:
    """Of its options."""
    parser = CommandParser(prog="python -m lab.docs", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into their files")
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail if a file differs, a symbol lacks a room, or a citation is dead",
    )
    parser.set_defaults(run=lambda options: run_table(write=options.write, check=options.check))
    return parser


if __name__ == "__main__":
    sys.exit(run(lambda: run_parsed(parser(), None)))
