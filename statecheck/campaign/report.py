"""What is said of a campaign, in one list of sections, and the files of it: a page, a summary for the page of a CI job, JUnit XML, the record.

The terminal prints the same sections (`display`).
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import EFFECTS, FILE, BucketRecord, CampaignRecord, PropertyRecord, bucket_in
from statecheck.campaign.summary import (
    UNDECIDED,
    WRONG,
    Cause,
    case_of,
    duration,
    evidence,
    facts,
    in_order,
    known_since,
    little_compared,
    replay_line,
    verdict,
)
from statecheck.execution.verdict import Status
from statecheck.kernels import launch_counts
from statecheck.report.failure import TYPED, Entry, failure_entry
from statecheck.report.render import TEMPLATES, entry_lines, entry_markdown
from statecheck.util.command_lines import command_line, near, script_line
from statecheck.util.files import write_whole
from statecheck.util.markdown import POLICY, code, escaped, table, templates
from statecheck.util.text import brief, counted, first_names, visible

_PAGE = "report.html"
_MOST_CAUSES, _MOST_NAMES, _MOST_ENTRIES = 10, 8, 5
"""Of a summary: causes, names in a line, and entries of any other section."""
_MOST_OF_A_PAGE = 200
_LONGEST_TITLE, _LONGEST_TEXT = 300, 4000
_KINDS = {
    Status.FALSIFIED.value: "failure",
    Status.UNEXPECTED_PASS.value: "failure",
    Status.ERROR.value: "error",
    Status.NOT_FINISHED.value: "error",
    Status.NOT_VERIFIED.value: "error",
    Status.NOT_APPLICABLE.value: "skipped",
    Status.NOT_TESTED.value: "skipped",
}
"""The child that the test of a property with that status has in JUnit XML; the tests of others passed."""


@dataclass(frozen=True)
class EntrySection:
    """A title, and entries below it, of which `more` are left out; their kind, such as FALSIFIED, stands before each where there is no title."""

    title: str
    kind: str
    entries: tuple[Entry, ...]
    more: int = 0


def sections(record: CampaignRecord, causes: int | None = None) -> list[EntrySection]:
    """Everything that is to be read of a campaign beside its verdict and its tables, what is wrong first.

    Args:
        causes: how many are shown; None for all.
    """
    groups = in_order(record)
    shown = tuple(group_entry(group, record) for group in groups[:causes])
    wrong = EntrySection("What is wrong", Status.FALSIFIED.value, shown, len(groups) - len(shown))
    found = (
        ("Errors", "", _errors(record)),
        ("Corpus", "corpus", _of_corpus(record)),
        ("Known defects", "known defect", _known(record)),
        ("Warnings of the campaign itself", "warning", map(Entry, record.warnings)),
        ("Notes", "", _left_out(record)),
    )
    every = [wrong, *(EntrySection(title, kind, tuple(entries)) for title, kind, entries in found)]
    return [section for section in every if section.entries]


def bucket_entry(bucket: BucketRecord, record: CampaignRecord) -> Entry:
    """What is said of a failure, with its report, or the command that replays it."""
    case = case_of(bucket)
    if case is not None:
        entry = failure_entry(case, record.release, bucket.note).brief
    else:
        rows = (("should hold", f"{bucket.sentence} ({bucket.property})"), ("confirmed", bucket.note))
        entry = Entry(f"{bucket.subject}: {bucket.message}", tuple(row for row in rows if row[1]))
    folder = report_folder(bucket, Path(record.plan.reports))
    place = [("report", near(folder / "report.md"))] if folder is not None else []
    again = commands(bucket, record)[:1]
    return replace(entry, rows=(*entry.rows, *place, *(("run it again", line) for line in again)))


def group_entry(group: Cause, record: CampaignRecord) -> Entry:
    """The failure with the smallest input, and which other properties fail for the same cause, see `statecheck.case.bucket.Cause`."""
    first, *others = group
    case = case_of(first)
    shared = (
        "with the same model and features"
        if case is not None and case.model
        else "at the same call and place"
    )
    entry = bucket_entry(first, record)
    names = list(dict.fromkeys(bucket.property for bucket in others))
    also = [("also fails", f"{first_names(names, _MOST_NAMES)}, {shared}")] if names else []
    return replace(entry, rows=(*entry.rows, *also))


def report_folder(bucket: BucketRecord, reports: Path) -> Path | None:
    """The folder of a bucket's own report, as one reaches it from here; None where it is not on this machine."""
    if not bucket.report:
        return None
    places = (reports / bucket.report, Path(bucket.report))
    return next((place for place in places if (place / "case.json").is_file()), None)


