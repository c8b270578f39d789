"""What went wrong in an example, as data: bucket, known defects and reports read its fields, and its sentence is made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

from statecheck.case.compare import Difference, brief_raised
from statecheck.case.values import Expected, KernelAccess, Outcome, Raised, Record, Refusal, Returned, Value

Kind = Literal["value", "refusal", "memory", "race", "fault", "hang"]
KINDS: frozenset[str] = frozenset(get_args(Kind))


@dataclass(frozen=True)
class Failure:
    """How an example broke its property.

    Args:
        kind: "value" (a result, or something observed, is wrong), "refusal" (a call raised that should return, or the other way
            round, or did not name the argument), "memory" (memory was touched that a call must not touch), "race", "fault" or "hang".
        observed: what was seen, such as "result[0] = 4".
        expected: what the property says instead, such as "should be 3"; "" where `observed` says it all.
        function: the function that was called, "" where no single call shows it.
        call: the number of that call among the case's, from 0.
        place: where in the result or in memory, such as "result[0]" or "pool0[3]"; the tensor, for a finding of the sanitizer.
        exception: the name of the exception that the call raised, among them the sanitizer's findings; of a fault of the device
            its kind.
        rule: what was broken, in words that hold for every input: no number, name or value of one is in it.
        shown: the call as one would write it down, with the name that its author gave it; several, of a condition on several.
        about: the numbers of the calls that a condition is about, where each of their outcomes alone is what the rules expect.
        access: of a finding of the sanitizer, the kernel, the tensor and the element.
    """

    kind: Kind
    observed: str
    expected: str = ""
    function: str = ""
    call: int | None = None
    place: str = ""
    exception: str = ""
    rule: str = ""
    shown: str = ""
    about: tuple[int, ...] = ()
    access: KernelAccess | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}, but should be one of {sorted(KINDS)} [Failure]")

    @property
    def sentence(self) -> str:
        """What was seen, and what should have been."""
        return f"{self.observed}, but {self.expected}" if self.expected else self.observed

    @property
    def message(self) -> str:
        """The sentence, and the call that shows it."""
        return f"{self.sentence} [{self.shown}]" if self.shown else self.sentence

    @property
    def part(self) -> str:
        """The place without what belongs to one input: "result" for "result[3]", "pool" for "pool0[3]"."""
        return without_indices(self.place)

    @property
    def fault(self) -> str:
        """The kind of the fault, or the name of the sanitizer's finding; "" for a wrong answer."""
        return self.exception if self.kind != "refusal" else ""


@dataclass(frozen=True)
class WrongBytes:
    """Bytes that are not what they should be at the end of a case.

    Args:
        name: what a `Let` bound; `first` and `nbytes` count bytes of its storage.
        belongs: which request or block they belong to and why, such as "block 5 belongs to r1, because ...".
        steps: for each call of the case, the step of an engine that it was part of; empty without an engine.
    """

    name: str
    first: int
    nbytes: int = 1
    belongs: str = ""
    steps: tuple[int, ...] = ()


def failure_of(
    difference: Difference,
    expected: Expected,
    actual: Outcome,
    *,
    function: str,
    call: int,
    shown: str,
) -> Failure:
    """The failure of a call whose outcome differs from the expected one."""
    if isinstance(actual, Raised) and actual.kind != "refusal":
        rule = _raised_rule(actual)
    elif actual.changed:
        rule = ", ".join(dict.fromkeys(map(without_indices, actual.changed))) + " written to"
    elif isinstance(expected, Refusal) and difference.place in ("result", "the call"):
        done = f"raises {actual.exception}" if isinstance(actual, Raised) else "returns"
        rule = (
            f"{done}, but should raise {expected.exception} that names {without_indices(expected.argument)}"
        )
    elif isinstance(actual, Raised) and difference.place == "the call":
        rule = _raised_rule(actual)
    else:
        rule = without_indices(difference.place)
    kind: Kind = "value"
    if actual.changed or difference.guard is not None:
        kind = "memory"
    elif isinstance(expected, Refusal) and difference.place == "result":
        kind = "refusal"
    failure = Failure(
        kind=kind,
        observed=difference.seen,
        expected=difference.wanted,
        function=function,
        call=call,
        place=difference.place,
        rule=f"{function}: {rule}",
        shown=shown,
    )
    return (
        _of_raised(failure, actual)
        if isinstance(actual, Raised) and difference.place == "the call"
        else failure
    )


def raised_instead(raised: Raised, *, function: str, call: int, shown: str) -> Failure:
    """The failure of a call that raised where a property wants its result."""
    failure = Failure(
        kind=raised.kind,
        observed=f"the call = {brief_raised(raised)}",
        expected="should return a result",
        function=function,
        call=call,
        rule=f"{function}: {_raised_rule(raised)}",
        shown=shown,
    )
    return _of_raised(failure, raised)


def _of_raised(failure: Failure, raised: Raised) -> Failure:
    """The failure with the fields of what the call raised."""
    tensor = raised.access.tensor if raised.access is not None else ""
    return replace(
        failure,
        kind=raised.kind,
        place=tensor or "the call",
        exception=raised.exception,
        access=raised.access,
    )


def stated(
    observed: str,
    expected: str = "",
    *,
    place: str = "",
    function: str = "",
    call: int | None = None,
    shown: str = "",
    about: tuple[int, ...] = (),
) -> Failure:
    """The failure of a condition that a property states itself."""
    sentence = f"{observed}, but {expected}" if expected else observed
    return Failure("value", observed, expected, function, call, place, "", plain(sentence), shown, about)


