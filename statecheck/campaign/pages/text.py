"""A campaign as Markdown: a summary of some lines for the page of a CI job, or all that the page of the campaign has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from statecheck.campaign.pages.causes import CauseGroup, grouped
from statecheck.campaign.pages.summary import (
    UNDECIDED,
    WRONG,
    duration,
    evidence,
    facts,
    is_new,
    little_compared,
    replay_line,
    verdict,
)
from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import (
    BucketRecord,
    CampaignRecord,
    MarkRecord,
    PropertyRecord,
)
from statecheck.case import Case
from statecheck.case.bucket import first_wrong_call
from statecheck.execution.example import call_text
from statecheck.execution.verdict import Status
from statecheck.kernels import launch_counts
from statecheck.report.filled import filled
from statecheck.subject import is_engine
from statecheck.util.command_lines import command_line, near, script_line
from statecheck.util.markdown import code, escaped, without_emphasis
from statecheck.util.text import brief, counted, first_names

_MOST_LINES = 75
"""Of a summary."""


@dataclass(frozen=True)
class Most:
    """How many causes, and of everything else how many names or rows are shown; `whole`: with all tables."""

    causes: int
    names: int
    whole: bool


_TEMPLATE = Path(__file__).with_name("campaign.md.j2")
_FILTERS: dict[str, Callable[..., str]] = {
    "brief": brief,
    "code": code,
    "counted": counted,
    "duration": duration,
    "escaped": escaped,
    "first_names": first_names,
    "without_emphasis": without_emphasis,
    "thousands": "{:,}".format,
}
SUMMARY, PAGE = Most(10, 5, whole=False), Most(200, 1000, whole=True)


def markdown(record: CampaignRecord, directory: Path, most: Most = SUMMARY) -> str:
    """The campaign as Markdown, the verdict first; a summary has at most 75 lines.

    Args:
        directory: the campaign's, where the page is.
    """
    reports = directory.parent.parent
    text = filled(
        _TEMPLATE,
        _FILTERS,
        record=record,
        directory=directory,
        most=most,
        verdict=verdict(record),
        evidence=evidence(record),
        little_compared=little_compared(record),
        facts=facts(record),
        groups=in_order(record),
        standing=lambda group: _standing(group, record),
        commands=lambda bucket: commands(bucket, record, reports),
        smallest_input=smallest_input,
        report_link=lambda bucket: _report_link(bucket, directory),
        statuses=_statuses(record),
        launched=launch_counts.summary(dict(record.launched)),
        tables=_tables(record) if most.whole else [],
        not_applicable=_not_applicable(record) if most.whole else [],
        words=WORDS,
        page=near(directory / "report.html"),
    )
    assert most.whole or text.count("\n") <= _MOST_LINES, text
    return text


def in_order(record: CampaignRecord) -> list[CauseGroup]:
    """The causes, new ones first."""
    return sorted(
        grouped(record.buckets), key=lambda group: not any(is_new(one, record) for one in group.buckets)
    )


def _standing(group: CauseGroup, record: CampaignRecord) -> str:
    """Of several failures, that of a new one: "new", or "since 2026-11-02 (0123456789ab)"."""
    if any(is_new(bucket, record) for bucket in group.buckets):
        return "new"
    seen = (group.shown.first_seen.get(name, "") for name in ("date", "commit"))
    return f"since {' '.join(filter(None, seen)) or 'an unknown date'}"


def _report_link(bucket: BucketRecord, directory: Path) -> str:
    """Where its own report is on this machine, as a link from the page."""
    folder = report_folder(bucket, directory.parent.parent)
    if folder is None:
        return ""
    return f": [report]({quote(os.path.relpath(folder / 'report.html', directory))})"


def smallest_input(bucket: BucketRecord) -> str:
    """The call that goes wrong, as a port's own if it is one; all calls, where no single one does, or a scenario of an engine."""
    case = _case_of(bucket)
    if case is None:
        return ""
    number = first_wrong_call(case)
    whole = number is None or is_engine(case.calls[number].function)
    own = [*case.own_calls, *("" for _ in case.calls[len(case.own_calls) :])]
    shown = range(len(case.calls)) if number is None or whole else (number,)
    return "; ".join(own[one].replace("\n", "; ") or call_text(case.calls[one]) for one in shown)


def _case_of(bucket: BucketRecord) -> Case | None:
    try:
        return Case.from_data(bucket.case)
    except Exception:
        # A record may hold a case of another version, or none.
        return None


def report_folder(bucket: BucketRecord, reports: Path) -> Path | None:
    """The folder of a bucket's own report, as one reaches it from here; None where it is not on this machine."""
    if not bucket.report:
        return None
    places = (reports / bucket.report, Path(bucket.report))
    return next((place for place in places if (place / "case.json").is_file()), None)


