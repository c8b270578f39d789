"""What a campaign knows of one property, with one configuration of the subject where it has several."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from statecheck.campaign.processes.tasks import Explored, unit_name
from statecheck.campaign.record_parts import PropertyRecord
from statecheck.execution.counts import Counts
from statecheck.execution.registry import Property
from statecheck.execution.verdict import Status, verdict_of

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
    """One property's progress.

    Args:
        tested: the property.
        configuration: of the subject, such as a model of a library of sequences; "" for a subject that has none.
        reason: why it does not apply, "" if it does.
        buckets: what was found wrong with it; `unshrunk` are those that were met only, `met` how often each was.
        deviations: failing examples of known defects, by the defect's name.
        error: what went wrong on the harness's side; `errors` counts the explorations that ended in an exception.
        given_up: it is not explored any more.
        unfinished: what was still running when the campaign's time was up.
        crash: how a worker ended that explored it, with seed and traceback, until a call in an isolated process ends in a fault.
        crash_repeats: explorations in an isolated process that came to their end since then, without a fault.
        remark: another sentence for the reader.
        hidden: a known defect is the sanitizer's finding, which ends an example and hides what is behind it.
        running: how many workers are at it.
    """

    tested: Property
    reason: str = ""
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    buckets: set[str] = field(default_factory=set)
    unshrunk: set[str] = field(default_factory=set)
    met: Counter[str] = field(default_factory=Counter)
    deviations: Counter[str] = field(default_factory=Counter)
    stale: str = ""
    error: str = ""
    errors: int = 0
    given_up: bool = False
    unfinished: str = ""
    crash: str = ""
    crash_repeats: int = 0
    message: str = ""
    report: str = ""
    remark: str = ""
    hidden: bool = False
    unwatched: bool = False
    tried: bool = False
    alike: Counter[str] = field(default_factory=Counter)
    deaths: int = 0
    running: int = 0
    started: float | None = None
    configuration: str = ""

    @property
    def name(self) -> str:
        return self.tested.name

    @property
    def unit(self) -> str:
        """Its name among those of a campaign."""
        return unit_name(self.tested.name, self.configuration)

    @property
    def shown(self) -> str:
        """What people read of it while it runs."""
        return unit_name(self.tested.id or self.tested.name, self.configuration)

    @property
    def open(self) -> bool:
        """Whether it can be explored, and has not been tried in vain."""
        return not self.given_up and not self.reason and not self.in_vain

    @property
    def in_vain(self) -> bool:
        """Whether so many examples came to nothing that others of this configuration will, too: a model that does not offer it, or is not verified."""
        tries = {Status.NOT_VERIFIED: _TRIES_UNVERIFIED, Status.NOT_APPLICABLE: _TRIES_NOT_OFFERED}
        return bool(self.configuration) and self.examples >= tries.get(self.status, self.examples + 1)

    @property
    def status(self) -> Status:
        """Its verdict by now."""
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
        return verdict_of(self.counts, known=bool(self.deviations)).status

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
        reason = found or verdict_of(self.counts, known=bool(self.deviations)).reason
        return "; ".join(filter(None, (reason, self.remark)))

    @property
    def known(self) -> frozenset[str]:
        """Buckets that explorations go past: those that have been shrunk."""
        return frozenset(self.buckets - self.unshrunk) | {
            other for other, times in self.alike.items() if times >= _ALIKE
        }

    @property
    def examples(self) -> int:
        return self.counts.examples

    @property
    def elapsed(self) -> float:
        """Seconds of workers' time, that of an exploration in hand among it."""
        return self.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)

    @property
    def rate(self) -> float:
        """Examples per second of a worker's time."""
        return self.examples / self.elapsed if self.elapsed > 0 else 0.0

    def next_sanitized(self) -> bool:
        """Whether the sanitizer is to watch the next exploration: every other one, where it hides what is behind its findings."""
        self.unwatched = self.hidden and not self.unwatched
        return not self.unwatched

    def begin(self) -> None:
        """A worker explores it."""
        self.running += 1
        if self.started is None:
            self.started = time.monotonic()

    def end(self) -> None:
        """A worker is through with it."""
        self.running = max(0, self.running - 1)
        if not self.running:
            self.started = None

    def explored(self, message: Explored, *, isolated: bool = False) -> None:
        """An exploration has ended; some of its examples have been counted meanwhile."""
        self.tried = True
        self.counts.add(message.counts)
        self.seconds += message.seconds
        self.deviations.update(message.known)
        self.hidden = self.hidden or message.hidden
        if message.faults:
            self.crash = ""
        elif self.crash and isolated and message.status != "error" and not message.late:
            self.crash_repeats += 1
        if message.status == "error":
            self._count_error(message.detail)

    def _count_error(self, detail: str) -> None:
        """A first exception may be what an earlier example left in the worker's process: another worker tries it again."""
        self.errors += 1
        if self.errors > 1:
            self.error = detail
        self.given_up = self.errors >= _MOST_ERRORS

    def give_up(self, why: str) -> None:
        """It is explored no more."""
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
            self.message, self.report = message, report or self.report
        for other in others[:1]:
            self.alike[other] += 1

    @property
    def failed(self) -> bool:
        """Whether something new was found wrong with it."""
        return bool(self.buckets)

    def record(self) -> PropertyRecord:
        """What is saved of it, without other configurations."""
        tested = self.tested
        counts: dict[str, Any] = {
            name: dict(count) if isinstance(count, Counter) else count
            for name, count in vars(self.counts).items()
        }
        return PropertyRecord(
            name=tested.name,
            sentence=tested.sentence,
            kind=tested.kind,
            status=self.status.value,
            seconds=round(self.seconds, 3),
            launches=tested.launches,
            detail=self.detail,
            known=dict(self.deviations),
            report=self.report,
            id=tested.id,
            **counts,
        )


_WORST_FIRST = (
    Status.FALSIFIED,
    Status.ERROR,
    Status.UNEXPECTED_PASS,
    Status.NOT_FINISHED,
    Status.KNOWN,
    Status.PASSED,
    Status.NOT_TESTED,
    Status.NOT_VERIFIED,
    Status.NOT_APPLICABLE,
)


def record_of(property_states: Sequence[PropertyState]) -> PropertyRecord:
    """What is saved of a property: of its only standing, or of those of all configurations together."""
    if len(property_states) == 1 and not property_states[0].configuration:
        return property_states[0].record()
    worst = min(property_states, key=lambda one: _WORST_FIRST.index(one.status))
    together, counts = worst.record(), Counts()
    for one in property_states:
        counts.add(one.counts)
    for name, count in vars(counts).items():
        setattr(together, name, dict(count) if isinstance(count, Counter) else count)
    together.seconds = round(sum(one.seconds for one in property_states), 3)
    deviations: Counter[str] = sum((one.deviations for one in property_states), Counter())
    together.known = dict(deviations)
    together.statuses = {one.configuration: one.status.value for one in property_states}
    together.reasons = {one.configuration: one.detail for one in property_states if one.detail}
    return together
