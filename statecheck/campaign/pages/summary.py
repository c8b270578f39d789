"""What a campaign came to, in words: the verdict, what to type, and a summary as Markdown for the page of a CI job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecheck.campaign.launched import coverage_of
from statecheck.campaign.pages.causes import CauseGroup, grouped, summed_up
from statecheck.campaign.plan import shard_name
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, PropertyRecord
from statecheck.campaign.shards.comparison import Comparison
from statecheck.campaign.terminal.results import bucket_in, replay_line
from statecheck.execution.exit_codes import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.execution.verdict import Status
from statecheck.kernels import coverage
from statecheck.text import brief
from statecheck.text.command_lines import command_line, option, script_line
from statecheck.text.markdown import code, escaped, table

WRONG = (Status.FALSIFIED.value, Status.UNEXPECTED_PASS.value)
UNDECIDED = (Status.ERROR.value, Status.NOT_FINISHED.value, Status.RUNNING.value)
CORPUS_ORDER = ("FAILED", "UNREADABLE", "LEFT OUT", "KNOWN", "NOT REPRODUCED", "NOT APPLICABLE", "FIXED")
_MOST_BUCKETS, _MOST_LINES, _MOST_NAMES = 12, 75, 5


def counted(number: int, one: str, many: str = "") -> str:
    """Such as "1 bucket" and "2 buckets"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Such as "8 h 1 min", "3 min 20 s" and "4.2 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


@dataclass(frozen=True)
class CampaignVerdict:
    """`word` in capital letters, and a sentence for each reason, the gravest first."""

    word: str
    reasons: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return self.word == "CLEAN"

    @property
    def exit_code(self) -> int:
        """Of every command that runs a campaign: 0 clean, 1 something is wrong, 2 it says too little to be clean."""
        return {"CLEAN": CLEAN, "NOT CLEAN": FALSIFIED}.get(self.word, INCOMPLETE)


def verdict(record: CampaignRecord, comparison: Comparison) -> CampaignVerdict:
    """What the campaign says of the subject, or why it says nothing."""
    wrong, untrusted = list(_wrong(record, comparison)), list(_untrusted(record))
    missing = list(_missing(record))
    words = {"NOT CLEAN": wrong, "NOT TO BE TRUSTED": untrusted, "INCOMPLETE": missing}
    word = next((word for word, reasons in words.items() if reasons), "CLEAN")
    return CampaignVerdict(word, (*wrong, *untrusted, *missing))


def _wrong(record: CampaignRecord, comparison: Comparison) -> Iterator[str]:
    if record.buckets:
        yield f"{summed_up(grouped(record.buckets))}: {_standings(comparison)}."
    met = {bucket.property for bucket in record.buckets}
    others = [row for row in record.properties if row.status in WRONG and row.name not in met]
    if others:
        listed = ", ".join(f"{row.name} ({row.status})" for row in others[:_MOST_NAMES])
        yield f"{counted(len(others), 'property', 'properties')} without a saved input: {listed}."
    stale = [defect.id for defect in record.known if defect.stale]
    if stale:
        yield f"{counted(len(stale), 'known defect no longer fails', 'known defects no longer fail')}: {', '.join(stale)}."
    ids = {bucket.id for bucket in record.buckets}
    failed = sum(replay.verdict == "FAILED" and bucket_in(replay.file) not in ids for replay in record.corpus)
    if failed:
        yield f"{counted(failed, 'case of the corpus fails', 'cases of the corpus fail')}."
    if record.fail_on_untested and (untested := _untested(record)):
        yield untested


def _untested(record: CampaignRecord) -> str:
    """How many applicable properties were tried and not tested, or, where that is a failure, not tested for any reason."""
    without = [row for row in record.properties if row.status == Status.NOT_TESTED.value]
    if not record.fail_on_untested:
        without = [row for row in without if not row.lacked_time]
    if not without:
        return ""
    listed = ", ".join(row.short for row in without[:_MOST_NAMES])
    more = f" and {len(without) - _MOST_NAMES:,} more" if len(without) > _MOST_NAMES else ""
    return f"{counted(len(without), 'applicable property was', 'applicable properties were')} not tested: {listed}{more}."


