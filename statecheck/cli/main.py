"""The command line: `python -m statecheck fuzz|nightly|replay|compatibility|…`; `--help` lists all commands."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from statecheck.cli.campaign import console, run_campaign, timed_plan
from statecheck.cli.conform import add_conform
from statecheck.cli.exhaust import add_exhaust
from statecheck.cli.help import add_examples
from statecheck.cli.merge import add_merge
from statecheck.cli.nightly import add_nightly
from statecheck.cli.options import (
    add_campaign_options,
    add_corpus_option,
    add_subject_options,
    add_timed_options,
    location,
    seconds,
)
from statecheck.cli.releases.bisect import add_bisect
from statecheck.cli.releases.compatibility import add_compatibility
from statecheck.cli.releases.replay_trace import add_replay_trace
from statecheck.cli.sanitize import add_sanitize
from statecheck.cli.upstream import add_upstream
from statecheck.cli.workflow import add_workflow
from statecheck.cli.xfails import add_xfails
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED
from statecheck.releases.start import go_on_in_release
from statecheck.rooms import release
from statecheck.text import command_lines
from statecheck.text.terminal import said, say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    0: clean. 1: a property was falsified, or a replayed case still fails. 2: incomplete, or an error in the harness.
    3: the command cannot be run as given.
    """
    return run_parsed(parser(), arguments)


def run_parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, module: str = "statecheck"
) -> int:
    """Parse a command line and run what it asks for; `main` has the exit codes.

    Args:
        module: what `python -m` runs, if the command has to go on in the environment of a release.
    """
    options = parser.parse_args(arguments)
    try:
        if hasattr(options, "precheck"):
            options.precheck(options)
        go_on_in_release(options, arguments, module)
        code: int = options.run(options)
    except ValueError as error:
        say(f"error: {said(str(error))}", sys.stderr)
        return MISCONFIGURED
    except Exception:
        # Python's own exit code for this is 1, which here means that the subject is wrong.
        traceback.print_exc()
        return INCOMPLETE
    except KeyboardInterrupt:
        return INCOMPLETE
    return code


class CommandParser(argparse.ArgumentParser):
    """Exits with `MISCONFIGURED`, where argparse has a 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(MISCONFIGURED, f"error: {message}\n")


def parser() -> CommandParser:
    """Of all commands."""
    program = command_lines.program()
    parser = CommandParser(prog=program, description=__doc__)
    parser.add_argument("--version", action="version", version=f"statecheck {release()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_fuzz(commands)
    _add_replay(commands)
    add_conform(commands)
    add_xfails(commands)
    add_upstream(commands)
    add_workflow(commands)
    add_bisect(commands)
    add_nightly(commands)
    add_merge(commands)
    add_replay_trace(commands)
    add_exhaust(commands)
    add_sanitize(commands)
    add_compatibility(commands)
    add_examples(commands.choices, program)
    return parser


def _add_fuzz(commands: Any) -> None:
    fuzz = commands.add_parser("fuzz", help="run all properties with fresh randomness until the time is up")
    add_timed_options(fuzz)
    fuzz.add_argument("--seed", type=int, default=None, help="repeat a campaign's random choices")
    fuzz.add_argument(
        "-x", "--exitfirst", action="store_true", help="end when the first failure has its report"
    )
    add_campaign_options(fuzz)
    fuzz.set_defaults(run=_fuzz)


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="run a saved case again: FIXED, FAILED, REPRODUCED (a declared defect), NOT REPRODUCED or NOT APPLICABLE",
    )
    replay.add_argument("case", help="path to a case.json, or the first digits of an id in the corpus")
    add_corpus_option(replay, "ids are looked up")
    replay.add_argument(
        "--verdict",
        type=location,
        default=None,
        metavar="FILE",
        help="write verdict and message as JSON, too",
    )
    replay.add_argument(
        "--time-limit",
        default="30s",
        help="for each call; one without an answer by then hangs: 90, 60s, 5m (default 30s)",
    )
    add_subject_options(replay)
    replay.set_defaults(run=_replay)


def _fuzz(options: argparse.Namespace) -> int:
    return run_campaign(timed_plan(options, "fuzz"), console())


def _replay(options: argparse.Namespace) -> int:
    from statecheck.campaign.corpus import path_of
    from statecheck.data.files import write_text
    from statecheck.diagnose.replay import FAILED, FIXED, KNOWN, replay_file

    path = path_of(options.case, options.corpus)
    limit = seconds(options.time_limit, "time_limit")
    found = replay_file(path, options.subject, options.device, time_limit=limit)
    say(said(found.headline))
    if options.verdict is not None:
        verdict = {"verdict": found.verdict, "message": found.message}
        write_text(options.verdict, json.dumps(verdict, indent=1) + "\n")
    return {FIXED: CLEAN, KNOWN: CLEAN, FAILED: FALSIFIED}.get(found.verdict, INCOMPLETE)
