"""The command `merge`: the shards of a campaign as one campaign."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import click

from statecheck.campaign.record import FILE, CampaignRecord, require_id
from statecheck.cli.options import (
    OptionsCommand,
    corpus_option,
    location,
    option,
    reports_option,
    require_own,
)
from statecheck.execution.verdict import CLEAN, INCOMPLETE
from statecheck.util.command_lines import near
from statecheck.util.terminal import said, say


@dataclass
class _Found:
    """Records of one campaign by their files, and sentences about what is not among them."""

    records: dict[Path, CampaignRecord] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@click.command(cls=OptionsCommand)
@click.argument("folders", nargs=-1, required=True, type=location, metavar="FOLDER...")
@option("--id", default="", metavar="NAME", help="the campaign's name, where the folders hold several")
@reports_option
@corpus_option("failing cases are kept")
def merge(options: SimpleNamespace) -> int:
    """Add up the shards of a campaign that lie below the FOLDERs, and write its report; of a whole campaign, the report again."""
    from statecheck.campaign.merge import merge_records, write_merged
    from statecheck.campaign.terminal.results import print_verdict

    require_own(options.reports, "reports", "reports")
    require_own(options.corpus, "corpus", "corpus")
    if options.id:
        require_id(options.id, "id")
    found = _found(options.folders, options.id)
    for sentence in found.left_out:
        say(f"left out: {said(sentence)}", sys.stderr)
    if not found.records:
        what = f"campaign {options.id}" if options.id else "campaign"
        raise ValueError(f"folders = {_list(options.folders)}, but should hold a {what} in {FILE} [merge]")
    whole = merge_records(list(found.records.values()), list(map(str, found.records)))
    whole.warnings += found.left_out
    whole = write_merged(whole, options.reports, options.corpus)
    for warning in whole.warnings:
        say(f"warning: {said(warning)}")
    code = print_verdict(say, whole, options.reports / "campaigns" / whole.plan.id)
    return code or (INCOMPLETE if found.left_out else CLEAN)


def _list(folders: Iterable[Path]) -> str:
    return ", ".join(map(near, folders))


def _found(folders: Iterable[Path], wanted: str) -> _Found:
    """The records of one campaign in the folders.

    Raises:
        ValueError: several campaigns, of which none was chosen.
    """
    found = _Found()
    for path in _files(folders):
        try:
            record = CampaignRecord.load(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            found.left_out.append(f"{near(path)} cannot be read: {why}")
            continue
        if not wanted or record.plan.id == wanted:
            found.records[path] = record
    if any(record.plan.shards > 1 for record in found.records.values()):
        # What an earlier merge made of shards is none of them, nor is another campaign that never had any.
        found.records = {path: record for path, record in found.records.items() if record.plan.shards > 1}
    names = sorted({record.plan.id for record in found.records.values()})
    if len(names) > 1:
        rule = "the name of one of the campaigns in the folders"
        raise ValueError(f"id = {wanted!r}, but should be {rule}, {', '.join(names)} [merge]")
    return found


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    """Each once, though folders may be given twice or lie in each other."""
    paths = (path for folder in folders for path in sorted(_below(folder)))
    return iter({os.path.realpath(path): path for path in paths}.values())


def _below(folder: Path) -> Iterable[Path]:
    """Everything in a folder that is called as a record is, whatever it is."""
    if folder.is_file():
        return [folder]
    return [Path(place, FILE) for place, folders, files in os.walk(folder) if FILE in (*folders, *files)]
