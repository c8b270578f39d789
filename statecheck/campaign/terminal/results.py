"""What a campaign prints at its end: failures by cause, known defects, and which properties were not tested, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import PurePath

from statecheck.campaign.pages.causes import CauseGroup, grouped
from statecheck.campaign.pages.summary import evidence, little_compared, replay_line, verdict
from statecheck.campaign.record import EFFECTS, BucketRecord, CampaignRecord, KnownRecord, bucket_in
from statecheck.execution.verdict import Status
from statecheck.util.command_lines import near
from statecheck.util.markdown import without_emphasis
from statecheck.util.text import first_names, said

Say = Callable[[str], None]
_MOST_NAMES = 8
_MOST_LACKS = 4


def print_failures(say: Say, record: CampaignRecord) -> None:
    """Every failure with its report, errors, and why properties do not apply or were not tested."""
    for group in grouped(record.buckets):
        _print_group(say, group, record.plan.device)
    wrong = (Status.ERROR.value, Status.UNEXPECTED_PASS.value, Status.NOT_FINISHED.value)
    for row in record.properties:
        if row.status in wrong:
            say(f"\n{said(row.status)}: {said(row.id)}: {said(row.sentence)}\n  {said(row.detail)}")
    listed = {bucket.id for bucket in record.buckets}
    for entry in record.corpus:
        # A case that fails again stands among the failures already.
        if entry.verdict in ("FAILED", "UNREADABLE", "LEFT OUT") and bucket_in(entry.file) not in listed:
            say(f"\nof the corpus, {entry.verdict}: {said(entry.file)}\n  {said(entry.message)}")
    for warning in record.warnings:
        say(f"warning: {said(warning)}")
    for status in (Status.NOT_APPLICABLE, Status.NOT_TESTED):
        for reason, names in _briefly(record, _by_reason(record, status)).items():
            say(f"{status.value}: {first_names(names, _MOST_NAMES)}: {said(reason)}")
    unchecked = sorted({place for row in record.properties for place in row.counts.unchecked})
    if unchecked:
        say(f"observed, and not compared with any rule: {said(first_names(unchecked, _MOST_NAMES))}")
    for one in record.properties:
        if one.share:
            say(f"{said(one.id)}: {said(one.share)}")
    for reason, names in _without_evidence(record).items():
        say(f"models that nothing applies to: {said(first_names(names, _MOST_NAMES))}: {said(reason)}")
    for one in record.properties:
        if one.status in (Status.PASSED.value, Status.KNOWN.value) and one.detail:
            say(f"{said(one.id)}: {said(one.detail)}")


def _without_evidence(record: CampaignRecord) -> dict[str, list[str]]:
    """The models that no property says anything about, by the reason, which is the same for each property."""
    found: dict[str, list[str]] = {}
    for model in dict.fromkeys(name for row in record.properties for name in row.statuses):
        rows = [row for row in record.properties if model in row.statuses]
        reasons = {row.reasons.get(model, "").removeprefix(f"{model}: ") for row in rows if row.share}
        if all(row.statuses[model] == Status.NOT_APPLICABLE.value for row in rows) and len(reasons) == 1:
            found.setdefault(reasons.pop(), []).append(model)
    return found


def _by_reason(record: CampaignRecord, status: Status) -> dict[str, list[str]]:
    """The properties of that status, by the reason; those that only lacked time have a line of their own."""
    found: dict[str, list[str]] = {}
    for row in record.properties:
        if row.status == status.value and not row.lacked_time:
            found.setdefault(row.detail, []).append(row.id)
    return found


def _briefly(record: CampaignRecord, found: dict[str, list[str]]) -> dict[str, list[str]]:
    """The same, with what a port of a few functions lacks as one reason: a screen of it would hide what was found."""
    about_lacks = {row.detail for row in record.properties if row.lacks}
    lacks = {reason: names for reason, names in found.items() if reason in about_lacks}
    if len(lacks) <= _MOST_LACKS:
        return found
    others = {reason: names for reason, names in found.items() if reason not in lacks}
    together = f"{record.plan.subject} does not offer what they call; the report has the functions of each"
    return others | {together: [name for names in lacks.values() for name in names]}


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


def _print_group(say: Say, group: CauseGroup, device: str) -> None:
    first, *others = group.buckets
    say(
        f"\n{Status.FALSIFIED.value}: {said(first.property)}: {said(first.sentence)}\n  {said(first.message)}"
    )
    _print_places(say, first, device, "  ")
    if others:
        say(f"  {len(others)} more at the same call and place, {said(group.title)}:")
    for one in others:
        say(f"    {said(one.property)}")
        _print_places(say, one, device, "      ")


def _print_places(say: Say, bucket: BucketRecord, device: str, margin: str) -> None:
    if bucket.report:
        say(f"{margin}report: {near(PurePath(bucket.report) / 'report.md')}")
    if bucket.corpus and not bucket.report:
        say(f"{margin}kept: {replay_line(bucket, device)}")
    if bucket.note:
        say(f"{margin}{said(without_emphasis(bucket.note))}")


def print_known(say: Say, defects: Iterable[KnownRecord]) -> None:
    """Print each known defect that was tried with its link, and the properties that it showed in."""
    for defect in (defect for defect in defects if defect.standing != "not tried"):
        title = f": {said(defect.title)}" if defect.title else ""
        say(f"\nknown defect {said(defect.id)}: {said(defect.standing)}{title}\n  {said(defect.link)}")
        if defect.properties:
            say(f"  {defect.examples:,} examples of {said(', '.join(sorted(defect.properties)))}")
        if defect.note:
            say(f"  {said(defect.note)}")


def print_verdict(say: Say, record: CampaignRecord, directory: PurePath) -> int:
    """Print the verdict with its reasons, and where the page is; the exit code.

    Args:
        directory: the campaign's.
    """
    outcome = verdict(record)
    canary = f"canary: {record.canary}" if record.canary else ""
    few = little_compared(record)
    warning = f"warning: {said(few)}" if few else ""
    reasons = (f"  {said(reason)}" for reason in outcome.reasons)
    first = (not_reached(record), without_effect(record), canary, warning)
    for line in (*first, outcome.word, *reasons, f"  {evidence(record)}"):
        if line:
            say(line)
    say(f"report: {near(directory / 'report.html')}")
    return outcome.exit_code