def commands(bucket: BucketRecord, record: CampaignRecord) -> tuple[str, ...]:
    """What to type to run a bucket's case again: through the harness, and as a script."""
    found, device = [], record.plan.device
    folder = report_folder(bucket, Path(record.plan.reports))
    if bucket.corpus:
        found.append(replay_line(bucket, device))
    elif folder is not None:
        found.append(command_line("replay", folder / "case.json", subject=bucket.subject, device=device))
    if folder is not None and (folder / "repro.py").is_file():
        found.append(script_line(folder / "repro.py"))
    return tuple(found)


def _errors(record: CampaignRecord) -> Iterator[Entry]:
    wrong = (Status.ERROR.value, Status.UNEXPECTED_PASS.value, Status.NOT_FINISHED.value)
    for row in record.properties:
        if row.status in wrong:
            yield Entry(f"{row.status}: {row.id}: {row.sentence}", (("why", row.detail),))


def _of_corpus(record: CampaignRecord) -> Iterator[Entry]:
    listed = {bucket.id for bucket in record.buckets}
    for entry in record.corpus:
        # A case that fails again stands among the failures already.
        if entry.verdict in ("FAILED", "UNREADABLE", "LEFT OUT") and bucket_in(entry.file) not in listed:
            yield Entry(f"{entry.verdict}: {entry.file}", (("why", entry.message),))


def _known(record: CampaignRecord) -> Iterator[Entry]:
    """Each known defect that was tried with its link, and the properties that it showed in."""
    for defect in record.known:
        if defect.status != "not tried":
            matched = f"{counted(defect.examples, 'example')} of {', '.join(sorted(defect.properties))}"
            rows = (
                ("link", defect.link),
                ("matched", matched if defect.properties else ""),
                ("note", defect.note),
            )
            line = ": ".join(filter(None, (defect.id, defect.status, defect.title)))
            yield Entry(line, tuple(row for row in rows if row[1]))


def _left_out(record: CampaignRecord) -> Iterator[Entry]:
    """What was not tested or not compared, and why: a line for each reason."""
    for status in (Status.NOT_APPLICABLE, Status.NOT_TESTED):
        rows = [row for row in record.properties if row.status == status.value and not row.lacked_time]
        lacks = [row for row in rows if row.lacks]
        if lacks:
            # A port of a few functions does not know the others.
            what = f"{counted(len(lacks), 'property', 'properties')}"
            yield Entry(f"{status.value}: {what} of functions that {record.plan.subject} does not offer")
        for reason, names in _by_reason(row for row in rows if not row.lacks).items():
            yield Entry(f"{status.value}: {first_names(names, _MOST_NAMES)}: {reason}")
    unchecked = sorted({place for row in record.properties for place in row.counts.unchecked})
    if unchecked:
        yield Entry(f"observed, and not compared with any rule: {first_names(unchecked, _MOST_NAMES)}")
    shares: dict[str, list[str]] = {}
    for row in record.properties:
        shares.setdefault(row.share, []).append(row.id)
    for share, names in shares.items():
        if share:
            yield Entry(f"{', '.join(names)}: {share}")
    for reason, names in _without_evidence(record).items():
        yield Entry(f"models that nothing applies to: {first_names(names, _MOST_NAMES)}: {reason}")
    for row in record.properties:
        if row.status in (Status.PASSED.value, Status.KNOWN.value) and row.detail:
            yield Entry(f"{row.id}: {row.detail}")
    launched = launch_counts.summary(dict(record.launched))
    few = little_compared(record)
    for line in (
        f"kernels: {launched}" if launched else "",
        not_reached(record),
        without_effect(record),
        f"canary: {record.canary}" if record.canary else "",
        f"warning: {few}" if few else "",
    ):
        if line:
            yield Entry(line)


def _by_reason(rows: Iterable[PropertyRecord]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.detail, []).append(row.id)
    return found


def _without_evidence(record: CampaignRecord) -> dict[str, list[str]]:
    """The models that no property says anything about, by the reason, which is the same for each property."""
    found: dict[str, list[str]] = {}
    for model in dict.fromkeys(name for row in record.properties for name in row.statuses):
        rows = [row for row in record.properties if model in row.statuses]
        reasons = {row.reasons.get(model, "").removeprefix(f"{model}: ") for row in rows if row.share}
        if all(row.statuses[model] == Status.NOT_APPLICABLE.value for row in rows) and len(reasons) == 1:
            found.setdefault(reasons.pop(), []).append(model)
    return found