def fatal_among(actual: Sequence[Outcome]) -> int | None:
    """The number of the first call that ended in a fault, a hang or a finding of the sanitizer."""
    kinds = (outcome.kind if isinstance(outcome, Raised) else "refusal" for outcome in actual)
    return next((number for number, kind in enumerate(kinds) if kind != "refusal"), None)


def with_cause(failure: Failure, raised: Raised, *, function: str, call: int) -> Failure:
    """The failure, as that of the call that ended in a fault, a hang or a finding of the sanitizer."""
    if failure.call == call and failure.kind == raised.kind:
        return failure
    rule = f"{function}: {_raised_rule(raised)}"
    return _of_raised(replace(failure, function=function, call=call, rule=rule), raised)


def _raised_rule(raised: Raised) -> str:
    """What was broken, without addresses, programs and elements."""
    access = raised.access
    if access is not None:
        # Which side of a race comes first depends on the input.
        verb = "races for" if raised.kind == "race" else access.verb
        return f"{access.kernel} {verb} {without_indices(access.tensor) or 'memory of no known tensor'}"
    return f"raises {raised.exception}: {plain(raised.message)}" if raised.kind == "refusal" else raised.kind


@lru_cache(4096)
def without_indices(place: str) -> str:
    """A place without indices, and without the numbers of things of a kind: `pool0[3]` is `pool`."""
    place = re.sub(r"^byte \d+ (before|behind) |\.shape$", "", place)
    place = re.sub(r"^len\((.*)\)$", r"\1", place)
    while (shorter := re.sub(r"\[[^][]*\]", "", place)) != place:
        place = shorter
    return re.sub(r"(?<=[A-Za-z])_?\d+(?=\W|$|_[a-z]+\d+)", "", place).replace("..", ".")


_VALUE = "#"
_INSIDE_OUT = (
    (re.compile(r"'(?:[^'\\]|\\.)*'(?!\w)|\"(?:[^\"\\]|\\.)*\""), _VALUE),
    (re.compile(r"(?<=\w)[\[({][^][(){}]*[\])}]"), ""),
    (re.compile(r"[\[({][^][(){}]*[\])}]|<\w[^<>]*>"), _VALUE),
)
"""Quoted text; what stands in brackets, which is an index, or the contents of what is named before it; and a value alone."""
_HEX = r"[0-9a-f]{2}"
_ALONG = (
    (re.compile(rf"(?<!should )\b{_HEX}(?: (?:\| |\.\.\. )?{_HEX})+\b|\b{_HEX}(?=$| \|)"), _VALUE),
    (re.compile(r"\b(?:True|False|None)\b|\b(?=\w*\d)\w+\b"), _VALUE),
    (re.compile(r"-?#(?:(?:, and|,| and| or| \||\.\.|[.:/x×*-]| ?\+)? ?-?#)*"), _VALUE),
    (re.compile(r"(?<=# )(\w{3,}?)s\b"), r"\1"),
    (re.compile(r" = .*?, but should"), " = #, but should"),
)
"""Bytes; numbers, and names that have some; several of them; the plural, which depends on the number; and what was seen."""


def plain(message: str) -> str:
    """The first line of a message without what belongs to one input: numbers, ids, quoted text and lists of them."""
    text = message.partition("\n")[0]
    for pattern, instead in _INSIDE_OUT:
        while (shorter := pattern.sub(instead, text)) != text:
            text = shorter
    for pattern, instead in _ALONG:
        text = pattern.sub(instead, text)
    return text


def unchecked(expected: Expected, actual: Outcome) -> list[str]:
    """Places that were observed and are not compared: names of which no content is expected, fields that the rules do not know."""
    known = dict(expected.after)
    places = [name for name, _ in actual.after if name not in known]
    if not isinstance(expected, Refusal) and not isinstance(actual, Raised):
        places += _unknown(expected.value, actual.value, "result")
    for name, seen in actual.after:
        if name in known:
            places += _unknown(known[name], seen, name)
    return list(dict.fromkeys(map(without_indices, places)))


def compared_part(expected: Expected, actual: Outcome) -> Outcome:
    """The outcome without the fields of its result that are not compared."""
    if not isinstance(expected, Returned) or not isinstance(actual, Returned):
        return actual
    value, wanted = actual.value, expected.value
    if not isinstance(value, Record) or not isinstance(wanted, Record) or not wanted.fields:
        return actual
    known = dict(wanted.fields)
    kept = tuple((name, item) for name, item in value.fields if name in known)
    return replace(actual, value=replace(value, fields=kept))


def _unknown(expected: Value, actual: Value, place: str) -> Iterator[str]:
    if isinstance(expected, Record) and isinstance(actual, Record):
        wanted = dict(expected.fields)
        for name, item in actual.fields:
            if name not in wanted:
                yield f"{place}.{name}"
            else:
                yield from _unknown(wanted[name], item, f"{place}.{name}")
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected.keys() & actual.keys():
            yield from _unknown(expected[key], actual[key], f"{place}[{key!r}]")
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        for at, (item, other) in enumerate(zip(expected, actual, strict=False)):
            if isinstance(item, (Record, dict, list, tuple)):
                yield from _unknown(item, other, f"{place}[{at}]")
