"""Whether declared defects are narrow: a declaration that most failures match would hide new defects behind an old one.

What a subject can fail in is counted in combinations of property, function, kind of failure and place in the result:

- the properties are those that apply to the subject, and the functions those that the property calls, with the methods of an
  engine; a property of a state machine also fails in no single call, which is the function "";
- the kinds and places of a function are "value" in its result, in each documented field of it and in what its arguments hold;
  "refusal" in the call or the result; "memory", and "race" where it launches kernels, in an argument; "fault" and "hang" in the call.

Exceptions and conditions narrow a declaration further, by as much as its author says. They are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

from oracle.lifecycle.broken_laws import BrokenLaws
from statecheck.case.failure import without_indices
from statecheck.execution.declared_names import require_names
from statecheck.execution.registry import launches, load_properties
from statecheck.execution.selection import applicable, follows_requests
from statecheck.reference import answered, parameters, rule_for
from statecheck.subject import KnownDeviation, Subject
from statecheck.subject.deviation import any_matches

if TYPE_CHECKING:
    from statecheck.execution.registry import Property

_FEW_FUNCTIONS = 2
_OF_A_SCENARIO = ("read", "stored", "written", "output", "first token", "progress")
"""What a property of scenarios compares, see `Symptom.place`."""


class Combination(NamedTuple):
    """One way to fail."""

    property: str
    function: str
    kind: str
    place: str


class Combinations:
    """All ways in which properties can fail, by the property's name."""

    def __init__(self, tested: Iterable[Property]) -> None:
        self._of = {one.name: tuple(_of_property(one)) for one in tested}
        self._called = {one.name: one.name for one in tested} | {one.id: one.name for one in tested}
        self.of_kind = Counter(one.kind for ways in self._of.values() for one in ways)
        self.total = self.of_kind.total()

    def named_by(self, declared: KnownDeviation) -> tuple[Combination, ...]:
        """Those of the properties that the declaration names."""
        exact = {self._called[name] for name in declared.names if name in self._called}
        patterns = tuple(name for name in declared.names if "*" in name)
        called = self._called.items() if patterns else ()
        named = exact | {name for alias, name in called if any_matches(patterns, alias)}
        return tuple(one for name in sorted(named) for one in self._of[name])


def require_narrow(subject: Subject) -> None:
    """Refuse declared defects that match more than half of what can fail, or nothing.

    Raises:
        ValueError: as `require_names`; a declaration matches more than half of the ways in which a property can fail, or all declarations together
            more than half of the ways in which the subject can.
    """
    if not subject.known_deviations:
        return
    for declared in subject.known_deviations:
        require_names(declared, load_properties(), subject)
    combinations = _combinations(subject)
    together: set[Combination] = set()
    for declared in subject.known_deviations:
        named = combinations.named_by(declared)
        matched = {one for one in named if _matches(declared, one)}
        # Of each property: those of many fields would outweigh a property of few, all of whose failures it matches.
        matches, ways = Counter(one.property for one in matched), Counter(one.property for one in named)
        worst = max(matches, key=lambda name: matches[name] / ways[name], default="")
        if worst:
            _require_half(_name_of(declared), matches[worst], ways[worst], worst, subject)
        _require_narrow_kinds(declared, matched, combinations, subject)
        together |= matched
    _require_half("all known defects", len(together), combinations.total, "the properties", subject)


def _name_of(declared: KnownDeviation) -> str:
    return f"known defect {declared.id or declared.alone or declared.link!r}"


def _require_narrow_kinds(
    declared: KnownDeviation, matched: set[Combination], combinations: Combinations, subject: Subject
) -> None:
    """Refuse what matches most failures of one kind, unless it is about a function or two that it names."""
    for kind, number in Counter(one.kind for one in matched).items():
        functions = {one.function for one in matched if one.kind == kind}
        patterns = any(one.kind == kind and "*" in "".join(one.function) for one in declared.shown_by)
        if patterns or len(functions) > _FEW_FUNCTIONS:
            whose = f"the properties, of kind {kind!r},"
            _require_half(_name_of(declared), number, combinations.of_kind[kind], whose, subject)


def _require_half(name: str, matched: int, total: int, whose: str, subject: Subject) -> None:
    if 2 * matched > total:
        raise ValueError(
            f"{name} = {matched:,} of {total:,} combinations of property, function, kind and place in which {whose} can fail, "
            f"but should be at most half of them [{subject.name}]"
        )


def _combinations(subject: Subject) -> Combinations:
    tested = load_properties()
    names, _ = applicable(sorted(tested), tested, subject, "cpu")
    return Combinations([tested[name] for name in names])


def _matches(declared: KnownDeviation, one: Combination) -> bool:
    return any(
        symptom.kind == one.kind
        and any_matches(symptom.function, one.function)
        and any_matches(symptom.place, one.place)
        for symptom in declared.shown_by
    )


def _of_property(tested: Property) -> Iterator[Combination]:
    methods = {name for name in answered() for owner in tested.functions if name.startswith(f"{owner}.")}
    for function in sorted({*tested.functions, *methods}):
        for kind, place in _of_function(function):
            yield Combination(tested.name, function, kind, place)
    if follows_requests(tested):
        for place in _OF_A_SCENARIO:
            yield Combination(tested.name, "", "value", place)


@cache
def _of_function(function: str) -> tuple[tuple[str, str], ...]:
    """Kinds and places in which a call of the function can fail."""
    arguments = parameters(function)
    results = ("result", *(f"result.{name}" for name in _result_fields(function)))
    places: Mapping[str, Sequence[str]] = {
        "value": (*results, *arguments),
        "refusal": ("the call", "result"),
        "memory": arguments,
        "race": arguments if launches(function) else (),
        "fault": ("the call",),
        "hang": ("the call",),
    }
    pairs = ((kind, without_indices(place)) for kind, named in places.items() for place in named)
    return tuple(dict.fromkeys(pairs))


def _result_fields(function: str) -> tuple[str, ...]:
    """The documented fields of what the function returns."""
    if function in ("LiveEngine.step", "RadixEngine.step"):
        return tuple(f"broken.{law.name}" for law in fields(BrokenLaws))
    rule = rule_for(function)
    kind = None if rule is None else get_type_hints(rule).get("return")
    return tuple(one.name for one in fields(kind)) if isinstance(kind, type) and is_dataclass(kind) else ()
