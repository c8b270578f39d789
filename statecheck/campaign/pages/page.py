"""Writes what people read of a campaign, a page and a summary, and the same for machines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from statecheck.campaign.pages.text import PAGE, markdown
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.report.page import report_page
from statecheck.util.files import write_whole

_PAGE = "report.html"


def write_reports(record: CampaignRecord, directory: Path) -> Path:
    """Write campaign.json, report.html and summary.md, each whole or not at all; returns report.html's path.

    What could not be written, a full disk for one, keeps none of the others from being written. `record.warnings` gets
    a sentence.

    Args:
        directory: reports/campaigns/<id>; reports of buckets are looked for in reports/.
    """
    known = len(record.warnings)
    _attempt(record, directory / FILE, record.save)
    contents = {
        _PAGE: lambda: page(record, directory),
        "summary.md": lambda: markdown(record, directory),
    }
    for name, content in contents.items():
        _attempt(record, directory / name, partial(_save, content))
    if len(record.warnings) > known:
        with suppress(OSError):
            record.save(directory / FILE)
    return directory / _PAGE


def _attempt(record: CampaignRecord, path: Path, write: Callable[[Path], object]) -> None:
    """Whatever goes wrong with one file must not cost the night's others."""
    try:
        write(path)
    except Exception as error:
        # The error itself may name a temporary file, which is another one each time.
        why = error.strerror if isinstance(error, OSError) else error
        message = f"{path} was not written: {type(error).__name__}: {why}"
        record.warnings += [message] if message not in record.warnings else []


def _save(content: Callable[[], str], path: Path) -> None:
    """At every moment `path` holds a whole text or the one before."""
    text = content()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text, durable=False)


def page(record: CampaignRecord, directory: Path) -> str:
    """The campaign as one HTML page that loads nothing and is well-formed XML too."""
    return report_page(markdown(record, directory, PAGE))
