"""State of a campaign while it runs: its record, which is saved as it is, and what else decides what comes next; and what to think of
declared defects at its end.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from statecheck.campaign.corpus import CorpusWriter
from statecheck.campaign.record import (
    BucketRecord,
    CampaignRecord,
    CorpusRecord,
    KnownRecord,
    MarkRecord,
    PropertyRecord,
    merge_rows,
)
from statecheck.campaign.tasks import Explored, Found, unit_name
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.execution.registry import Property
from statecheck.execution.verdict import Status, verdict_of
from statecheck.kernels.launch_counts import How
from statecheck.reference.situations import Situation
from statecheck.subject import KnownDefectMatcher, KnownDeviation
from statecheck.subject.known import TriedProperty, defect_status
from statecheck.subject.profile import DOCUMENTS, Profile

REPLAYED = "Replayed from the corpus."
# Shrinking from one bucket into another may be chance once; the second time, both are one defect with two messages.
_ALIKE = 2
# A busy machine cuts a first search short, and a longer one may still succeed. After three, what lies behind the bucket is worth more.
_TRIES_TO_SHRINK = 3
# The first may come from what an earlier example left in the process, the second happened in another one: it is an error.
_MOST_ERRORS = 3
# A model is verified once in a process. With other features, which are drawn, it may be another model, and offer something else.
_TRIES_UNVERIFIED, _TRIES_NOT_OFFERED = 9, 100


@dataclass
class PropertyState:
    """A property with a configuration of the subject, where the subject has several: `record` is saved, the other fields decide what comes next.

    Args:
        tested: the property.
        configuration: of the subject, such as a model of a library of sequences; "" for a subject that has none.
        reason: why the property does not apply, "" if it does.
        buckets: ids of the failures; `unshrunk` are those that were met and not shrunk, `met` counts how often each was met.
        error: the latest error of the harness; `errors` counts the explorations that ended in an exception.
        given_up: the property is not explored any more.
        unfinished: the example that was still running when the campaign's time was up.
        crash: how the latest worker of the property ended, with seed and traceback, until a call in an isolated process ends in a fault.
        crash_repeats: explorations in an isolated process that came to their end since then, without a fault.
        stale: why a declared defect of the property counts as gone, "" while none does.
        tried: an exploration of the property has ended.
        alike: by bucket, how many searches that met it ended in another bucket.
        deaths: workers that ended while they explored the property.
        hidden: a known defect is the sanitizer's finding, which ends an example and hides what is behind it.
        unwatched: the latest exploration began without the sanitizer.
        failing: an example has failed, and has no report yet.
        running: how many workers explore the property; `started` is when the first of them began.
    """

    tested: Property
    reason: str = ""
    buckets: set[str] = field(default_factory=set)
    unshrunk: set[str] = field(default_factory=set)
    met: Counter[str] = field(default_factory=Counter)
    stale: str = ""
    error: str = ""
    errors: int = 0
    given_up: bool = False
    unfinished: str = ""
    crash: str = ""
    crash_repeats: int = 0
    message: str = ""
    hidden: bool = False
    unwatched: bool = False
    tried: bool = False
    alike: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    running: int = 0
    failing: bool = False
    started: float | None = None
    configuration: str = ""

    def __post_init__(self) -> None:
        tested = self.tested
        self.record = PropertyRecord(tested.id, tested.sentence, tested.kind, "", launches=tested.launches)

    @property
    def id(self) -> str:
        """The property's id."""
        return self.tested.id

    @property
    def unit(self) -> str:
        """The name of the property and its configuration in a campaign."""
        return unit_name(self.tested.id, self.configuration)

    @property
    def open(self) -> bool:
        """Whether the property can be explored, and examples have not come to nothing so far."""
        return not self.given_up and not self.reason and not self.in_vain

    @property
    def in_vain(self) -> bool:
        """Whether so many examples came to nothing that others of this configuration will, too: a model that does not offer it, or is not verified."""
        tries = {Status.NOT_VERIFIED: _TRIES_UNVERIFIED, Status.NOT_APPLICABLE: _TRIES_NOT_OFFERED}
        return bool(self.configuration) and self.examples >= tries.get(self.status, self.examples + 1)

    @property
    def status(self) -> Status:
        """The verdict by now."""
        if self.reason:
            return Status.NOT_APPLICABLE
        if self.buckets:
            return Status.FALSIFIED
        if self.error or (self.crash and self.crash_repeats):
            return Status.ERROR
        if self.stale:
            return Status.UNEXPECTED_PASS
        if self.unfinished or self.crash:
            return Status.NOT_FINISHED
        return verdict_of(self.record.counts, known=bool(self.record.known)).status

    @property
    def detail(self) -> str:
        """Why it stands as it does, where that is no matter of course."""
        if self.reason:
            return self.reason
        crash = ""
        if self.crash:
            repeated = "not again with this seed" if self.crash_repeats else "not repeated for want of time"
            crash = f"{repeated}: {self.crash}"
        found = self.message if self.buckets else self.error or crash or self.stale or self.unfinished
        return found or verdict_of(self.record.counts, known=bool(self.record.known)).reason

    @property
    def known(self) -> frozenset[str]:
        """Buckets that explorations go past: those that have been shrunk."""
        return frozenset(self.buckets - self.unshrunk) | {
            other for other, times in self.alike.items() if times >= _ALIKE
        }

    @property
    def examples(self) -> int:
        return self.record.counts.examples

    @property
    def elapsed(self) -> float:
        """Seconds of workers' time, that of an exploration in hand among it."""
        return self.record.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)

    @property
    def rate(self) -> float:
        """Examples per second of a worker's time."""
        return self.examples / self.elapsed if self.elapsed > 0 else 0.0

    def next_sanitized(self) -> bool:
        """Whether the sanitizer is to watch the next exploration: every other one, where it hides what is behind its findings."""
        self.unwatched = self.hidden and not self.unwatched
        return not self.unwatched

    def begin(self) -> None:
        """A worker begins to explore it."""
        self.running += 1
        if self.started is None:
            self.started = time.monotonic()

    def end(self) -> None:
        """A worker explores it no more."""
        self.running = max(0, self.running - 1)
        self.failing = False
        if not self.running:
            self.started = None

    def explored(self, message: Explored, *, isolated: bool = False) -> None:
        """An exploration has ended; some of its examples have been counted meanwhile."""
        self.tried = True
        self.record.counts.add(message.counts)
        self.record.seconds = round(self.record.seconds + message.seconds, 3)
        self.record.known.update(message.known)
        self.hidden = self.hidden or message.hidden
        if message.faults:
            self.crash = ""
        elif self.crash and isolated and message.status != "error" and not message.late:
            self.crash_repeats += 1
        if message.status == "error":
            self.errors += 1
            # The cause of a first exception may be what an earlier example left in the worker's process: another worker tries it again.
            if self.errors > 1:
                self.error = message.detail
            self.given_up = self.errors >= _MOST_ERRORS

    def give_up(self, why: str) -> None:
        """Explore the property no more."""
        self.error, self.given_up = why, True

    def found(self, buckets: tuple[str, ...], message: str, report: str, *, shrunk: bool) -> None:
        """A case of the first of these buckets was found, on the way from examples of the others."""
        own, *others = buckets
        self.buckets.add(own)
        self.met[own] += 1
        # What could not be shrunk again and again must not hide what is behind it. Of a unit with a configuration nothing is shrunk
        # again: thirty models with one defect would take all time for it.
        given_up = self.met[own] >= _TRIES_TO_SHRINK or bool(self.configuration)
        (self.unshrunk.discard if shrunk or given_up else self.unshrunk.add)(own)
        if not self.message or shrunk:
            self.message, self.record.report = message, report or self.record.report
        for other in others[:1]:
            self.alike[other] += 1

    @property
    def failed(self) -> bool:
        """Whether a failure was found that no declaration covers."""
        return bool(self.buckets)

    def current(self) -> PropertyRecord:
        """The record, with the verdict by now."""
        self.record.status, self.record.detail = self.status.value, self.detail
        if self.configuration:
            self.record.statuses = {self.configuration: self.record.status}
            self.record.reasons = {self.configuration: self.detail} if self.detail else {}
        return self.record


