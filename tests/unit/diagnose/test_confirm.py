"""A counterexample is run again in fresh workers, and the report says how often it repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from statecheck.case import Case
from statecheck.case.values import Call, Outcome, Raised, Returned, Step, call
from statecheck.diagnose.diagnosis import Confirmation, confirm
from tests.helpers.cases import a_case

HANG = Raised("hang", "no answer within 1 s", kind="hang")
HANG_MESSAGE = "the call = hang: no answer within 1 s, but should be a result, 2"


class Scripted:
    """A port that answers every call of the n-th example with the n-th outcome."""

    device = "cpu"

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def begin(self) -> None:
        """Begin an example."""

    def execute(self, step: Step) -> Outcome | None:
        return self.outcome if isinstance(step, Call) else None

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        yield


def confirmed(case: Case, outcomes: Sequence[Outcome]) -> Confirmation:
    left = iter(outcomes)

    @contextmanager
    def factory() -> Iterator[Scripted]:
        yield Scripted(next(left))

    return confirm(case, factory, times=len(outcomes))


RIGHT, WRONG = Returned(2), Returned(3)


def of_two(actual: Outcome) -> Case:
    return a_case(steps=(call("add_one", x=1),), expected=(RIGHT,), actual=(actual,), message="as stated")


RUNS: dict[str, tuple[Outcome, list[Outcome], tuple[str, ...], str]] = {
    "every time": (
        WRONG,
        [WRONG] * 3,
        ("result = 3, but should be 2",) * 3,
        "Repeated in 3 of 3 fresh workers.",
    ),
    "in another form": (
        HANG,
        [HANG, WRONG],
        (HANG_MESSAGE, "result = 3, but should be 2"),
        "Repeated in 2 of 2",
    ),
    "once": (
        WRONG,
        [RIGHT, WRONG, RIGHT],
        ("", "result = 3, but should be 2", ""),
        "**did not repeat in 2 of 3**",
    ),
    "a condition": (RIGHT, [RIGHT, RIGHT], ("as stated", "as stated"), "Repeated in 2 of 2"),
}


@pytest.mark.parametrize(("seen", "outcomes", "messages", "note"), RUNS.values(), ids=RUNS)
def test_a_failure_is_run_again_and_its_repetitions_are_counted(
    seen: Outcome, outcomes: list[Outcome], messages: tuple[str, ...], note: str
) -> None:
    found = confirmed(of_two(seen), outcomes)
    assert (found.repeated, found.messages) == (len([message for message in messages if message]), messages)
    assert note in found.note
