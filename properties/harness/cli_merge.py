"""The command `merge`: the shards of a campaign as one campaign."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from properties.harness.campaign.record import FILE, Record
from properties.harness.cli_folders import require_own

_DESCRIPTION = f"""Add up the shards of a campaign and write its report. Folders are searched for {FILE}; where they hold
several campaigns, --id chooses, or else the first one found. One campaign that has no shards only gets its report written
again. 0: clean. 1: something is wrong. 2: incomplete, or a {FILE} could not be used. 3: there is none."""


def add_merge(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "merge", help="add up the shards of a campaign, or write its report again", description=_DESCRIPTION
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="searched for campaign.json")
    parser.add_argument("--id", default="", help="the campaign's name")
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help="where reports go (default reports/)"
    )
    parser.add_argument(
        "--corpus", type=Path, default=Path("corpus"), help="where failing cases are kept (default corpus/)"
    )
    parser.set_defaults(run=run_merge)


@dataclass
class _Found:
    """Records of one campaign by their files, and sentences about what is not among them."""

    records: dict[Path, Record] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def run_merge(options: argparse.Namespace) -> int:
    """Merge and report; the exit codes are those of a campaign.

    Raises:
        ValueError: no campaign in the folders.
    """
    from properties.harness.nightly.keeper import Keeper, write_down
    from properties.harness.nightly.merge import merged

    require_own(options.reports, "reports", "reports", "merge")
    require_own(options.corpus, "corpus", "corpus", "merge")
    found = _found(options.folders, options.id)
    for sentence in found.left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    if not found.records:
        what = f"campaign {options.id}" if options.id else "campaign"
        raise ValueError(f"folders = {_list(options.folders)}, but should hold a {what} in {FILE} [merge]")
    whole = merged(list(found.records.values()))
    whole.troubles += found.left_out
    keeper = Keeper(options.corpus, options.reports, whole.subject)
    return _tell(write_down(whole, options.reports, keeper), options.reports, complete=not found.left_out)


def _tell(whole: Record, reports: Path, *, complete: bool) -> int:
    from properties.harness.nightly.comparison import compared, find_previous
    from properties.harness.nightly.summary import verdict

    directory = reports / "campaigns" / whole.id
    told = verdict(whole, compared(whole, find_previous(reports, whole)[0]))
    print(told.word, *told.reasons, sep="\n  ")
    for trouble in whole.troubles:
        print(f"trouble: {trouble}")
    print(f"report: {directory / 'report.html'}")
    return told.exit_code if complete or not told.clean else 2


def _list(folders: Iterable[Path]) -> str:
    return ", ".join(map(str, folders))


def _found(folders: Iterable[Path], wanted: str) -> _Found:
    """The records of one campaign in the folders; its earlier merge is not one of its shards."""
    found = _Found()
    for path in _files(folders):
        try:
            record = Record.load(path)
        except (OSError, ValueError) as error:
            found.left_out.append(f"{path} cannot be read: {error}")
            continue
        if not wanted or record.id == wanted:
            _sort_in(found, path, record)
    if any(one.shards > 1 for one in found.records.values()):
        _leave_merges(found)
    return found


def _leave_merges(found: _Found) -> None:
    """Of shards and what an earlier merge made of them only the shards count, and only those of one campaign."""
    found.records = {path: one for path, one in found.records.items() if one.shards > 1}
    shards = next(iter(found.records.values())).shards
    for path, one in list(found.records.items()):
        if one.shards != shards:
            found.left_out.append(f"{path} is one of {one.shards} shards, not of {shards}")
            del found.records[path]


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    """Each once, though folders may be given twice or lie in each other."""
    paths = (path for folder in folders for path in sorted(_below(folder)))
    return iter({path.resolve(): path for path in paths}.values())


def _below(folder: Path) -> Iterable[Path]:
    if folder.is_file():
        return [folder]
    return folder.rglob(FILE)


def _sort_in(found: _Found, path: Path, record: Record) -> None:
    first = next(iter(found.records.values()), record)
    for name in ("id", "subject", "device", "only"):
        mine, theirs = getattr(first, name), getattr(record, name)
        if mine != theirs:
            found.left_out.append(f"{path} is of another campaign: {name} = {theirs!r}, not {mine!r}")
            return
    found.records[path] = record
