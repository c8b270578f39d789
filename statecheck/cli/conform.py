"""The commands for a project's own CI: `conform`, the fixed examples of a profile, of which the same versions give the same verdicts and counts;
and `xfails`, entries of expected failures for what a campaign found, to be completed with a reason and a link.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from statecheck.cli.campaign import console, run_campaign, short_plan
from statecheck.cli.options import (
    OptionsCommand,
    location,
    option,
    port_options,
    reports_option,
    require_options,
    subject_options,
    workers_option,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, MISCONFIGURED
from statecheck.rooms import release
from statecheck.util.command_lines import near
from statecheck.util.text import said, say

if TYPE_CHECKING:
    from statecheck.campaign.record import CampaignRecord
    from statecheck.subject import Subject

RESULT = "conformance.json"
_IN_CI = (
    "The reports are in the artifact of this run, in the place of `reports`. A `repro.py` there runs alone."
)
"""Below the summary of a step, whose reader has none of its files."""


def _profile(context: click.Context, parameter: click.Parameter, name: str) -> str:  # noqa: ARG001 - click's
    from statecheck.campaign.conformance import profile_of

    profile_of(name)
    return name


def _xfails(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:  # noqa: ARG001 - click's
    """Read the file at once: the environment of a release may take minutes."""
    from statecheck.subject.known import ids_in, unsupported_in

    if file is not None and file.exists():
        ids_in(file)
        unsupported_in(file)
    return file


@click.command(cls=OptionsCommand)
@subject_options(models=True)
@option(
    "--profile", default="functions", callback=_profile, help="functions, engines, sequences or recurrences"
)
@option(
    "--xfails",
    type=location,
    callback=_xfails,
    metavar="FILE",
    help="expected failures, such as statecheck-xfails.toml",
)
@option("--fail-on-fixed", is_flag=True, help="exit with 1 if an expected failure no longer fails")
@workers_option
@reports_option
@port_options
@require_options
def conform(options: SimpleNamespace) -> int:
    """Verify a subject with the fixed examples of a profile, for its own CI: exit code 0 if it conforms and 1 if not."""
    from statecheck.campaign.conformance import profile_of, seed_of_profile

    options.only, options.as_new = "", False
    if options.device == "auto":
        options.device = profile_of(options.profile).device
    file = options.xfails
    if file is not None and not file.exists():
        # A workflow names the file before there is a failure to declare.
        say(
            f"note: {said(near(file))} is not there: no failure is expected. `statecheck xfails --update` writes it."
        )
        file = None
    plan = short_plan(
        options,
        "conform",
        seed=seed_of_profile(options.profile),
        profile=options.profile,
        xfails="" if file is None else str(file),
        tolerates_fixed=not options.fail_on_fixed,
        replayed=False,
    )
    code = run_campaign(plan, console(), more=_write_result)
    return code if code in (CLEAN, MISCONFIGURED) else FALSIFIED


def _write_result(out: Console, campaign: Any, folder: Path) -> None:
    """Write the result as JSON and as JUnit XML, and the summary where GitHub shows one."""
    from statecheck.campaign.corpus import not_written
    from statecheck.campaign.report import junit, markdown
    from statecheck.util.files import append_text, write_text

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
    from statecheck.campaign.conformance import profile_of
    from statecheck.campaign.summary import verdict
    from statecheck.execution.verdict import Status

    outcome = verdict(record)
    rows = {
        row.id: {"status": row.status}
        | (
            {}
            if row.status == Status.FALSIFIED.value
            else {"examples": row.examples, "compared": row.compared}
            | ({"situations": dict(sorted(row.counts.situations.items()))} if row.counts.situations else {})
        )
        for row in sorted(record.properties, key=lambda row: row.id)
    }
    statuses = [row["status"] for row in rows.values()]
    return {
        "suite": f"statecheck {release()}",
        "profile": record.plan.profile,
        "profile_version": profile_of(record.plan.profile).version,
        "subject": record.plan.subject,
        "release": record.release,
        "device": record.plan.device,
        "date": record.began,
        "verdict": outcome.word,
        "reasons": list(outcome.reasons),
        "counts": {status: statuses.count(status) for status in sorted(set(statuses))},
        "properties": rows,
        "expected_failures": [asdict(defect) for defect in record.known],
        "environment": record.environment,
    }


XFAILS_FILE = "statecheck-xfails.toml"


@click.command(cls=OptionsCommand)
@option("--file", type=location, default=XFAILS_FILE, metavar="FILE", help="the project's expected failures")
@option(
    "--campaign",
    type=location,
    default="reports/campaign.json",
    metavar="FILE",
    help="the record of a campaign, by default the latest",
)
@option("--update", is_flag=True, help="append the entries to the file, and do not only print them")
def xfails(options: SimpleNamespace) -> int:
    """Write entries of expected failures for what the latest campaign found; their `why` and `link` are left to complete."""
    from statecheck.campaign.record import CampaignRecord
    from statecheck.subject.known import LARGEST, ids_in
    from statecheck.util.files import read_text, write_whole

    file: Path = options.file
    try:
        record = CampaignRecord.load(options.campaign)
    except OSError as error:
        raise ValueError(
            f"campaign = {error.strerror or error}, but should be the record of a campaign [{near(options.campaign)}]"
        ) from error
    declared = ids_in(file) if file.exists() else frozenset()
    entries = [text for id_, text in entries_of(record) if id_ not in declared]
    if not entries:
        say("no failure that is not declared yet")
        return CLEAN
    if not options.update:
        say("\n".join(entries))
        return CLEAN
    try:
        before = read_text(file, LARGEST) if file.exists() else ""
        # Whole: a process that is killed during the write must not cost a project its entries.
        write_whole(file.resolve(), before + ("\n" if before else "") + "\n".join(entries))
    except OSError as error:
        raise ValueError(
            f"file = {error.strerror or error}, but should be a file that can be written [{near(file)}]"
        ) from error
    count = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}"
    say(f"{count} in {said(near(file))}: complete `why` and `link` of each", sys.stderr)
    return CLEAN


def entries_of(record: CampaignRecord) -> Iterator[tuple[str, str]]:
    """The id and the TOML of an entry for each thing that is wrong; on the standard error, what no entry can declare."""
    from statecheck.campaign.coordinator import loaded
    from statecheck.campaign.report import bucket_entry
    from statecheck.case import Case
    from statecheck.subject import BUILT_IN
    from statecheck.subject.known import entry_text

    # The port, by which functions are called as its author calls them; None for a subject with the documents' names, or where it cannot be imported.
    subject: Subject | None = None
    if record.buckets and record.plan.subject.partition("+")[0] not in BUILT_IN:
        try:
            subject = loaded(record.plan.subject, "cpu")
        except ValueError as error:
            say(f"note: the entries have the documents' names of functions: {said(str(error))}", sys.stderr)
    ids: set[str] = set()
    for bucket in record.buckets:
        try:
            failure = Case.from_data(bucket.case).failure if bucket.case else None
            if failure is None or not failure.part:
                rule = "its failure names no place in a result, so that an entry cannot declare it [xfails]"
                raise ValueError(rule)
        except ValueError as error:
            say(f"left out: {bucket.id}: {said(str(error))}", sys.stderr)
            continue
        name = bucket.property.replace("/", "-")
        short = f"{name}-{bucket.id[:6]}"
        id_ = short if short not in ids else f"{name}-{bucket.id}"
        ids.add(id_)
        function = failure.function
        if subject is not None and function:
            # The port's own name, if a reader of the entry takes that for the same function.
            own = subject.own_name(function)
            function = own if function in subject.documented_names(own) else function
        yield id_, entry_text(id_, bucket_entry(bucket, record).headline, bucket.property, failure, function)
