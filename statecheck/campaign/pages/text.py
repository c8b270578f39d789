"""A campaign as Markdown: a summary of some lines for the page of a CI job, or all that the page of the campaign has."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from statecheck.campaign.launched import KernelRecord, coverage_of
from statecheck.campaign.pages.causes import CauseGroup, grouped
from statecheck.campaign.pages.summary import (
    UNDECIDED,
    WRONG,
    counted,
    duration,
    facts,
    first_names,
    is_new,
    replay_line,
    verdict,
)
from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, MarkRecord, PropertyRecord
from statecheck.case import Case
from statecheck.case.cause import first_wrong_call
from statecheck.execution.example import spell
from statecheck.execution.verdict import Status
from statecheck.kernels import coverage
from statecheck.subject import is_engine
from statecheck.text import brief
from statecheck.text.command_lines import command_line, script_line
from statecheck.text.markdown import code, escaped, table

_MOST_LINES = 75
"""Of a summary."""


@dataclass(frozen=True)
class Most:
    """How many causes, and of everything else how many names or rows are shown; `whole`: with all tables."""

    causes: int
    names: int
    whole: bool


SUMMARY, PAGE = Most(12, 5, whole=False), Most(200, 1000, whole=True)


def markdown(record: CampaignRecord, directory: Path, most: Most = SUMMARY) -> str:
    """The campaign as Markdown, the verdict first; a summary has at most 75 lines.

    Args:
        directory: the campaign's, where the page is.
    """
    found = verdict(record)
    lines = [f"# {found.word}: campaign {escaped(record.id, 80)}", "", escaped(facts(record), 400), ""]
    lines += [f"- {escaped(reason, 400)}" for reason in found.reasons]
    lines += [f"- Canary: {escaped(record.canary, 200)}"] if record.canary else []
    lines += _cause_lines(record, directory, most)
    lines += _listed("Troubles of the campaign itself", record.troubles, most)
    lines += _listed("About the subject", record.remarks, most)
    lines += [*_statuses(record), *_kernel_lines(record, most)]
    if most.whole:
        lines += _tables(record, most)
        lines += ["", f"All of it: {code(str(directory / 'campaign.json'))}"]
    else:
        lines += ["", f"Everything else: {code(str(directory / 'report.html'))}"]
        assert len(lines) <= _MOST_LINES, len(lines)
    return "\n".join(lines) + "\n"


def in_order(record: CampaignRecord) -> list[CauseGroup]:
    """The causes, new ones first."""
    return sorted(
        grouped(record.buckets), key=lambda group: not any(is_new(one, record) for one in group.buckets)
    )


def _standing(group: CauseGroup, record: CampaignRecord) -> str:
    """Of several failures, that of a new one: "new", or "since 2026-11-02 (0123456789ab)"."""
    if any(is_new(bucket, record) for bucket in group.buckets):
        return "new"
    return f"since {' '.join(group.shown.first_seen.values()) or 'an unknown date'}"


def _cause_lines(record: CampaignRecord, directory: Path, most: Most) -> Iterator[str]:
    groups = in_order(record)
    if groups:
        yield from ("", "## What is wrong", "")
    for group in groups[: most.causes]:
        typed = next(iter(commands(group.shown, record, directory.parent.parent)), "")
        how, properties = _standing(group, record), escaped(first_names(group.properties, SUMMARY.names), 400)
        head = f"**{escaped(group.title, 120)}** ({escaped(how, 80)}; {properties}):"
        yield f"- {head} {escaped(group.shown.message, 240)}{' ' + code(typed) if typed else ''}"
        if most.whole:
            yield from _details(group, record, directory)
    yield from _more(len(groups), most.causes)


def _details(group: CauseGroup, record: CampaignRecord, directory: Path) -> Iterator[str]:
    """The smallest input, and each failure with its report, as lists below the cause."""
    if shown := smallest_input(group.shown):
        yield f"  - smallest input: {code(brief(shown, 300))}"
    for bucket in group.buckets:
        what = f"{escaped(bucket.named, 200)}, {counted(bucket.examples, 'failing example')}"
        yield f"  - {what}, the first after {duration(bucket.at)}{_report_link(bucket, directory)}"
        notes = (bucket.message if bucket is not group.shown else "", bucket.fault, bucket.note.strip("*"))
        yield from (f"    - {escaped(note, 400)}" for note in notes if note)
        yield from (f"    - {code(typed)}" for typed in commands(bucket, record, directory.parent.parent))


def _report_link(bucket: BucketRecord, directory: Path) -> str:
    """Where its own report is on this machine, as a link from the page."""
    folder = report_folder(bucket, directory.parent.parent)
    if folder is None:
        return ""
    return f": [report]({quote(os.path.relpath(folder / 'report.html', directory))})"


def smallest_input(bucket: BucketRecord) -> str:
    """The call that goes wrong, as a port's own if it is one; all calls, where no single one does, or a scenario of an engine."""
    try:
        case = Case.from_data(bucket.case)
    except Exception:
        # A record may hold a case of another version, or none.
        return ""
    number = first_wrong_call(case)
    whole = number is None or is_engine(case.calls[number].function)
    own = [*case.own_calls, *("" for _ in case.calls[len(case.own_calls) :])]
    shown = range(len(case.calls)) if number is None or whole else (number,)
    return "; ".join(own[one].replace("\n", "; ") or spell(case.calls[one]) for one in shown)


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
        found.append(replay_line(bucket, record.device))
    elif folder is not None:
        case = folder / "case.json"
        found.append(command_line("replay", case, subject=bucket.subject, device=record.device))
    if folder is not None and (folder / "repro.py").is_file():
        found.append(script_line(folder / "repro.py", bucket.subject))
    return tuple(found)


