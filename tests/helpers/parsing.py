"""Command lines as the command reads them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import click

from statecheck.cli.main import statecheck


def options_of(arguments: Sequence[str], command: click.Command = statecheck) -> SimpleNamespace:
    """The options of a command line, which is not run.

    Raises:
        click.UsageError: the command does not take it.
    """
    if isinstance(command, click.Group):
        context = click.Context(command)
        _, named, rest = command.resolve_command(context, list(arguments))
        assert named is not None
        return options_of(rest, named)
    return SimpleNamespace(**command.make_context(str(command.name), list(arguments)).params)
