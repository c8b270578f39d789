"""Writes what people read of a campaign: one page, a summary, and the same for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecheck.campaign.pages import charts, summary
from statecheck.campaign.pages.causes import CauseGroup
from statecheck.campaign.pages.junit import junit
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, PropertyRecord
from statecheck.campaign.shards.comparison import Comparison, compared
from statecheck.case import Case
from statecheck.case.cause import first_wrong_call
from statecheck.data.files import write_whole
from statecheck.execution.example import spell
from statecheck.report.markdown import report_text, subject_root
from statecheck.report.page import report_body
from statecheck.report.picture import svg
from statecheck.report.repro.script import repro_script
from statecheck.report.scenario_timeline import timeline_of
from statecheck.subject import is_engine, load
from statecheck.text import brief, visible
from statecheck.text.command_lines import command_line
from statecheck.text.html import POLICY, templates

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "report.html"
_TEMPLATES = Path(__file__).with_name("templates")
_MOST_IN_FULL, _MOST_ON_TOP, _MOST_ROWS = 200, 20, 1000
_ROOM, _LARGEST = 9_000_000, 1_500_000
"""Bytes for the reports of all buckets, and of one of them."""
_TITLE = re.compile(r"\A\s*<h1>.*?</h1>\s*", re.DOTALL)
_COMMANDS = re.compile(r"\n## Run it again\n.*?(?=\n## Environment\n)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\n## Environment\n.*\Z", re.DOTALL)


@dataclass(frozen=True)
class BucketView:
    """A bucket as the page shows it.

    Args:
        standing: whether it is new, or since when it is there.
        input: its smallest input in one line.
        typed: commands that run it again.
        body: its report as HTML, "" where there is none.
        script: its repro.py.
        raw: the case as JSON, where it cannot be shown in a better way.
        replay: the command that runs it, saved as case.json.
        problem: why something is missing, in a sentence.
    """

    bucket: BucketRecord
    standing: str
    typed: tuple[str, ...]
    input: str = ""
    body: str = ""
    script: str = ""
    raw: str = ""
    replay: str = ""
    problem: str = ""

    @property
    def size(self) -> int:
        return sum(len(text.encode(errors="replace")) for text in (self.body, self.script, self.raw))


@dataclass(frozen=True)
class ReportedCause:
    """A cause as the page shows it: its failures, the one with the smallest input first, and the gravest of their standings."""

    group: CauseGroup
    views: tuple[BucketView, ...]
    standing: str

    @property
    def shown(self) -> BucketView:
        return self.views[0]

    @property
    def in_full(self) -> bool:
        return any(view.body or view.problem for view in self.views)


def write_reports(record: CampaignRecord, directory: Path, previous: CampaignRecord | None = None) -> Path:
    """Write campaign.json, report.html, summary.md and junit.xml, each whole or not at all; returns report.html's path.

    What could not be written, a full disk for one, keeps none of the others from being written. `record.troubles` gets
    a sentence.

    Args:
        directory: reports/campaigns/<id>; reports of buckets are looked for in reports/.
        previous: the campaign to compare with, see `comparison.find_previous`.
    """
    known = len(record.troubles)
    _attempt(record, directory / FILE, record.save)
    for name, content in _contents(record, directory, previous).items():
        _attempt(record, directory / name, partial(_save, content))
    if len(record.troubles) > known:
        with suppress(OSError):
            record.save(directory / FILE)
    return directory / PAGE


def _contents(
    record: CampaignRecord, directory: Path, previous: CampaignRecord | None
) -> dict[str, Callable[[], str]]:
    def comparison() -> Comparison:
        return compared(record, previous)

    return {
        PAGE: lambda: page(record, comparison(), directory),
        "summary.md": lambda: summary.markdown(record, comparison(), directory),
        "junit.xml": lambda: junit(record),
    }


def _attempt(record: CampaignRecord, path: Path, write: Callable[[Path], object]) -> None:
    """Whatever goes wrong with one file must not cost the night's others."""
    try:
        write(path)
    except Exception as error:
        # The error itself may name a temporary file, which is another one each time.
        why = error.strerror if isinstance(error, OSError) else error
        message = f"{path} was not written: {type(error).__name__}: {why}"
        record.troubles += [message] if message not in record.troubles else []


def _save(content: Callable[[], str], path: Path) -> None:
    """At every moment `path` holds a whole text or the one before."""
    text = content()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text, durable=False)


def page(record: CampaignRecord, comparison: Comparison, directory: Path) -> str:
    """The campaign as one HTML page that loads nothing and is well-formed XML too."""
    template = _environment().get_template("report.html.j2")
    moments = charts.thinned(record.series)
    return template.render(
        policy=POLICY,
        record=record,
        comparison=comparison,
        directory=str(directory),
        verdict=summary.verdict(record, comparison),
        facts=summary.facts(record),
        entries=_entries(record, comparison, directory),
        on_top=_MOST_ON_TOP,
        in_full=_MOST_IN_FULL,
        charts=charts.charts(record.series),
        moments=list(zip(moments, charts.rates(moments), strict=True)),
        properties=summary.by_status(record.properties),
        totals=_totals(record),
        marks=sorted(record.marks, key=lambda mark: (mark.examples > 0, mark.topic, mark.name)),
        corpus=_corpus(record),
        unreached=[(kernel, branch) for kernel in record.launched for branch in kernel.missed],
        most_rows=_MOST_ROWS,
    )


