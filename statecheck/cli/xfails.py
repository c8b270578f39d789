"""The command `xfails`: entries of expected failures for what a campaign found, to be completed with a reason and a link."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import click

from statecheck.cli.options import OptionsCommand, location, option
from statecheck.execution.verdict import CLEAN
from statecheck.util.command_lines import near
from statecheck.util.terminal import said, say

if TYPE_CHECKING:
    from statecheck.campaign.record import BucketRecord, CampaignRecord
    from statecheck.case.failure import Failure
    from statecheck.subject import Subject

DEFAULT = "statecheck-xfails.toml"
_LONGEST_TITLE = 200


@click.command(cls=OptionsCommand)
@option("--file", type=location, default=DEFAULT, metavar="FILE", help="the project's expected failures")
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
    from statecheck.subject.known import entry_text

    subject = _loaded(record.plan.subject) if record.buckets else None
    ids: set[str] = set()
    for bucket in record.buckets:
        try:
            failure = _failure_of(bucket)
        except ValueError as error:
            say(f"left out: {bucket.id}: {said(str(error))}", sys.stderr)
            continue
        id_ = _id_of(bucket, ids)
        ids.add(id_)
        title, property_ = bucket.message[:_LONGEST_TITLE], bucket.property
        yield id_, entry_text(id_, title, property_, failure, _function_of(failure, subject))


def _failure_of(bucket: BucketRecord) -> Failure:
    """What a bucket's case says went wrong.

    Raises:
        ValueError: there is no case that can be read, or it names no place, by which an entry would match.
    """
    from statecheck.case import Case

    failure = Case.from_data(bucket.case).failure if bucket.case else None
    if failure is None or not failure.part:
        raise ValueError(
            "its failure names no place in a result, so that an entry cannot declare it [xfails]"
        )
    return failure


def _id_of(bucket: BucketRecord, taken: set[str]) -> str:
    """Short where the first digits of the bucket's id tell it apart."""
    name = bucket.property.replace("/", "-")
    short = f"{name}-{bucket.id[:6]}"
    return short if short not in taken else f"{name}-{bucket.id}"


def _loaded(name: str) -> Subject | None:
    """The port, by which functions are called as its author calls them; None for a subject with the documents' names, or where it cannot be imported."""
    from statecheck.campaign.coordinator import loaded
    from statecheck.subject import BUILT_IN

    if name.partition("+")[0] in BUILT_IN:
        return None
    try:
        return loaded(name, "cpu")
    except ValueError as error:
        say(f"note: the entries have the documents' names of functions: {said(str(error))}", sys.stderr)
        return None


def _function_of(failure: Failure, subject: Subject | None) -> str:
    """The port's own name of the function, if a reader of the entry takes that for the same function."""
    function = failure.function
    own = subject.own_name(function) if subject is not None and function else function
    return own if subject is not None and function in subject.documented_names(own) else function