def _standings(comparison: Comparison) -> str:
    """How many failures are new, and which others are none of last night's."""
    before = comparison.before
    since = f" since commit {before.commit or 'unknown'} of {before.id}" if before is not None else ""
    parts = [f"{len(comparison.new):,} new{since}" if comparison.new else "none new"]
    parts += [counted(len(comparison.regressions), "regression")] if comparison.regressions else []
    parts += [f"{len(comparison.known):,} back again"] if comparison.known else []
    return ", ".join(parts)


def _untrusted(record: CampaignRecord) -> Iterator[str]:
    if not record.canary:
        yield "The canary was NOT FOUND: the property that must fail was not reported, so nothing that passed is proof."


def _missing(record: CampaignRecord) -> Iterator[str]:
    if not any(row.compared for row in record.properties):
        yield f"Nothing was compared: no property looked at anything that a function of {record.subject} returned."
    untested = _untested(record)
    if untested and not record.fail_on_untested:
        yield untested
    again = f"; {option('resume')} continues it" if record.seed is None else ""
    if record.interrupted:
        yield f"The campaign was interrupted{again}."
    elif not record.complete:
        yield f"The campaign has not used up its budget{again}."
    for status in UNDECIDED:
        found = sum(row.status == status for row in record.properties)
        if found:
            yield f"{counted(found, 'property', 'properties')}: {status}."
    unreadable = sum(replay.verdict == "UNREADABLE" for replay in record.corpus)
    if unreadable:
        yield f"{counted(unreadable, 'case')} of the corpus cannot be read."
    left_out = sum(replay.verdict == "LEFT OUT" for replay in record.corpus)
    if left_out:
        yield f"{counted(left_out, 'case')} of the corpus took too long and {'was' if left_out == 1 else 'were'} left out."


def facts(record: CampaignRecord) -> str:
    """What was run, in one line."""
    properties = counted(len(record.properties), "property", "properties")
    parts = [
        f"subject {record.subject}",
        f"device {record.device}",
        f"commit {record.commit or 'unknown'}",
        f"began {record.began or 'at an unknown time'}",
        f"{counted(record.examples, 'example')} of {properties} in {duration(record.seconds)}",
    ]
    parts += [f"only {record.only}"] if record.only else []
    parts += [f"shard {shard_name(record.shard, record.shards)}"] if record.shards > 1 else []
    return ", ".join(parts)


_GRAVEST_FIRST = ("new", "regression", "known", "still there")


def in_order(buckets: Sequence[BucketRecord], comparison: Comparison) -> list[CauseGroup]:
    """The causes: new ones first, then what was mended and fails again, what is back, and what has been there."""
    return sorted(grouped(buckets), key=lambda group: _gravity(gravest(group, comparison), comparison))


def gravest(group: CauseGroup, comparison: Comparison) -> BucketRecord:
    """The failure whose standing is that of the cause: of several, one that was not there before."""
    return min(group.buckets, key=lambda bucket: _gravity(bucket, comparison))


def _gravity(bucket: BucketRecord, comparison: Comparison) -> int:
    return _GRAVEST_FIRST.index(comparison.standings.get(bucket.id, "new"))


def standing(bucket: BucketRecord, comparison: Comparison) -> str:
    """Such as "new" and "still there, since 2026-11-02 (0123456789ab)"."""
    kind = comparison.standings.get(bucket.id, "new")
    since = comparison.since.get(bucket.id, "an unknown date")
    words = {
        "known": f"back again, first seen {since}",
        "regression": f"regression: a saved case fails, first seen {since}",
        "new": "new",
    }
    return words.get(kind, f"still there, since {since}")


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


def markdown(record: CampaignRecord, comparison: Comparison, directory: Path) -> str:
    """The campaign as Markdown of at most 75 lines, the verdict first.

    Args:
        directory: the campaign's, where the whole report is.
    """
    found = verdict(record, comparison)
    lines = [
        f"# {found.word}: campaign {escaped(record.id, 80)}",
        "",
        escaped(facts(record), 400),
        "",
    ]
    lines += [f"- {escaped(reason, 400)}" for reason in found.reasons]
    lines += [f"- Canary: {escaped(record.canary, 200)}"] if record.canary else []
    lines += [*_cause_lines(record, comparison, directory), *_trouble_lines(record)]
    lines += [*_comparison_lines(comparison), *_table(record), *_kernel_lines(record)]
    lines += ["", f"Everything else: {code(str(directory / 'report.html'))}"]
    assert len(lines) <= _MOST_LINES, len(lines)
    return "\n".join(lines) + "\n"