def not_reached(record: CampaignRecord) -> str:
    """A line that names the properties that there was no time for, and the budget that would do; "" without any."""
    names = [row.id for row in record.properties if row.lacked_time]
    pairs = [status for row in record.properties if row.share for status in row.statuses.values()]
    untested = pairs.count(Status.NOT_TESTED.value)
    if not names and not untested:
        return ""
    line = f"not tested for want of time: {first_names(names, _MOST_NAMES)}" if names else ""
    if untested:
        waiting = f"{untested:,} of {len(pairs):,} pairs of a property and a model were not tested"
        line = "; ".join(filter(None, (line, waiting)))
    enough = budget_that_would_do(record)
    return f"{line}; --budget {enough}s would do" if enough else line


def without_effect(record: CampaignRecord) -> str:
    """A line that names what features of a port of sequences never did; "" where each did it."""
    found = [mark for mark in record.marks if mark.topic == EFFECTS]
    names = [mark.name for mark in found if not mark.examples]
    return (
        f"not tested: {len(names)} of {len(found)} effects of features: {'; '.join(names)}" if names else ""
    )


def budget_that_would_do(record: CampaignRecord) -> int:
    """Seconds in which a campaign as fast as this one comes to every property, in tens; 0 where nothing can be said."""
    if record.plan.budget is None:
        return 0
    applicable = [row for row in record.properties if row.status != Status.NOT_APPLICABLE.value]
    units = [status for row in applicable for status in row.statuses.values() or (row.lacked_time,)]
    reached = sum(unit not in (True, Status.NOT_TESTED.value) for unit in units)
    # What comes last costs most.
    wanted = 1.5 * record.plan.budget * len(units) / max(1, reached)
    return 10 * math.ceil(max(wanted, record.plan.budget + 10) / 10)


def by_status(properties: Sequence[PropertyRecord]) -> list[PropertyRecord]:
    """Properties, what is wrong first."""
    order = [*WRONG, *UNDECIDED]
    order += [status.value for status in Status if status.value not in order]
    return sorted(properties, key=lambda row: order.index(row.status) if row.status in order else len(order))


# Markdown and JUnit.


def markdown(record: CampaignRecord, directory: Path) -> str:
    """A summary as Markdown, the verdict first, for the page of a CI job.

    Args:
        directory: the campaign's, where the page is.
    """
    outcome = verdict(record)
    lines = [f"# {outcome.word}: campaign {escaped(record.plan.id, 80)}", "", escaped(facts(record), 400), ""]
    lines += [f"- {escaped(reason, 400)}" for reason in (*outcome.reasons, evidence(record))]
    for section in sections(record, _MOST_CAUSES):
        shown = section.entries[: _MOST_CAUSES if section.kind == Status.FALSIFIED.value else _MOST_ENTRIES]
        lines += ["", f"## {section.title}", ""]
        for entry in shown:
            lines += entry_markdown(entry.without("expected", "actual", "not compared", "report"), 240)
        more = section.more + len(section.entries) - len(shown)
        lines += [f"- and {more:,} more"] if more else []
    rows: dict[str, list[PropertyRecord]] = {}
    for row in by_status(record.properties):
        rows.setdefault(row.status, []).append(row)
    counts = (
        (status, len(some), sum(row.examples for row in some), sum(row.compared for row in some))
        for status, some in rows.items()
    )
    cells = ([escaped(status, 80), *(f"{number:,}" for number in numbers)] for status, *numbers in counts)
    lines += [
        "",
        *table(("status", "properties", "examples", "compared"), [*cells][: len(Status)], numbers=(1, 2, 3)),
    ]
    return "\n".join([*lines, "", f"Everything else: {code(near(directory / _PAGE))}", ""])


def junit(record: CampaignRecord) -> str:
    """A conformance run as JUnit XML, which CI systems show as a list of tests: one for each property, and for each model that cannot be
    verified. A falsified property has a failure for each bucket.
    """
    root = Element("testsuite", name="statecheck", timestamp=record.began, time=f"{record.seconds:.3f}")
    for row in record.properties:
        test = SubElement(root, "testcase", classname="statecheck", name=row.id, time=f"{row.seconds:.3f}")
        found = [bucket_entry(bucket, record) for bucket in record.buckets if bucket.property == row.id]
        kind = _KINDS.get(row.status)
        for entry in found or ([Entry(row.detail)] if kind is not None else []):
            _child(test, kind or "failure", entry, row.status)
    for model, why in record.unverified.items():
        test = SubElement(root, "testcase", classname="statecheck", name=f"model {model}", time="0.000")
        _child(test, "error", Entry(why), Status.NOT_VERIFIED.value)
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        root.set(name, str(sum(test.find(kind) is not None for test in root)))
    root.set("tests", str(len(root)))
    indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + tostring(root, encoding="unicode") + "\n"


