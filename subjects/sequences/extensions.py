"""What a case of a library of sequences extends: rows by their numbers of tokens, and how many tokens sequences have by then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from statecheck.case import Case
from statecheck.case.values import Call, Outcome, Record, Returned

UNEQUAL = "unequal"


@dataclass(frozen=True)
class Extension:
    """The rows of a call of `extend`, by how many tokens they have.

    Args:
        begun: of sequences that had no tokens.
        continued: of the others.
        before: how many tokens the sequences of these others had.
    """

    begun: tuple[int, ...]
    continued: tuple[int, ...]
    before: tuple[int, ...] = ()


def _goes_on(case: Case, least: list[str]) -> bool:
    return any(count >= int(least[0]) for one in extensions(case) for count in one.continued)


def _has_rows(case: Case, wanted: list[str]) -> bool:
    return any(_are((*one.begun, *one.continued), wanted[0]) for one in extensions(case))


def _begins(case: Case, wanted: list[str]) -> bool:
    return any(_are(one.begun, wanted[0]) for one in extensions(case))


def _goes_on_beside_others(case: Case, wanted: list[str]) -> bool:
    count = int(wanted[0])
    merged = any(count in one.before and len(one.begun) + len(one.continued) > 1 for one in extensions(case))
    return merged or any(
        _operation(call) == "reorder" and count in _lengths(case, number).values()
        for number, call in enumerate(case.calls[: _failing(case) + 1])
    )


def _has_sequences(case: Case, least: list[str]) -> bool:
    return len({place for number in range(_failing(case) + 2) for place in _lengths(case, number)}) >= int(
        least[0]
    )


def _differs_by(case: Case, most: list[str]) -> bool:
    step = _result(case.actual[_failing(case)])
    distance: Any = 0.0 if step is None else step["distance"]
    return 0 < distance <= float(most[0])


def _has_length(case: Case, least: list[str]) -> bool:
    return any(count >= int(least[0]) for count in _lengths(case, _failing(case)).values())


def _has_new_rows_of(case: Case, wanted: list[str]) -> bool:
    """Of a call of `generate` for one token, too: a port may process the sequence again."""
    counts = [set(one.begun) for one in extensions(case)]
    for number, call in enumerate(case.calls[: _failing(case) + 1]):
        if _operation(call) == "generate" and call.named["n"] == 1:
            counts.append({_lengths(case, number).get(_place(call, call.named["sequence"]), 0)})
    return {int(wanted[0])} in counts


def _gets_one_more(case: Case, wanted: list[str]) -> bool:
    number = _failing(case)
    call, lengths = case.calls[number], _lengths(case, number)
    if _operation(call) == "generate":
        rows: Any = [(call.named["sequence"], (0,))]
    else:
        rows = call.named["rows"] if _operation(call) == "extend" else ()
    return any(
        len(tokens) == 1 and str(lengths.get(_place(call, sequence), 0)) in wanted
        for sequence, tokens in rows
    )


ROWS: Mapping[str, Callable[[Case, list[str]], bool]] = {
    "behind": _goes_on,
    "rows": _has_rows,
    "begins": _begins,
    "beside": _goes_on_beside_others,
    "sequences": _has_sequences,
    "by": _differs_by,
    "length": _has_length,
    "new-rows-of": _has_new_rows_of,
    "one-more": _gets_one_more,
}
"""Conditions about rows and lengths.

    behind:2                    a sequence that has tokens gets at least as many more in a call
    rows:2, rows:unequal        a call has at least as many rows; it has rows with different numbers of tokens
    begins:2, begins:unequal    the same of the rows of sequences that have no tokens before the call
    beside:1                    a sequence with exactly that many tokens goes on beside other rows of a call, or is there in a reordering
    sequences:2                 at least as many sequences had tokens at some time
    by:0.05                     logits differ by no more than this share of their scale
    length:3                    a sequence has at least as many tokens when the failing call begins
    new-rows-of:1               all rows of a call that are of sequences without tokens have exactly that many tokens
    one-more:1,2                in the failing call a sequence with 1 or 2 tokens gets one more, or `generate` goes on behind it
"""


def extensions(case: Case) -> Iterator[Extension]:
    """The calls of `extend` up to the failing one."""
    for number, call in enumerate(case.calls[: _failing(case) + 1]):
        if _operation(call) == "extend":
            lengths, named = _lengths(case, number), call.named
            rows: Any = named["rows"]
            begun = {sequence for sequence, _ in rows if (named["context"], sequence) not in lengths}
            yield Extension(
                tuple(len(tokens) for sequence, tokens in rows if sequence in begun),
                tuple(len(tokens) for sequence, tokens in rows if sequence not in begun),
                tuple(lengths[named["context"], sequence] for sequence, _ in rows if sequence not in begun),
            )


def _are(counts: tuple[int, ...], wanted: str) -> bool:
    return len(set(counts)) > 1 if wanted == UNEQUAL else len(counts) >= int(wanted)


def _lengths(case: Case, number: int) -> dict[tuple[Any, Any], int]:
    """How many tokens each sequence has when the call of that number begins."""
    step = _result(case.actual[number - 1]) if 0 < number <= len(case.actual) else None
    lengths: Any = () if step is None else step["lengths"]
    return {(context, sequence): count for context, sequence, count in lengths}


def _result(outcome: Outcome) -> Record | None:
    """The result of an operation; None where it raised, and of the call that makes the context."""
    found = outcome.value if isinstance(outcome, Returned) else None
    return found if isinstance(found, Record) and found.type == "SequenceStep" else None


def _failing(case: Case) -> int:
    """The number of the call that failed, the last one where that is not known."""
    call = case.failure.call if case.failure is not None else None
    return len(case.calls) - 1 if call is None else call


def _place(call: Call, sequence: Any) -> tuple[Any, Any]:
    return call.named["context"], sequence


def _operation(call: Call) -> str:
    return call.function.rpartition(".")[2]
