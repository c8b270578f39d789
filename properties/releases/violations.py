"""Which violations of a long scenario count: what a request goes on with after a wrong state is the same violation.

Each is one of the request that came to a wrong state first, or of a block that no request explains. What such a request
reads, says and publishes from then on, and requests that continue from what it has published, are not counted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from statecheck.case import Case, Failure
from statecheck.case.failure import raised_instead, stated
from statecheck.case.values import Call, Raised, Record, Returned, Value, call, record
from statecheck.subject import KnownDeviation, Subject

STEP = "LiveEngine.step"
_LATEST = 6
"""Steps before the broken one that declarations are asked about."""
_OF_BLOCKS = ("published", "owned", "free", "left")
"""Laws that are about what stands after a step, whichever request's it is."""


@dataclass(frozen=True)
class LiveViolation:
    """A law that a step broke: the step's number, whose it is, the finding in words, and the declared defect that it is one of."""

    step: int
    law: str
    request: str
    message: str
    defect: str


@dataclass(eq=False)
class Violations:
    """Follows an engine's steps.

    Args:
        subject: which declares defects.
        property_id: the property of scenarios that the defects are declared for.
        settings: of the engine.
    """

    subject: Subject
    property_id: str
    settings: Record
    found: list[LiveViolation] = field(default_factory=list)
    tainted: set[str] = field(default_factory=set)
    """Requests that have come to a wrong state."""
    _wrong: set[tuple[int, int]] = field(default_factory=set)
    """Group and block of what stands in the cache and is wrong."""
    _message: set[tuple[str, object]] = field(default_factory=set)
    _begun: dict[str, int] = field(default_factory=dict)
    _latest: deque[Record] = field(default_factory=lambda: deque(maxlen=_LATEST))
    """Of the steps before, without what was broken."""

    def look(self, number: int, step: Record) -> list[LiveViolation]:
        """The new violations of a step."""
        seen = dict(step.fields)
        for name, _, *_ in (owner for owner in seen["tables"] if (owner[1], owner[3]) in self._wrong):
            self.tainted.add(name)
        for name, decided in seen["scheduled"].items():
            self._begun[name] = self._begun.get(name, 0) + bool(decided["begins"])
        new = list(self._new(number, seen))
        self._wrong = {
            (about["group"], about["block"]) for law, _, _, about in seen["findings"] if law == "published"
        }
        self.found += new
        self._latest.append(record("LiveStep", scheduled=seen["scheduled"], findings=()))
        return new

    def raised(self, number: int, step: Call, outcome: Raised) -> LiveViolation:
        """The one that a call which raised is."""
        failure = raised_instead(outcome, function=step.function, call=0, shown=step.function)
        case = self._case(failure, (step, outcome))
        message = f"{step.function} raises {outcome.exception}: {outcome.message}"
        violation = LiveViolation(number, "raised", "", message, self._defect(case))
        self.found.append(violation)
        return violation

    def _new(self, number: int, seen: Mapping[str, Any]) -> Iterator[LiveViolation]:
        for law, observed, wanted, about in seen["findings"]:
            request = self._whose(law, seen, about)
            if request in self.tainted or not self._is_first(law, about):
                continue
            if request:
                self.tainted.add(request)
            failure = stated(observed, wanted, place=f"result.broken.{law}", function=STEP)
            only = record("LiveStep", scheduled=seen["scheduled"], findings=((law, observed, wanted, about),))
            defect = self._defect(self._case(failure, (call(STEP, turns={}), Returned(only)), request))
            yield LiveViolation(number, law, request, f"{observed}, but {wanted}", defect)

    def _whose(self, law: str, seen: Mapping[str, Any], about: Mapping[str, Any]) -> str:
        """The request that it is of: one of a block is of those who have the block, a wrong one of them first."""
        place = about.get("group"), about.get("block")
        having = [name for name, group, _, block in seen["tables"] if (group, block) == place]
        wrong = [name for name in (*having, str(about.get("request", ""))) if name in self.tainted]
        if wrong:
            return wrong[0]
        return str(about.get("request", "")) or (having[0] if having and law not in _OF_BLOCKS else "")

    def _is_first(self, law: str, about: Mapping[str, Any]) -> bool:
        if law not in _OF_BLOCKS:
            return True
        key = law, (about.get("group"), about.get("block"), about.get("request"))
        if law == "published" and (about.get("group"), about.get("block")) in self._wrong:
            return False
        first = law == "published" or key not in self._message
        self._message.add(key)
        return first

    def _case(self, failure: Failure, last: tuple[Call, Returned | Raised], request: str = "") -> Case:
        """The case that declarations are asked about: the engine, how often the request has begun, the latest steps, and the one at hand."""
        made = call("LiveEngine", settings=self.settings, bind="engine")
        begun: Value = {request: {"begins": True}}
        shown = (*self._latest, *([last[1].value] if isinstance(last[1], Returned) else []))
        times = self._begun.get(request, 0) - sum(_begins(step, request) for step in shown)
        before = (*[record("LiveStep", scheduled=begun, findings=())] * times, *self._latest)
        steps = (made, *[call(STEP, turns={})] * len(before), last[0])
        actual = (Returned(None), *map(Returned, before), last[1])
        placed = replace(failure, call=len(steps) - 1)
        return Case(
            sentence="",
            subject=self.subject.name,
            steps=steps,
            expected=tuple(Returned(None) for _ in steps),
            actual=actual,
            failure=placed,
            property_id=self.property_id,
        )

    def _defect(self, case: Case) -> str:
        known: KnownDeviation | None = self.subject.known(case)
        return known.id or known.link if known is not None else ""


def _begins(step: Any, request: str) -> bool:
    return bool(dict(step["scheduled"]).get(request, {}).get("begins"))
