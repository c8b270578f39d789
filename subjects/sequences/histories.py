"""What happened to the sequences of a case, as conditions of known defects ask it: each looks at the case's calls alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from statecheck.case import Case
from statecheck.case.values import Record, Returned
from subjects.sequences.requests import checkpoint_of_another_token

UNCROPPABLE = "crop: a cache was cropped that says that it cannot be"
"""What the port of transformers counts; it cannot be imported where the library is not installed."""
Place = tuple[int, int]
"""A context's number, and a sequence's number in it."""


@dataclass
class _Kept:
    """By place, how many of its last tokens may be taken back one by one: all but the first of its last decode."""

    tokens: dict[Place, int] = field(default_factory=dict)
    rolled_back: set[Place] = field(default_factory=set)
    """Places whose last operation was a rollback."""

    def settle(self, place: Place, tokens: int) -> None:
        self.tokens[place] = tokens
        self.rolled_back.discard(place)


def _operations(case: Case) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Name, arguments, and whether it happened."""
    for number, call in enumerate(case.calls):
        outcome = case.actual[number] if number < len(case.actual) else None
        value = outcome.value if isinstance(outcome, Returned) else None
        happened = not (isinstance(value, Record) and value.type == "SequenceStep" and not value["happened"])
        yield call.function.rpartition(".")[2], call.named, happened


def _rows(arguments: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Sequences and numbers of tokens."""
    return [(number, len(tokens)) for number, tokens in arguments["rows"]]


def _followed(case: Case, wanted: Callable[[str, Mapping[str, Any], _Kept], bool]) -> bool:
    """Whether an operation that happened is wanted, by what was kept before it."""
    kept = _Kept()
    for name, arguments, happened in _operations(case):
        if happened and wanted(name, arguments, kept):
            return True
        if happened:
            _follow(name, arguments, kept)
    return False


def _follow(name: str, arguments: Mapping[str, Any], kept: _Kept) -> None:
    context = arguments.get("context", 0)
    if name == "extend":
        for number, tokens in _rows(arguments):
            kept.settle((context, number), tokens - 1)
    elif name == "roll_back":
        place = context, arguments["sequence"]
        kept.tokens[place] = kept.tokens.get(place, 0) - arguments["n"]
        kept.rolled_back.add(place)
    elif name in ("fork", "load", "generate"):
        kept.settle((context, arguments["target" if name == "fork" else "sequence"]), 0)


def long_rollback(case: Case) -> bool:
    """A rollback that reaches the beginning of the sequence's last decode, or a sequence without one: forked, or loaded."""

    def wanted(name: str, arguments: Mapping[str, Any], kept: _Kept) -> bool:
        place = arguments.get("context", 0), arguments.get("sequence", 0)
        return name == "roll_back" and arguments["n"] > kept.tokens.get(place, 0)

    return _followed(case, wanted)


def fork_after_rollback(case: Case) -> bool:
    """A fork of a sequence whose last operation was a rollback."""

    def wanted(name: str, arguments: Mapping[str, Any], kept: _Kept) -> bool:
        return name == "fork" and (arguments["context"], arguments["source"]) in kept.rolled_back

    return _followed(case, wanted)


def rows_of_several_tokens(case: Case) -> bool:
    """A batch of several rows, of which one has several tokens."""
    batches = (_rows(arguments) for name, arguments, _ in _operations(case) if name == "extend")
    return any(len(rows) > 1 and max(tokens for _, tokens in rows) > 1 for rows in batches)


def several_rows(case: Case) -> bool:
    """A batch of several rows."""
    return any(name == "extend" and len(arguments["rows"]) > 1 for name, arguments, _ in _operations(case))


def pending_copy(case: Case) -> bool:
    """Between a fork and the next decode of its context the target was saved, and loaded, or a state was loaded into the target or the source.

    Caches are separate: keys and values of a fork are copied at the next decode.
    """
    copies: set[tuple[Place, Place]] = set()
    saved: set[str] = set()
    if _features(case).get("unified"):
        return False
    for name, arguments, happened in _operations(case):
        context = arguments.get("context", 0)
        place = context, arguments.get("sequence", 0)
        if name == "extend":
            copies = {copy for copy in copies if copy[0][0] != context}
        elif happened and name == "fork":
            copies.add(((context, arguments["source"]), (context, arguments["target"])))
        elif happened and name == "save" and any(place == target for _, target in copies):
            saved.add(arguments["name"])
        elif (
            happened
            and name == "load"
            and (arguments["name"] in saved or any(place in copy for copy in copies))
        ):
            return True
    return False


def crop_of_an_uncroppable_cache(case: Case) -> bool:
    """A rollback, unchecked, of a cache whose `is_croppable` is false, which returned: the port counts it as an effect."""
    results = (outcome.value for outcome in case.actual if isinstance(outcome, Returned))
    steps = (one for one in results if isinstance(one, Record) and one.type == "SequenceStep")
    return any(UNCROPPABLE in step["effects"] for step in steps)


def _features(case: Case) -> Mapping[str, Any]:
    """Of the contexts."""
    found: Mapping[str, Any] = case.calls[0].named.get("features", {}) if case.calls else {}
    return found


def requests_at_once(case: Case) -> bool:
    """Requests for several sequences at the same time."""
    return any(
        name == "extend" and len(arguments["rows"]) > 1 and arguments["features"].get("at_once")
        for name, arguments, _ in _operations(case)
    )


HISTORIES: Mapping[str, Callable[[Case], bool]] = {
    "long-rollback": long_rollback,
    "fork-after-rollback": fork_after_rollback,
    "rows-of-several-tokens": rows_of_several_tokens,
    "several-rows": several_rows,
    "pending-copy": pending_copy,
    "requests-at-once": requests_at_once,
    "crop-of-an-uncroppable-cache": crop_of_an_uncroppable_cache,
    "checkpoint-of-another-token": checkpoint_of_another_token,
}
"""By name."""
