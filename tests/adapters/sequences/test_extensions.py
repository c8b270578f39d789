"""Conditions about rows and lengths, each with a case for which it holds and with one for which it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.failure import Failure
from statecheck.case.values import Expected, Name, Outcome, Returned, call, record
from statecheck.subject.profile import Profile
from subjects.sequences.conditions import CONDITIONS, extensions

Rows = Sequence[tuple[int, Sequence[int]]]


def _case(*extended: Rows, distance: float = 0.5, pads: int = 0, **features: Any) -> Case:
    """A case of a context that extends sequences; the last call is the failing one."""
    lengths: dict[int, int] = {}
    steps = [call("Sequences", model="mamba2", seed=0, features=features)]
    outcomes: list[Outcome] = [Returned(record("Sequences"))]
    for rows in extended:
        given = {"context": 0, "rows": list(rows), "features": {"pads": pads} if pads else {}}
        steps.append(call("Sequences.extend", self=Name("library"), **given))
        for sequence, tokens in rows:
            lengths[sequence] = lengths.get(sequence, 0) + len(tokens)
        after = tuple((0, sequence, count) for sequence, count in lengths.items())
        outcomes.append(Returned(record("SequenceStep", lengths=after, distance=distance)))
    failure = Failure("value", "seen", function="Sequences.extend", call=len(steps) - 1)
    expected: list[Expected] = [Returned(None)] * len(steps)
    return Case("name", "sentence", "port", tuple(steps), tuple(expected), tuple(outcomes), failure)


_PIECES = _case([(0, (1, 2))], [(0, (3,))])
_SEVERAL = _case([(0, (1,))], [(0, (2, 3))])
_BATCH = _case([(0, (1,)), (1, (2, 3))], distance=0.01)
_BESIDE = _case([(0, (1,))], [(0, (2,)), (1, (3,))])
_EQUAL = _case([(0, (1,)), (1, (2,))], cache="static", beams=2)


@pytest.mark.parametrize(
    ("condition", "case", "holds"),
    [
        ("features:cache=static,beams=2", _EQUAL, True),
        ("features:cache=static,beams=3", _EQUAL, False),
        ("default:padding,cache", _PIECES, True),
        ("default:padding,cache", _EQUAL, False),
        ("other:neighbours,beams", _EQUAL, True),
        ("other:neighbours", _EQUAL, False),
        ("behind:1", _PIECES, True),
        ("behind:2", _PIECES, False),
        ("behind:2", _SEVERAL, True),
        ("rows:2", _BATCH, True),
        ("rows:2", _SEVERAL, False),
        ("rows:unequal", _BATCH, True),
        ("rows:unequal", _EQUAL, False),
        ("begins:unequal", _BATCH, True),
        ("begins:unequal", _SEVERAL, False),
        ("begins:unequal", _case([(0, (1, 2))], pads=1), True),
        ("beside:1", _BESIDE, True),
        ("beside:2", _BESIDE, False),
        ("beside:1", _SEVERAL, False),
        ("beside:1", _BATCH, False),
        ("sequences:2", _BATCH, True),
        ("sequences:2", _SEVERAL, False),
        ("by:0.02", _BATCH, True),
        ("by:0.02", _PIECES, False),
        ("length:2", _PIECES, True),
        ("length:3", _PIECES, False),
        ("new-rows-of:1", _SEVERAL, True),
        ("new-rows-of:1", _EQUAL, True),
        ("new-rows-of:1", _BATCH, False),
        ("new-rows-of:1", _PIECES, False),
        ("one-more:1,2", _PIECES, True),
        ("one-more:1", _PIECES, False),
        ("one-more:1,2", _SEVERAL, False),
        ("features:cache=st*", _EQUAL, True),
        ("features:cache=dyn*", _EQUAL, False),
        ("models:mamba2 behind:2 by:0.6", _SEVERAL, True),
        ("models:mamba2 behind:2 by:0.4", _SEVERAL, False),
    ],
)
def test_a_condition_holds_of_the_cases_that_it_names(condition: str, case: Case, holds: bool) -> None:
    assert CONDITIONS[condition](case, Profile()) is holds


def test_rows_are_told_apart_by_whether_their_sequence_has_tokens() -> None:
    (first, second) = extensions(_case([(0, (1, 2))], [(0, (3,)), (1, (4, 5))]))
    assert (first.begun, first.continued) == ((2,), ())
    assert (second.begun, second.continued) == ((2,), (1,))


def test_an_empty_mapping_of_features_has_defaults_only() -> None:
    features: Mapping[str, Any] = {}
    assert CONDITIONS["default:cache"](_case([(0, (1,))], **features), Profile())
