"""The command `replay`: a saved case again."""

from __future__ import annotations

import json
from types import SimpleNamespace

import click

from statecheck.cli.options import (
    OptionsCommand,
    corpus_option,
    location,
    option,
    subject_options,
    time_limit_option,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.util.terminal import said, say
from statecheck.workers.own_process import is_command
from statecheck.workers.supervised import supervise


@click.command(cls=OptionsCommand)
@click.argument("case")
@corpus_option("ids are looked up")
@option("--verdict", type=location, metavar="FILE", help="write verdict and message as JSON, too")
@time_limit_option
@subject_options()
def replay(options: SimpleNamespace) -> int:
    """Run a saved CASE again, a file or an id of the corpus: FIXED, FAILED, REPRODUCED (a declared defect) or NOT APPLICABLE."""
    from statecheck.campaign.corpus import path_of
    from statecheck.diagnose.replay import FAILED, FIXED, KNOWN, replay_file
    from statecheck.util.files import write_text

    path = path_of(options.case, options.corpus)
    if is_command():
        supervise("replay", f"during the replay of {path}")
    found = replay_file(path, options.subject, options.device, time_limit=options.time_limit)
    say(said(found.headline))
    if options.verdict is not None:
        verdict = {"verdict": found.verdict, "message": found.message}
        write_text(options.verdict, json.dumps(verdict, indent=1) + "\n")
    return {FIXED: CLEAN, KNOWN: CLEAN, FAILED: FALSIFIED}.get(found.verdict, INCOMPLETE)