def commands(bucket: BucketRecord, record: CampaignRecord, reports: Path) -> tuple[str, ...]:
    """What to type to run a bucket's case again: through the harness, and as a script."""
    found = []
    folder = report_folder(bucket, reports)
    if bucket.corpus:
        found.append(replay_line(bucket, record.plan.device))
    elif folder is not None:
        found.append(
            command_line("replay", folder / "case.json", subject=bucket.subject, device=record.plan.device)
        )
    if folder is not None and (folder / "repro.py").is_file():
        found.append(script_line(folder / "repro.py"))
    return tuple(found)


def _statuses(record: CampaignRecord) -> list[Sequence[str | int]]:
    """Status, and how many properties, examples and compared examples it has."""
    rows: list[Sequence[str | int]] = []
    for status, found in by_status(record.properties)[: len(Status)]:
        examples, compared = sum(one.examples for one in found), sum(one.compared for one in found)
        rows.append((status, len(found), examples, compared))
    return rows


def by_status(properties: Sequence[PropertyRecord]) -> list[tuple[str, list[PropertyRecord]]]:
    """Properties by status, what is wrong first."""
    order = [*WRONG, *UNDECIDED]
    order += [status.value for status in Status if status.value not in order]
    order += sorted({row.status for row in properties} - set(order))
    found = ((status, [row for row in properties if row.status == status]) for status in order)
    return [(status, some) for status, some in found if some]


WORDS = {
    "property": "a sentence that has to hold for every input",
    "example": "one drawn input of a property; *compared* if a result of the subject was compared with the rules",
    "outside, not offered, no evidence": "examples that ended before anything was compared: the subject's contract leaves the input out, "
    "the subject does not offer it, or the property is not about what it came to",
    "discarded, vacuous": "inputs that the property did not want; examples in which its condition was about nothing",
    "cause": "failures at the same call and place: probably one defect",
    "canary": "a defect that each campaign plants in a toy function, finds, shrinks and replays. If it does not, what passed is no proof",
    "mark, situation": "a case that the rules tell apart, and whether an example came to it",
    "corpus": "cases of earlier campaigns, which are replayed first",
}
"""What the words of the page mean."""
_HEADS = {
    "Properties": (
        "property, status, examples, compared, rows fields bytes, outside, not offered, no evidence, discarded, vacuous, examples/s, "
        "seconds, detail"
    ),
    "Models": "property, models, compared",
    "Known defects": "defect, standing, examples, properties, title, note",
    "Marks, the missed ones first": "situation, topic, examples, first after, by",
    "Launched kernels": "kernel, where, how, launches, because of",
    "Corpus": "file, verdict, message",
    "Where it ran": "what, value",
}
"""By the title of a table of the page: its columns."""


def _tables(record: CampaignRecord) -> list[tuple[str, list[str], list[Sequence[str | int]]]]:
    """Title, columns and rows of a table for each kind of thing that a record has."""
    rows: tuple[Iterable[Sequence[str | int]], ...] = (
        (
            _property(row)
            for status, found in by_status(record.properties)
            if status != Status.NOT_APPLICABLE.value
            for row in found
        ),
        (
            (
                row.id,
                row.share,
                ", ".join(f"{name} {count:,}" for name, count in sorted(row.counts.configurations.items())),
            )
            for row in record.properties
            if row.statuses
        ),
        (
            (one.id, one.standing, one.examples, len(one.properties), one.title, one.note)
            for one in record.known
        ),
        map(_mark, sorted(record.marks, key=lambda mark: (mark.examples > 0, mark.topic, mark.name))),
        ((how.kernel, how.place, how.how, times, how.why) for how, times in record.launched),
        ((replay.file, replay.verdict, replay.message) for replay in record.corpus),
        _surroundings(record),
    )
    return [
        (title, head.split(", "), list(found))
        for (title, head), found in zip(_HEADS.items(), rows, strict=True)
    ]


def _not_applicable(record: CampaignRecord) -> list[Sequence[str | int]]:
    """The reasons why properties are not applicable, how many these are, and which."""
    found: dict[str, list[str]] = {}
    for row in record.properties:
        if row.status == Status.NOT_APPLICABLE.value:
            found.setdefault(row.detail, []).append(row.id)
    ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(reason, len(names), ", ".join(names)) for reason, names in ordered]


def _mark(mark: MarkRecord) -> tuple[str | int, ...]:
    at = "" if mark.at is None else duration(mark.at)
    return mark.name, mark.topic, mark.examples, at, mark.property


def _property(row: PropertyRecord) -> tuple[str | int, ...]:
    counts = row.counts
    ended = (counts.outside.total(), counts.not_offered.total(), counts.no_evidence.total())
    numbers = (row.examples, row.compared, counts.parts, *ended, counts.discarded, max(0, counts.vacuous))
    detail = "; ".join(filter(None, (row.share, row.detail)))
    return (
        f"{row.id}: {row.sentence}",
        row.status,
        *numbers,
        f"{row.rate:,.1f}",
        f"{row.seconds:,.1f}",
        detail,
    )


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
