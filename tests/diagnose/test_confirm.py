"""A counterexample is run again in fresh workers, and the report says how often it repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import Call, Device, Outcome, Raised, Returned, Step, call
from statecheck.diagnose.confirm import Confirmation, confirm
from statecheck.execution.example import Bench
from statecheck.workers.port import InWorker
from tests.breakages.broken import FAULTY, a_case, module

HANG = Raised("DeviceFault", "hang: no answer within 1 s")
FAULT = (
    "the call = DeviceFault: illegal access: memory was touched that is not there, but should be a result, 2"
)


class Scripted:
    """A port that answers every call of the n-th example with the n-th outcome."""

    device = "cpu"

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def begin(self) -> None:
        """One example each."""

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


def test_a_failure_that_repeats_is_said_to() -> None:
    found = confirmed(of_two(WRONG), [WRONG, WRONG, WRONG])
    assert (found.repeated, found.messages) == (3, ("result = 3, but should be 2",) * 3)
    assert found.note == "Repeated in 3 of 3 fresh workers."


def test_a_failure_that_takes_another_form_repeats_too() -> None:
    found = confirmed(of_two(HANG), [HANG, WRONG])
    assert found.repeated == 2
    assert found.messages[1] == "result = 3, but should be 2"


def test_a_failure_that_does_not_repeat_every_time_is_marked() -> None:
    found = confirmed(of_two(WRONG), [RIGHT, WRONG, RIGHT])
    assert (found.repeated, found.messages[0]) == (1, "")
    assert "**did not repeat in 2 of 3**" in found.note


def test_a_broken_condition_repeats_where_the_outcomes_do() -> None:
    found = confirmed(of_two(RIGHT), [RIGHT, RIGHT])
    assert (found.repeated, found.messages) == (2, ("as stated", "as stated"))


def test_every_run_has_a_worker_of_its_own(tmp_path: Path, trial: Bench) -> None:
    device = trial.port.device
    case = a_case(
        steps=(call("touch_nothing", device=Device()), call("add_one", x=1)),
        expected=(Returned(2), Returned(2)),
        actual=(Returned(2), Returned(2)),
    )
    with module(tmp_path, "toy_faulty", FAULTY) as name:
        found = confirm(case, partial(InWorker, name, device, spare=False))
    assert found == Confirmation(3, 3, (FAULT,) * 3)


@pytest.mark.parametrize("repeated", [0, 2])
def test_the_note_counts_the_runs_in_which_it_did_not(repeated: int) -> None:
    assert f"{3 - repeated} of 3" in Confirmation(repeated, 3, ("", "", "")).note
