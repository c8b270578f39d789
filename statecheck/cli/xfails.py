"""The command `xfails`: entries of expected failures for what a campaign found, to be completed with a reason and a link."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statecheck.cli.options import location
from statecheck.execution.verdict import CLEAN
from statecheck.text.command_lines import near
from statecheck.text.terminal import said, say

DEFAULT = "statecheck-xfails.toml"


def add_xfails(commands: Any) -> None:
    """Add the command's parser."""
    xfails = commands.add_parser(
        "xfails", help="write entries of expected failures for what the latest campaign found"
    )
    xfails.add_argument(
        "--file", type=location, default=DEFAULT, help=f"the project's expected failures (default {DEFAULT})"
    )
    xfails.add_argument(
        "--campaign",
        type=location,
        default="reports/campaign.json",
        metavar="FILE",
        help="the record of a campaign (default reports/campaign.json, the latest)",
    )
    xfails.add_argument(
        "--update", action="store_true", help="append them to the file, and do not only print them"
    )
    xfails.set_defaults(run=run_xfails)


def run_xfails(options: argparse.Namespace) -> int:
    """Print or append an entry for each failure that the file does not declare yet; `why` and `link` are left empty.

    Raises:
        ValueError: the record or the file cannot be read, or is not as documented.
    """
    from statecheck.campaign.record import CampaignRecord
    from statecheck.data.files import write_text

    file: Path = options.file
    try:
        record = CampaignRecord.load(options.campaign)
    except OSError as error:
        raise ValueError(
            f"campaign = {error.strerror or error}, but should be the record of a campaign [{near(options.campaign)}]"
        ) from error
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    entries = [text for id_, text in entries_of(record) if json.dumps(id_) not in before]
    if not entries:
        say("no failure that is not declared yet")
        return CLEAN
    if not options.update:
        say("\n".join(entries))
        return CLEAN
    write_text(file, before + ("\n" if before else "") + "\n".join(entries))
    say(f"{len(entries)} entries in {said(near(file))}: complete `why` and `link` of each", sys.stderr)
    return CLEAN


def entries_of(record: Any) -> Iterator[tuple[str, str]]:
    """The id and the TOML of an entry for each thing that is wrong."""
    from statecheck.case import Case

    for bucket in record.buckets:
        failure = Case.from_data(bucket.case).failure if bucket.case else None
        if failure is None:
            continue
        id_ = f"{(bucket.property_id or bucket.property).replace('/', '-')}-{bucket.id[:6]}"
        lines = [
            "[[known]]",
            f"id = {json.dumps(id_)}",
            f"title = {json.dumps(bucket.message[:200])}",
            f"properties = {json.dumps([bucket.property_id or bucket.property])}",
            'versions = ">=0"',
            'link = ""',
            'why = ""',
            "",
            "[[known.symptoms]]",
            f"kind = {json.dumps(failure.kind)}",
            f"function = {json.dumps(failure.function)}",
            f"place = {json.dumps(failure.part)}",
        ]
        if failure.exception:
            lines.append(f"exception = {json.dumps(failure.exception)}")
        yield id_, "\n".join(lines) + "\n"