def _listed(title: str, sentences: Sequence[str], most: Most) -> Iterator[str]:
    if sentences:
        yield from ("", f"## {title} ({len(sentences):,})", "")
    yield from (f"- {escaped(sentence, 240)}" for sentence in sentences[: most.names])


def _more(number: int, shown: int) -> Iterator[str]:
    if number > shown:
        yield f"- and {number - shown:,} more"


def _kernel_lines(record: CampaignRecord, most: Most) -> Iterator[str]:
    launched = coverage.summary(coverage_of(record.launched).launches)
    if launched:
        yield from ("", "## Kernels", "", f"- {escaped(launched, 400)}")
    missed = [(kernel.name, branch) for kernel in record.launched for branch in kernel.missed]
    existing = sum(len(kernel.branches) for kernel in record.launched)
    if existing:
        yield f"- {existing - len(missed):,} of {counted(existing, 'branch', 'branches')} taken"
    for name, one in missed[: most.names]:
        where = f"{one.file}:{one.line} {one.way} ({name})"
        yield f"- nothing reached {escaped(where, 240)}: {code(brief(one.text, 120))}"
    yield from _more(len(missed), most.names)


def _statuses(record: CampaignRecord) -> Iterator[str]:
    rows = []
    for status, found in by_status(record.properties)[: len(Status)]:
        examples, compared = sum(one.examples for one in found), sum(one.compared for one in found)
        rows.append((status, len(found), examples, compared))
    yield from _table("", ("properties", "number", "examples", "compared"), rows, SUMMARY.names * 3)


def by_status(properties: Sequence[PropertyRecord]) -> list[tuple[str, list[PropertyRecord]]]:
    """Properties by status, what is wrong first."""
    order = [*WRONG, *UNDECIDED]
    order += [status.value for status in Status if status.value not in order]
    order += sorted({row.status for row in properties} - set(order))
    found = ((status, [row for row in properties if row.status == status]) for status in order)
    return [(status, some) for status, some in found if some]


_HEADS = {
    "Properties": (
        "property, status, examples, compared, rows fields bytes, outside, not offered, no evidence, discarded, vacuous, examples/s, "
        "seconds, detail"
    ),
    "Known defects": "defect, standing, examples, properties, title, remark",
    "Marks, the missed ones first": "situation, topic, examples, first after, by",
    "Launched kernels": "kernel, where, executed, interpreted, because of, branches taken",
    "Compiled kernels": "kernel, variants, compilations",
    "Corpus": "file, verdict, message",
    "Where it ran": "what, value",
}
"""By the title of a table of the page: its columns."""


def _tables(record: CampaignRecord, most: Most) -> Iterator[str]:
    """A table for each kind of thing that the record has, without those of which there is none."""
    rows: tuple[Iterable[Sequence[str | int]], ...] = (
        (_property(row) for _, found in by_status(record.properties) for row in found),
        (
            (one.id, one.standing, one.examples, len(one.properties), one.title, one.remark)
            for one in record.known
        ),
        map(_mark, sorted(record.marks, key=lambda mark: (mark.examples > 0, mark.topic, mark.name))),
        map(_kernel, record.launched),
        ((name, len(one.variants), one.compilations) for name, one in record.kernels.items()),
        ((replay.file, replay.verdict, replay.message) for replay in record.corpus),
        _surroundings(record),
    )
    for (title, head), found in zip(_HEADS.items(), rows, strict=True):
        yield from _table(title, head.split(", "), found, most.names)


def _mark(mark: MarkRecord) -> tuple[str | int, ...]:
    at = "" if mark.at is None else duration(mark.at)
    return mark.name, mark.topic, mark.examples, at, mark.property


def _property(row: PropertyRecord) -> tuple[str | int, ...]:
    counts = row.counts
    ended = (counts.outside.total(), counts.not_offered.total(), counts.no_evidence.total())
    numbers = (row.examples, row.compared, row.parts, *ended, row.discarded, max(0, counts.vacuous))
    return row.named, row.status, *numbers, f"{row.rate:,.1f}", f"{row.seconds:,.1f}", row.detail


def _kernel(kernel: KernelRecord) -> tuple[str | int, ...]:
    interpreted = kernel.interpreted
    reasons = "; ".join(launch.why for launch in interpreted)
    known = bool(kernel.executed or kernel.branches)
    taken = f"{kernel.taken:,} of {len(kernel.branches):,}" if known else "not known"
    times = sum(launch.times for launch in interpreted)
    return kernel.name, kernel.place, kernel.executed, times, reasons, taken


def _surroundings(record: CampaignRecord) -> Iterator[tuple[str, str]]:
    for index, name in record.gpus.items():
        yield (index if index == "cpu" else f"GPU {index}"), name
    yield "workers", str(record.engines)
    yield from record.environment.items()
    yield "shard", shard_name(record.shard, record.shards)
    yield "rounds", f"{record.rounds}, from round {record.first_round} on"
    yield "seed", "from commit, shard, round and property" if record.seed is None else str(record.seed)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str | int]], most: int) -> Iterator[str]:
    """A table below its heading, of at most so many rows; whole numbers stand to the right."""
    every = list(rows)
    if not every:
        return
    yield from ("", f"## {title}", "") if title else ("",)
    numbers = [column for column, cell in enumerate(every[0]) if isinstance(cell, int)]
    cells = (
        [f"{cell:,}" if isinstance(cell, int) else escaped(cell, 300) for cell in row] for row in every[:most]
    )
    yield from table(head, cells, numbers=numbers)
    if len(every) > most:
        yield from ("", f"{len(every) - most:,} more are in campaign.json.")
