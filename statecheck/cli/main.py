"""The command `statecheck`: its commands by what they are for, its errors and its exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches

import click

from statecheck.cli.bisect import bisect
from statecheck.cli.campaign import exhaust, fuzz, merge, nightly
from statecheck.cli.conform import conform, xfails
from statecheck.cli.output import Unbreakable, finish, prepare
from statecheck.cli.replay import replay, replay_trace, sanitize, upstream
from statecheck.execution.verdict import CLEAN, INCOMPLETE, MISCONFIGURED
from statecheck.rooms import release
from statecheck.util.command_lines import program, remembered
from statecheck.util.text import said, say
from statecheck.workers.supervised import session

SECTIONS = {
    "Look for defects": (fuzz, nightly, exhaust, replay_trace),
    "In a CI": (conform, xfails),
    "After a failure": (replay, bisect, upstream, sanitize),
    "Many machines": (merge,),
}


class Commands(click.Group):
    """Lists commands by section, and suggests one for a command that there is not."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(command.name), command.get_short_help_str(200)) for command in commands]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = get_close_matches(args[0], self.commands, n=1)
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    no_args_is_help=False,
    commands=[command for commands in SECTIONS.values() for command in commands],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(release(), message="statecheck %(version)s")
def statecheck() -> None:
    """Property-based verification of recurrent state in LLM engines.

    Exit codes: 0 clean; 1 a property was falsified, or a replayed case still fails; 2 incomplete, or an error in the harness;
    3 the command cannot be run as given.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    return run_command(statecheck, arguments)


def run_command(command: click.Command, arguments: Sequence[str] | None, name: str = "") -> int:
    """Parse a command line and run what it asks for; returns the exit code, as the help of `statecheck` has them.

    Args:
        name: of the command in its usage.
    """
    try:
        given = None if arguments is None else list(arguments)
        code = command.main(given, name or program(), standalone_mode=False, obj=given)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        say(f"error: {said(error.format_message())}", sys.stderr)
        if context is not None:
            say(f"{context.get_usage()}\n`{context.command_path} --help` lists the options", sys.stderr)
        return MISCONFIGURED
    except ValueError as error:
        say(f"error: {said(str(error))}", sys.stderr)
        return MISCONFIGURED
    except Exception:
        # Python's own exit code for this is 1, which here means that the subject is wrong.
        traceback.print_exc()
        return INCOMPLETE
    except (KeyboardInterrupt, click.Abort):
        return INCOMPLETE
    return int(code or CLEAN)


def run(command: Callable[[], int] = main) -> int:
    """Run a command in a process of its own: the exit code is the verdict's, whatever becomes of the output."""
    prepare()
    sys.stdout, sys.stderr = Unbreakable(sys.stdout), Unbreakable(sys.stderr)
    os.environ.update(remembered())
    code = command()
    if (supervised := session()) is not None:
        supervised.end(code)
    # The verdict stands: a signal that comes until the process is gone must not change its exit code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    finish()
    return code