class CampaignState:
    """State of a campaign while it runs; `record` is what is saved of it.

    Args:
        skipped: reasons by property that does not apply, or by unit.
        expected: gives the marks that should be reached. The sources of all rules are read for it, when the marks are asked for.
        first_seen: date and commit for buckets that were never met before.
        corpus_writer: takes cases that workers could not write.
        kept_before: ids of the buckets that were kept when the campaign began.
        configurations: by property, those of the subject that it is explored with, each for itself. `property_states` has one for each unit
            (see `tasks.unit_name`).
    """

    def __init__(
        self,
        record: CampaignRecord,
        properties: Iterable[Property],
        skipped: dict[str, str],
        expected: Callable[[], Iterable[Situation]],
        first_seen: dict[str, str],
        corpus_writer: CorpusWriter | None = None,
        kept_before: Collection[str] = (),
        configurations: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.record = record
        self.property_states: dict[str, PropertyState] = {}
        for row in properties:
            applies = row.id not in skipped
            for name in (configurations.get(row.id) if applies else None) or ("",):
                unit = unit_name(row.id, name)
                reason = skipped.get(row.id, "") or skipped.get(unit, "")
                self.property_states[unit] = PropertyState(row, reason, configuration=name)
        self.ids = frozenset(property_state.id for property_state in self.property_states.values())
        """Of the properties."""
        self.shrinking = 0.0
        """Seconds that workers have spent on inputs that had failed."""
        self.buckets: dict[str, BucketRecord] = {}
        self._expected = expected
        self._marked: dict[str, MarkRecord] = {}
        """Marks that were reached, and, once the marks are asked for, those that should be."""
        self.launched: Counter[How] = Counter()
        self.first_seen, self.corpus_writer = first_seen, corpus_writer
        self._kept_before = frozenset(kept_before)

    @cached_property
    def marks(self) -> dict[str, MarkRecord]:
        """The marks that should be reached."""
        found = {}
        for mark in self._expected():
            found[mark.name] = self._marked.setdefault(mark.name, MarkRecord(mark.name, ""))
            found[mark.name].topic = mark.topic
        return found

    @property
    def examples(self) -> int:
        return sum(property_state.examples for property_state in self.property_states.values())

    def warn(self, sentence: str) -> None:
        if sentence not in self.record.warnings:
            self.record.warnings.append(sentence)

    def property_state_of(self, case: Case) -> PropertyState | None:
        """The state of the property that a case belongs to; None where its property, or its configuration, was not chosen."""
        unit = unit_name(case.property_id, case.model)
        return self.property_states.get(unit) or self.property_states.get(case.property_id)

    def progress(self, unit: str, examples: int, compared: int = 0) -> None:
        """Add examples to a unit. Examples of the canary are not counted."""
        if unit in self.property_states:
            counts = self.property_states[unit].record.counts
            counts.examples += examples
            counts.compared += compared

    def note_failure(self, at: float) -> None:
        """An example has failed; only the first one of the campaign is noted."""
        self.record.first_failure = self.record.first_failure or {
            "examples": self.examples,
            "seconds": round(at, 2),
        }

    def explored(self, message: Explored, at: float, unit: str = "", *, isolated: bool = False) -> None:
        """An exploration has ended.

        Args:
            unit: that it was of; "" where the subject has no configurations.
        """
        self.property_states[unit or message.property].explored(message, isolated=isolated)
        self.shrinking += message.shrinking
        self.launched += message.launched
        for warning in message.warnings:
            self.warn(warning)
        for name, examples in message.marks.items():
            mark = self._marked.setdefault(name, MarkRecord(name, ""))
            if mark.at is None:
                mark.at, mark.property = round(at, 1), message.property
            mark.examples += examples
        for found in message.found:
            self.find(found, at)
        for bucket, examples in message.failing.items():
            if bucket in self.buckets:
                self.buckets[bucket].examples += examples

    def find(self, found: Found, at: float) -> None:
        """A case was found. Where the worker could not put it into the corpus, this process does."""
        case = Case.from_data(found.case)
        if not found.corpus:
            found = replace(found, corpus=self.keep(case))
        bucket = bucket_of(case)
        known = self.buckets.get(bucket.id)
        if known is None:
            self.buckets[bucket.id] = BucketRecord(
                id=bucket.id,
                property=bucket.property,
                rule=bucket.rule,
                fault=bucket.fault,
                subject=bucket.subject,
                sentence=case.sentence,
                message=case.message,
                examples=0,
                at=round(at, 1),
                report=found.report,
                corpus=found.corpus,
                first_seen=self._since(found.corpus),
                note=found.note,
                case=found.case,
                shrunk=found.shrunk,
                kept_before=bucket.id in self._kept_before,
            )
            self.record.buckets.append(self.buckets[bucket.id])
        elif (not found.shrunk, _size(found.case)) < (not known.shrunk, _size(known.case)):
            known.case, known.message, known.report = found.case, case.message, found.report
            known.note = found.note
        self.buckets[bucket.id].shrunk |= found.shrunk
        property_state = self.property_state_of(case)
        if property_state is not None:
            buckets = (bucket.id, *found.buckets[1:])
            property_state.found(buckets, case.message, found.report, shrunk=found.shrunk)

    def keep(self, case: Case) -> str:
        """Put a case into the corpus that no worker has put there; its file, "" where there is none."""
        path = self.corpus_writer.keep(case, self.first_seen) if self.corpus_writer is not None else ""
        if path:
            self.warn(f"a case was not on disk, and the coordinator has written it: {path}")
        return path

    def _since(self, corpus: str) -> dict[str, str]:
        """When it was first seen, according to the corpus."""
        try:
            return dict(Case.load(Path(corpus)).first_seen) or dict(self.first_seen)
        except (OSError, ValueError):
            return dict(self.first_seen)

    def replayed(self, result: CorpusRecord, path: Path, case: dict[str, Any]) -> None:
        """A case of the corpus was replayed before everything else."""
        self.record.corpus.append(result)
        if result.verdict == "UNREADABLE":
            self.warn(f"{path} of the corpus cannot be replayed: {result.message}")
        if result.verdict == "FAILED":
            self.find(Found((bucket_of(Case.from_data(case)).id,), case, "", str(path), REPLAYED), 0.0)

    def current(self) -> CampaignRecord:
        """The record, with the verdicts by now."""
        rows: dict[str, list[PropertyRecord]] = {}
        for property_state in self.property_states.values():
            rows.setdefault(property_state.id, []).append(property_state.current())
        self.record.properties = [merge_rows(row) for row in rows.values()]
        self.record.marks = list(self.marks.values())
        self.record.launched = sorted(self.launched.items())
        return self.record


def _size(case: dict[str, Any]) -> int:
    return len(json.dumps(case))


class KnownDefects:
    """The defects that a subject declares, in its order; `all` has their records by name.

    Args:
        selected: whether only some properties are tried, so that those of a pattern may be others.
        tolerates_fixed: a property whose declared defect no longer fails has passed.
        profile: the rules of the subject's release, for conditions.
    """

    def __init__(
        self,
        declared: Sequence[KnownDeviation],
        *,
        selected: bool = False,
        tolerates_fixed: bool = False,
        profile: Profile = DOCUMENTS,
    ) -> None:
        self.matcher = KnownDefectMatcher(declared, profile)
        self.all = {
            name: KnownRecord(name, defect.title, defect.link)
            for name, defect in self.matcher.declared.items()
        }
        self._selected, self._tolerates_fixed = selected, tolerates_fixed

    def count(self, rows: Mapping[str, PropertyState]) -> None:
        """Put the failing examples by property into the record of each."""
        for name, record in self.all.items():
            shown: Counter[str] = Counter()
            for row in rows.values():
                shown[row.id] += row.record.known[name]
            record.properties = {property_id: count for property_id, count in shown.items() if count}

    def conclude(self, rows: Mapping[str, PropertyState]) -> None:
        """Set the status of each defect at the end of a campaign."""
        self.count(rows)
        tried_here = {row.id for row in rows.values()}
        tried = [(declared, _tried(declared, rows)) for declared in self.matcher.declared.values()]
        for name, (declared, properties) in zip(self.matcher.declared, tried, strict=True):
            record = self.all[name]
            record.status, record.note = defect_status(
                declared.one_in,
                properties,
                showed=bool(record.properties),
                complete=not self._selected or set(declared.names) <= tried_here,
            )
            for row in rows.values():
                is_stale = record.stale and not self._tolerates_fixed
                if is_stale and declared.alone == row.id:
                    row.stale = f"declared as known, but no example failed: {declared.link}"


def _tried(declared: KnownDeviation, rows: Mapping[str, PropertyState]) -> list[TriedProperty]:
    """The results of each property that a declaration covers, of all configurations of the subject together."""
    together: dict[str, list[PropertyState]] = {}
    for row in rows.values():
        if declared.covers(row.id):
            together.setdefault(row.id, []).append(row)
    return [
        TriedProperty(
            any(row.status is not Status.NOT_APPLICABLE for row in same),
            sum(row.record.counts.compared for row in same),
            "; ".join(dict.fromkeys(row.detail for row in same if row.detail)),
        )
        for same in together.values()
    ]
