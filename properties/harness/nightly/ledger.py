"""What a campaign knows: of every property, of every bucket, of marks, kernels, faults and troubles."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.marks import Mark
from properties.harness.campaign import Status
from properties.harness.case import Case
from properties.harness.case.bucket import Bucket, bucket_of
from properties.harness.compilations import Compiled, Kernels, added
from properties.harness.nightly.engine import Explored, Found
from properties.harness.nightly.record import (
    BucketRecord,
    CorpusRecord,
    MarkRecord,
    Moment,
    PropertyRecord,
    Record,
)
from properties.harness.registry import Property

_ALIKE = 2
"""How often a failing example of another message may lead to one and the same case before it is taken for the same."""
_MOST_MOMENTS = 400
_MOST_WEIGHT = 4


@dataclass
class Standing:
    """What is known of one property; `fresh` counts the behaviours that were new in the round before."""

    tested: Property
    status: Status = Status.WAITING
    examples: int = 0
    seconds: float = 0.0
    detail: str = ""
    behaviours: set[int] = field(default_factory=set)
    earlier_behaviours: int = 0
    fresh: int = 0
    next_fresh: int = 0
    known: set[str] = field(default_factory=set)
    alike: Counter[str] = field(default_factory=Counter)
    deviations: set[str] = field(default_factory=set)
    deaths: int = 0

    @property
    def open(self) -> bool:
        return self.status not in (Status.ERROR, Status.NOT_APPLICABLE)

    @property
    def weight(self) -> int:
        """How many times as long as others it should get."""
        return 1 + min(_MOST_WEIGHT - 1, self.fresh)

    @property
    def rate(self) -> float:
        return self.examples / self.seconds if self.seconds > 0 else 0.0

    def turn(self) -> None:
        """A new round begins."""
        self.fresh, self.next_fresh = self.next_fresh, 0

    def record(self) -> PropertyRecord:
        tested = self.tested
        return PropertyRecord(
            tested.name,
            tested.sentence,
            tested.kind,
            self.status.value,
            self.examples,
            round(self.seconds, 3),
            self.earlier_behaviours + len(self.behaviours),
            tested.launches,
            self.detail,
        )


class Ledger:
    """All of it. `record` is what it comes to.

    Args:
        skipped: reasons by property that does not apply.
        expected: the marks that should be reached.
        first_seen: date and commit of buckets that nobody has met before.
    """

    def __init__(
        self,
        properties: Iterable[Property],
        skipped: dict[str, str],
        expected: Iterable[Mark],
        first_seen: dict[str, str],
    ) -> None:
        self.standings = {one.name: Standing(one) for one in properties}
        for name, reason in skipped.items():
            self.standings[name].status = Status.NOT_APPLICABLE
            self.standings[name].detail = reason
        self.buckets: dict[str, BucketRecord] = {}
        self.marks = {one.name: MarkRecord(one.name, one.topic) for one in expected}
        self.corpus: list[CorpusRecord] = []
        self.kernels: Kernels = {}
        self.faults: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.canary = ""
        self.series: list[Moment] = []
        self._first_seen = first_seen

    @property
    def examples(self) -> int:
        return sum(one.examples for one in self.standings.values())

    @property
    def behaviours(self) -> int:
        return sum(one.earlier_behaviours + len(one.behaviours) for one in self.standings.values())

    def trouble(self, sentence: str) -> None:
        if sentence not in self.troubles:
            self.troubles.append(sentence)

    def progress(self, name: str, examples: int) -> None:
        """So many more examples of a property; the canary's count for nothing."""
        if name in self.standings:
            self.standings[name].examples += examples

    def explored(self, message: Explored, at: float) -> None:
        """An exploration has ended; its examples have been counted meanwhile."""
        standing = self.standings[message.property]
        standing.seconds += message.seconds
        fresh = message.behaviours - standing.behaviours
        standing.behaviours |= fresh
        standing.next_fresh += len(fresh)
        standing.deviations.update(message.known_failures)
        self.kernels = added(self.kernels, message.compiled)
        self.faults.update(message.faults)
        for trouble in message.troubles:
            self.trouble(trouble)
        self._mark(message, at)
        if message.found is not None:
            self.find(message.found, at)
        elif message.status == "error":
            standing.status, standing.detail = Status.ERROR, message.detail
        elif standing.status is Status.WAITING and standing.examples:
            standing.status = Status.PASSED
        self._count(message.failing)

    def _mark(self, message: Explored, at: float) -> None:
        for name, examples in message.marks.items():
            mark = self.marks.get(name)
            if mark is not None:
                if mark.at is None:
                    mark.at, mark.property = round(at, 1), message.property
                mark.examples += examples

    def _count(self, failing: dict[str, int]) -> None:
        for bucket, examples in failing.items():
            if bucket in self.buckets:
                self.buckets[bucket].examples += examples

    def find(self, found: Found, at: float) -> None:
        """A case was found, and stands in the corpus."""
        case = Case.from_data(found.case)
        bucket = bucket_of(case)
        known = self.buckets.get(bucket.id)
        if known is None:
            self.buckets[bucket.id] = self._bucket(bucket, case, found, at)
        elif len(json.dumps(found.case)) < len(json.dumps(known.case)):
            known.case, known.message, known.report = found.case, case.message, found.report
        self.falsified(case.property_name, bucket.id, case.message)
        standing = self.standings.get(case.property_name)
        for other in found.buckets[1:2]:
            if standing is not None:
                standing.alike[other] += 1
                standing.known |= {other} if standing.alike[other] >= _ALIKE else set()

    def _bucket(self, bucket: Bucket, case: Case, found: Found, at: float) -> BucketRecord:
        return BucketRecord(
            bucket.id,
            bucket.property,
            bucket.rule,
            bucket.fault,
            bucket.subject,
            case.sentence,
            case.message,
            0,
            round(at, 1),
            found.report,
            found.corpus,
            self._since(found.corpus),
            found.note,
            found.case,
        )

    def _since(self, corpus: str) -> dict[str, str]:
        """When it was first seen, according to the corpus."""
        try:
            return dict(Case.load(Path(corpus)).first_seen) or dict(self._first_seen)
        except (OSError, ValueError):
            return dict(self._first_seen)

    def falsified(self, name: str, bucket: str, message: str) -> None:
        standing = self.standings.get(name)
        if standing is not None:
            standing.status, standing.detail = Status.FALSIFIED, message
            standing.known.add(bucket)

    def replayed(self, result: CorpusRecord, path: Path, case: dict[str, Any]) -> None:
        """A case of the corpus was replayed before everything else."""
        self.corpus.append(result)
        if result.verdict == "UNREADABLE":
            self.trouble(f"{path} of the corpus cannot be replayed: {result.message}")
        if result.verdict == "FAILED":
            found = Case.from_data(case)
            bucket = bucket_of(found)
            self.find(Found((bucket.id,), case, "", str(path), "Replayed from the corpus."), 0.0)

    def moment(self, at: float) -> None:
        """Note where the campaign stands; where there are many moments, those too close to others go."""
        self.series.append(Moment(round(at, 1), self.examples, self.behaviours, len(self.buckets)))
        if len(self.series) > _MOST_MOMENTS:
            self.series = _thinned(self.series)

    def conclude(self, declared: Iterable[str]) -> None:
        """Statuses at the end: a declared deviation that did not show is one that is out of date."""
        alone = frozenset(declared)
        for name, standing in self.standings.items():
            if standing.status is not Status.PASSED:
                continue
            if standing.deviations:
                standing.status, standing.detail = Status.KNOWN, ""
            elif name in alone:
                standing.status = Status.UNEXPECTED_PASS
                standing.detail = "declared as a known deviation, but no example failed"

    def fill(self, record: Record) -> Record:
        """Write what is known into the record."""
        record.properties = [one.record() for one in self.standings.values()]
        record.buckets = list(self.buckets.values())
        record.marks = list(self.marks.values())
        record.corpus, record.troubles, record.canary = self.corpus, self.troubles, self.canary
        record.kernels = {
            name: {"variants": sorted(map(list, one.variants)), "compilations": one.compilations}
            for name, one in self.kernels.items()
        }
        record.faults, record.series = dict(self.faults), self.series
        return record

    def resume(self, record: Record) -> None:
        """Go on from where another run of the same campaign ended."""
        for one in record.properties:
            standing = self.standings.get(one.name)
            if standing is not None and standing.status is not Status.NOT_APPLICABLE:
                standing.examples, standing.seconds = one.examples, one.seconds
                standing.earlier_behaviours = one.behaviours
                standing.status = _resumed(Status(one.status))
                standing.deviations |= {one.status} if one.status == Status.KNOWN.value else set()
        for bucket in record.buckets:
            self.buckets[bucket.id] = bucket
            self.falsified(bucket.property, bucket.id, bucket.message)
        self.marks |= {one.name: one for one in record.marks if one.name in self.marks}
        self.corpus, self.troubles, self.canary = record.corpus, record.troubles, record.canary
        self.faults, self.series = Counter(record.faults), record.series
        self.kernels = {
            name: Compiled(frozenset((one[0], one[1]) for one in told["variants"]), told["compilations"])
            for name, told in record.kernels.items()
        }


def _thinned(series: list[Moment]) -> list[Moment]:
    """The first, the last, and at most half as many as there may be between them, about equally far apart."""
    step = (series[-1].at - series[0].at) / (_MOST_MOMENTS / 2)
    kept = series[:1]
    for one in series[1:-1]:
        if one.at - kept[-1].at >= step > 0:
            kept.append(one)
    return [*kept, series[-1]]


def _resumed(status: Status) -> Status:
    """An error may have been of that time; whether deviations show is told at the end."""
    if status in (Status.KNOWN, Status.UNEXPECTED_PASS):
        return Status.PASSED
    return status if status in (Status.PASSED, Status.FALSIFIED) else Status.WAITING
