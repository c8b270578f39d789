"""The command `conform`: the fixed examples of a profile, for a project's own CI. The same versions give the same verdicts and counts."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from statecheck.cli.campaign import console, run_campaign, short_plan
from statecheck.cli.options import (
    add_port_options,
    add_reports_option,
    add_require_options,
    add_subject_options,
    add_workers_option,
    location,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, MISCONFIGURED
from statecheck.rooms import release
from statecheck.text.command_lines import near
from statecheck.text.terminal import said, say

RESULT = "conformance.json"
_IN_CI = (
    "The reports are in the artifact of this run, in the place of `reports`. A `repro.py` there runs alone."
)
"""Below the summary of a step, whose reader has none of its files."""


def add_conform(commands: Any) -> None:
    """Add the command's parser."""
    conform = commands.add_parser(
        "conform",
        help="verify a subject with the fixed examples of a profile, for its own CI: exit code 0 or 1",
    )
    add_subject_options(conform)
    conform.add_argument(
        "--profile", default="functions", help="functions, engines or sequences (default functions)"
    )
    conform.add_argument(
        "--xfails",
        type=location,
        default=None,
        metavar="FILE",
        help="expected failures, such as statecheck-xfails.toml",
    )
    conform.add_argument(
        "--fail-on-fixed", action="store_true", help="exit with 1 if an expected failure no longer fails"
    )
    add_workers_option(conform)
    add_reports_option(conform)
    add_port_options(conform)
    add_require_options(conform)
    conform.set_defaults(run=run_conform, precheck=check_conform, as_new=False, only="")


def check_conform(options: argparse.Namespace) -> None:
    """Say at once what is wrong with the options: the environment of a release may take minutes.

    Raises:
        ValueError: no such profile, or the file of expected failures is not as documented.
    """
    from statecheck.campaign.conformance.profiles import profile_of
    from statecheck.subject.known import ids_in, unsupported_in

    profile_of(options.profile)
    if options.xfails is not None and options.xfails.exists():
        ids_in(options.xfails)
        unsupported_in(options.xfails)


def run_conform(options: argparse.Namespace) -> int:
    """Run the profile and write `conformance.json` beside the campaign's report.

    Returns 0 if the subject conforms and 1 if it does not, whatever the reason.

    Raises:
        ValueError: an option that cannot be, or a file of expected failures that is not as documented.
    """
    from statecheck.campaign.conformance.profiles import seed_of_profile

    xfails: Path | None = options.xfails
    if xfails is not None and not xfails.exists():
        # A workflow names the file before there is a failure to declare.
        say(
            f"note: {said(near(xfails))} is not there: no failure is expected. `statecheck xfails --update` writes it."
        )
        xfails = None
    plan = short_plan(
        options,
        "conform",
        seed=seed_of_profile(options.profile),
        profile=options.profile,
        xfails="" if xfails is None else str(xfails),
        tolerates_fixed=not options.fail_on_fixed,
        replayed=False,
    )
    code = run_campaign(plan, console(), more=_write_result)
    return code if code in (CLEAN, MISCONFIGURED) else FALSIFIED


def _write_result(out: Console, campaign: Any, folder: Path) -> None:
    """Write the result as JSON and as JUnit XML, and the summary where GitHub shows one."""
    from statecheck.campaign.keeper import not_written
    from statecheck.campaign.pages.junit import junit
    from statecheck.campaign.pages.text import markdown
    from statecheck.data.files import append_text, write_text

    def attempt(write: Callable[[Path, str], None], path: Path, text: Callable[[], str]) -> None:
        """What cannot be written costs neither the other files nor the verdict."""
        try:
            write(path, text())
        except OSError as error:
            _print(out, f"warning: {said(not_written(path, error))}")

    record = campaign.current()
    attempt(write_text, folder / RESULT, lambda: json.dumps(result_of(record), indent=1) + "\n")
    attempt(write_text, folder / "junit.xml", lambda: junit(record))
    _print(out, f"result: {near(folder / RESULT)}")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        attempt(append_text, Path(summary), lambda: f"{markdown(record, folder)}\n{_IN_CI}\n")


def _print(out: Console, line: str) -> None:
    out.print(line, markup=False, highlight=False, soft_wrap=True)


def result_of(record: Any) -> dict[str, Any]:
    """What the run says, as data: versions, the verdict, and each property with its counts.

    A falsified property has no counts: those of its search for a smaller input depend on time.
    """
    from statecheck.campaign.conformance.profiles import profile_of
    from statecheck.campaign.pages.summary import verdict
    from statecheck.execution.verdict import Status

    outcome = verdict(record)
    rows = {
        row.short: {"status": row.status}
        | (
            {}
            if row.status == Status.FALSIFIED.value
            else {"examples": row.examples, "compared": row.compared}
        )
        for row in sorted(record.properties, key=lambda row: str(row.short))
    }
    statuses = [row["status"] for row in rows.values()]
    return {
        "suite": f"statecheck {release()}",
        "profile": record.profile,
        "profile_version": profile_of(record.profile).version,
        "subject": record.subject,
        "release": record.release,
        "device": record.device,
        "date": record.began,
        "verdict": outcome.word,
        "reasons": list(outcome.reasons),
        "counts": {status: statuses.count(status) for status in sorted(set(statuses))},
        "properties": rows,
        "expected_failures": [asdict(one) for one in record.known],
        "environment": record.environment,
    }