def _child(test: Element, kind: str, entry: Entry, status: str) -> None:
    child = SubElement(test, kind, message=brief(entry.headline, _LONGEST_TITLE), type=status)
    child.text = visible("\n".join(entry_lines(entry)))[:_LONGEST_TEXT]


# Files.


def write_reports(record: CampaignRecord, directory: Path) -> Path:
    """Write campaign.json, report.html and summary.md, each whole or not at all; returns report.html's path.

    What could not be written, a full disk for one, keeps none of the others from being written. `record.warnings` gets
    a sentence.

    Args:
        directory: reports/campaigns/<id>.
    """
    known = len(record.warnings)
    _attempt(record, directory / FILE, record.save)
    contents = {_PAGE: lambda: page(record, directory), "summary.md": lambda: markdown(record, directory)}
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


# The page.


def page(record: CampaignRecord, directory: Path) -> str:
    """The campaign as one HTML page that loads nothing and is well-formed XML too; its one script is named by its hash."""
    found = templates(TEMPLATES)
    script = Path(TEMPLATES, "campaign.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    groups = in_order(record)
    reports = Path(record.plan.reports)

    def link(bucket: BucketRecord) -> str:
        """Where its own report is on this machine, from the page; "" where it is not."""
        folder = report_folder(bucket, reports)
        return quote(os.path.relpath(folder / _PAGE, directory)) if folder is not None else ""

    causes: list[dict[str, Any]] = [
        {
            "entry": bucket_entry(group[0], record).without("report", "run it again"),
            "since": known_since(group, record),
            "buckets": [
                (bucket, bucket_entry(bucket, record), link(bucket), commands(bucket, record))
                for bucket in group
            ],
        }
        for group in groups[:_MOST_OF_A_PAGE]
    ]
    text = found.get_template("campaign.html.j2").render(
        title=f"{verdict(record).word}: campaign {record.plan.id}",
        policy=f"{POLICY}; script-src 'sha256-{digest}'",
        script=script,
        record=record,
        verdict=verdict(record),
        evidence=evidence(record),
        facts=facts(record),
        causes=causes,
        more=len(groups) - len(causes),
        sections=sections(record, 0),
        properties=by_status(record.properties),
        statuses=dict.fromkeys(row.status for row in by_status(record.properties)),
        tables=_tables(record),
        typed=TYPED,
        record_file=near(directory / FILE),
    )
    return f"{text}\n"


def _tables(record: CampaignRecord) -> list[tuple[str, tuple[str, ...], list[Sequence[str | int]]]]:
    """Title, columns and rows of each table that is folded on the page."""
    marks = sorted(record.marks, key=lambda mark: (mark.examples > 0, mark.topic, mark.name))
    found: list[tuple[str, tuple[str, ...], list[Sequence[str | int]]]] = [
        (
            "Situations, the missed ones first",
            ("situation", "topic", "examples", "first after", "by"),
            [
                (
                    mark.name,
                    mark.topic,
                    mark.examples,
                    "" if mark.at is None else duration(mark.at),
                    mark.property,
                )
                for mark in marks
            ],
        ),
        (
            "Launched kernels",
            ("kernel", "where", "how", "launches", "because of"),
            [(how.kernel, how.place, how.how, times, how.why) for how, times in record.launched],
        ),
        (
            "Corpus",
            ("file", "verdict", "message"),
            [(replay.file, replay.verdict, replay.message) for replay in record.corpus],
        ),
        ("Where it ran", ("what", "value"), list(_surroundings(record))),
    ]
    return [section for section in found if section[2]]


def _surroundings(record: CampaignRecord) -> Iterator[tuple[str, str]]:
    for index, name in record.devices.items():
        yield (index if index == "cpu" else f"GPU {index}"), name
    yield "workers", str(record.plan.engines)
    yield from record.environment.items()
    yield "shard", shard_name(record.plan.shard, record.plan.shards)
    yield "rounds", f"{record.rounds}, from round {record.plan.first_round} on"
    yield (
        "seed",
        "from commit, shard, round and property" if record.plan.seed is None else str(record.plan.seed),
    )