def _cause_lines(record: CampaignRecord, comparison: Comparison, directory: Path) -> Iterator[str]:
    groups = in_order(record.buckets, comparison)
    if groups:
        yield from ("", "## What is wrong", "")
    for group in groups[:_MOST_BUCKETS]:
        typed = next(iter(commands(group.shown, record, directory.parent.parent)), "")
        how = standing(gravest(group, comparison), comparison)
        head = f"**{escaped(group.title, 120)}** ({escaped(how, 80)}; {escaped(_broken(group), 240)}):"
        yield f"- {head} {escaped(group.shown.message, 240)}{' ' + code(typed) if typed else ''}"
    if len(groups) > _MOST_BUCKETS:
        yield f"- and {len(groups) - _MOST_BUCKETS:,} more"


def _broken(group: CauseGroup) -> str:
    """The properties that a cause breaks."""
    more = len(group.properties) - _MOST_NAMES
    return ", ".join(group.properties[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _trouble_lines(record: CampaignRecord) -> Iterator[str]:
    if record.troubles:
        yield from ("", f"## {counted(len(record.troubles), 'trouble')} of the campaign itself", "")
    yield from (f"- {escaped(trouble, 240)}" for trouble in record.troubles[:_MOST_NAMES])
    if record.remarks:
        yield from ("", "## About the subject", "")
    yield from (f"- {escaped(remark, 240)}" for remark in record.remarks[:_MOST_NAMES])


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    if comparison.before is None:
        return
    yield from ("", f"## Since {escaped(comparison.before.id, 80)}", "")
    yield f"- {len(comparison.new)} new, {len(comparison.regressions)} regressions, {len(comparison.still)} still there, {len(comparison.gone)} gone"
    if comparison.statuses:
        shown = (
            f"{change.name}: {change.before} → {change.now}" for change in comparison.statuses[:_MOST_NAMES]
        )
        yield f"- {counted(len(comparison.statuses), 'status', 'statuses')} changed: {escaped('; '.join(shown), 400)}"
    if comparison.marks_lost:
        yield f"- no longer reached: {escaped(', '.join(comparison.marks_lost), 400)}"
    if comparison.rate is not None:
        yield f"- examples/s: {comparison.rate.before:,.1f} → {comparison.rate.now:,.1f}"


def _kernel_lines(record: CampaignRecord) -> Iterator[str]:
    launched = coverage.summary(coverage_of(record.launched).launches)
    if launched:
        yield from ("", "## Kernels", "", f"- {escaped(launched, 400)}")
    missed = [(kernel.name, branch) for kernel in record.launched for branch in kernel.missed]
    existing = sum(len(kernel.branches) for kernel in record.launched)
    if existing:
        yield f"- {existing - len(missed):,} of {counted(existing, 'branch', 'branches')} taken"
    for name, one in missed[:_MOST_NAMES]:
        where = f"{one.file}:{one.line} {one.way} ({name})"
        yield f"- nothing reached {escaped(where, 240)}: {code(brief(one.text, 120))}"
    if len(missed) > _MOST_NAMES:
        yield f"- and {len(missed) - _MOST_NAMES:,} more lines that nothing reached"


def _table(record: CampaignRecord) -> Iterator[str]:
    rows = []
    for status, found in by_status(record.properties)[: len(Status)]:
        examples, compared = sum(one.examples for one in found), sum(one.compared for one in found)
        rows.append((escaped(status, 40), *(f"{count:,}" for count in (len(found), examples, compared))))
    yield from ("", *table(("properties", "number", "examples", "compared"), rows, numbers=(1, 2, 3)))


def by_status(properties: Sequence[PropertyRecord]) -> list[tuple[str, list[PropertyRecord]]]:
    """Properties by status, what is wrong first."""
    order = [
        *WRONG,
        *UNDECIDED,
        *(status.value for status in Status if status.value not in WRONG + UNDECIDED),
    ]
    order += sorted({row.status for row in properties} - set(order))
    found = ((status, [row for row in properties if row.status == status]) for status in order)
    return [(status, some) for status, some in found if some]
