"""`python -m lab.docs`: the generated tables of README and docs, which `make table` and `make check-table` run."""

from __future__ import annotations

import sys

import click

from lab.docs.generated import run_table
from statecheck.cli.main import run, run_command


@click.command()
@click.option("--write", is_flag=True, help="put the tables into their files")
@click.option(
    "--check", is_flag=True, help="fail if a file differs, a symbol lacks a room, or a citation is dead"
)
def docs(*, write: bool, check: bool) -> int:
    """Generate the tables of README and docs, and print them without an option."""
    return run_table(write=write, check=check)


if __name__ == "__main__":
    sys.exit(run(lambda: run_command(docs, None, "python -m lab.docs")))
