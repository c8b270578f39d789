"""The command `bisect`: which release of a subject broke a case, and which one repaired it."""

from __future__ import annotations

import argparse
from typing import Any

from statecheck.cli.options import add_corpus_option

_DESCRIPTION = """Replays a case on releases of vLLM, and says since which of them it is wrong, and since which it is right
again. Exit code: 0 if it is right in the newest one, 1 if it is wrong there, 2 if nothing is known of that one, 3 if the command
cannot be run as given."""
_OPTIONS: dict[str, dict[str, Any]] = {
    # Not `subject`: with that, a command goes on in the environment of one release.
    "--subject": {
        "dest": "released",
        "metavar": "SUBJECT",
        "default": "",
        "help": "what the releases are of: vllm (default: the case's own)",
    },
    "--device": {"default": "auto", "help": "auto, cpu or cuda (default auto)"},
    "--releases": {
        "default": "",
        "help": "only these, such as 0.25.1,0.33.0 (default: all of the index since 0.20.2)",
    },
    "--all": {
        "action": "store_true",
        "help": "try every release, instead of bisecting between those whose verdicts differ",
    },
    "--time-limit": {
        "default": "30s",
        "help": "for each call; one without an answer by then hangs: 90, 60s, 10m (default 30s)",
    },
}


def add_bisect(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "bisect",
        help="replay a case on releases of its subject: which one broke it, which one repaired it",
        description=_DESCRIPTION,
    )
    parser.add_argument("case", help="path to a case.json, or the first digits of an id in the corpus")
    add_corpus_option(parser, "ids are looked up")
    for name, given in _OPTIONS.items():
        parser.add_argument(name, **given)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from statecheck.cli.releases.bisect_runs import run_bisect

    return run_bisect(options)
