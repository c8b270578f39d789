"""What an outcome holds that no rule says anything about, so that it is not taken for checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from statecheck.case.failure import without_indices
from statecheck.case.values import Expected, Outcome, Raised, Record, Refusal, Returned, Value


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