def _environment() -> Environment:
    found = templates(_TEMPLATES)
    found.filters |= {"brief": brief, "duration": summary.duration, "counted": summary.counted}
    return found


def _totals(record: CampaignRecord) -> list[tuple[str, int, float]]:
    """Examples, and examples per second of wall time, of properties that launch kernels and of all."""
    launching = [row for row in record.properties if row.launches]
    rows: list[tuple[str, Sequence[PropertyRecord]]] = [
        ("properties that launch kernels", launching),
        ("all properties", record.properties),
    ]
    seconds = record.seconds
    sums = ((name, sum(one.examples for one in found)) for name, found in rows)
    return [(name, examples, examples / seconds if seconds > 0 else 0.0) for name, examples in sums]


def _corpus(record: CampaignRecord) -> list[tuple[str, list[Any]]]:
    order = {verdict: place for place, verdict in enumerate(summary.CORPUS_ORDER)}
    kinds = sorted({replay.verdict for replay in record.corpus}, key=lambda kind: order.get(kind, -1))
    return [(kind, [replay for replay in record.corpus if replay.verdict == kind]) for kind in kinds]


def _entries(record: CampaignRecord, comparison: Comparison, directory: Path) -> list[ReportedCause]:
    """Every cause, new ones first; only so many failures in full that a browser can open the page."""
    entries, number, room = [], 0, _ROOM
    for group in summary.in_order(record.buckets, comparison):
        views = []
        for bucket in group.buckets:
            view = _view(bucket, record, comparison, directory, in_full=number < _MOST_IN_FULL and room > 0)
            view = view if view.size <= min(room, _LARGEST) else _without_report(view)
            number, room = number + 1, room - view.size
            views.append(view)
        gravest = summary.gravest(group, comparison)
        entries.append(ReportedCause(group, tuple(views), summary.standing(gravest, comparison)))
    return entries


def _view(
    bucket: BucketRecord, record: CampaignRecord, comparison: Comparison, directory: Path, *, in_full: bool
) -> BucketView:
    typed = summary.commands(bucket, record, directory.parent.parent)
    replay = command_line("replay", Path("case.json"), subject=bucket.subject, device=record.device)
    view = BucketView(bucket, summary.standing(bucket, comparison), typed, replay=replay)
    if not in_full:
        return view
    if not bucket.case:
        return replace(view, problem="There is no input to show: the record has none.")
    try:
        return _rendered(view, Case.from_data(bucket.case), record, directory)
    except Exception as error:  # The case may be of another version, or no case.
        why = brief(f"{type(error).__name__}: {error}", 300)
        return replace(view, raw=_raw(bucket), problem=f"The case cannot be shown in words: {why}")


def _raw(bucket: BucketRecord) -> str:
    return json.dumps(bucket.case, indent=1)


def _without_report(view: BucketView) -> BucketView:
    problem = f"Its report is too large for this page; its folder: {view.bucket.report or 'none'}"
    return replace(view, body="", script="", raw="", problem=problem)


def _rendered(view: BucketView, case: Case, record: CampaignRecord, directory: Path) -> BucketView:
    folder = summary.report_folder(view.bucket, directory.parent.parent)
    # A folder of the same property may hold the report of a larger input.
    written = folder if folder is not None and f"-{case.digest}" in folder.name else None
    root = _root(case.subject) if case.subject == record.subject else None
    timeline = timeline_of(case)
    shown = replace(
        view,
        input=_input(case),
        body=_body(_text(case, written), svg(timeline) if timeline is not None else ""),
        script=_read(written, "repro.py") or repro_script(case, written or directory, root),
    )
    if view.typed:
        return shown
    return replace(shown, raw=_raw(view.bucket), problem="No file of its input is on this machine.")


def _input(case: Case) -> str:
    """The call that goes wrong, as a port's own if it is one; all calls, where no single one does, or a scenario of an engine."""
    number = first_wrong_call(case)
    whole = number is None or is_engine(case.calls[number].function)
    own = [*case.own_calls, *("" for _ in case.calls[len(case.own_calls) :])]
    shown = range(len(case.calls)) if number is None or whole else (number,)
    return "; ".join(own[one].replace("\n", "; ") or spell(case.calls[one]) for one in shown)


@cache
def _root(subject: str) -> Path | None:
    """A subject that cannot be imported here was importable where the case was found."""
    try:
        return subject_root(load(subject).module)
    except Exception:
        return None


def _read(folder: Path | None, name: str) -> str:
    """A file of a report, "" where it cannot be read."""
    if folder is not None:
        with suppress(OSError):
            return (folder / name).read_text(encoding="utf-8", errors="replace")
    return ""


def _text(case: Case, folder: Path | None) -> str:
    """The report of the case, without what the page says itself: commands and environment.

    It is read where it was written before: to write one means to ask for the GPU's name and the revision again.
    """
    text = _read(folder, "report.md") or report_text(case, folder or Path())
    return visible(_ENVIRONMENT.sub("", _COMMANDS.sub("", text)))


def _body(text: str, picture: str) -> str:
    """The report as a part of the page, its headings below the page's own."""
    return _TITLE.sub("", report_body(text, picture)).replace("<h2>", "<h4>").replace("</h2>", "</h4>")
