"""Which vectors are chosen, and how values are written."""

from __future__ import annotations

from dataclasses import replace

from statecheck.vectors.choose import LEAST, MOST, Vector, chosen
from statecheck.vectors.values import EXACT, plain

PLAIN = Vector("cdiv", "a_property", "A sentence.", (), {}, {"x": 1, "y": 1}, {"result": 1})


def several(*marks: tuple[str, ...]) -> list[Vector]:
    """Vectors with these marks, each with a call of its own."""
    return [replace(PLAIN, marks=one, arguments={"x": n, "y": 1}) for n, one in enumerate(marks)]


def test_every_mark_is_kept_however_many_there_are() -> None:
    vectors = several(*((f"mark {n // 2}",) for n in range(4 * MOST)))
    assert {one.marks for one in chosen(vectors)} == {one.marks for one in vectors}


def test_of_calls_alike_few_are_kept() -> None:
    assert len(chosen(several(*[("a mark",)] * 100))) == LEAST


def test_combinations_of_marks_are_kept_up_to_a_number() -> None:
    vectors = several(*(tuple(f"mark {bit}" for bit in range(8) if n >> bit & 1) for n in range(256)))
    assert MOST <= len(chosen(vectors)) <= MOST + 2


def test_each_argument_that_is_refused_is_kept() -> None:
    refused = [{"refused": {"argument": f"x[{n}]", "exception": "ValueError"}} for n in range(50)]
    other = {"refused": {"argument": "y", "exception": "ValueError"}}
    vectors = [
        replace(one, expected=two) for one, two in zip(several(*[()] * 51), [*refused, other], strict=True)
    ]
    assert vectors[-1] in chosen(vectors)


def test_an_id_depends_on_the_call_alone() -> None:
    other = replace(PLAIN, tested="another_property", marks=("a mark",), expected={"result": 2})
    assert PLAIN.id == other.id != replace(PLAIN, arguments={"x": 2, "y": 1}).id


def test_integers_that_not_every_reader_keeps_are_strings() -> None:
    assert plain([EXACT, EXACT + 1, -EXACT - 1]) == [2**53 - 1, "9007199254740992", "-9007199254740992"]
