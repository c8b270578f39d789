"""No lemma is proved because nothing was compared, or because a declared defect hides the rest; planted defects show it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statecheck.case import Case
from statecheck.case.values import Let
from statecheck.subject import Subject
from statecheck.subject.known import Condition, KnownDeviation, Symptom

if importlib.util.find_spec("z3") is None:
    pytest.skip("z3-solver is not installed (the extra `prove`)", allow_module_level=True)

from lab.prove import lemmas as proofs
from lab.prove import paths
from lab.prove.__main__ import code_of, main, saved
from lab.prove.lemmas import KNOWN, OUT_OF_REACH, PROVED, REFUTED, LemmaVerdict, prove, same_copies
from lab.prove.memory import ADDRESS, APART, EQUAL, OVERFLOW, Region, SymbolicMemory
from lab.prove.numbers import answered
from lab.prove.operations import SymbolicArithmetic
from lab.prove.scenes import PREPROCESS
from lab.tests.prove import planted
from statecheck.execution.verdict import CLEAN, FALSIFIED, MISCONFIGURED
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.subject import load

SECONDS = 500.0
ABOUT = (EQUAL, ADDRESS, OVERFLOW)


def verdicts(subject: Subject) -> dict[str, LemmaVerdict]:
    return dict(zip(ABOUT, prove(subject, PREPROCESS, "SD", SECONDS), strict=True))


def first(case: Case | None, name: str) -> int:
    """The first number of a vector of a case."""
    assert case is not None
    return next(step.value.elements[0] for step in case.steps if isinstance(step, Let) and step.name == name)


def test_where_every_path_leaves_memory_nothing_is_proved() -> None:
    found = verdicts(planted.subject_with(planted.leave_memory))
    assert {about: one.state for about, one in found.items()} == {
        EQUAL: OUT_OF_REACH,
        ADDRESS: REFUTED,
        OVERFLOW: OUT_OF_REACH,
    }
    assert found[EQUAL].why == "no path comes to its comparison"


def test_a_case_that_fails_in_something_else_does_not_refute_a_lemma_about_addresses() -> None:
    found = verdicts(planted.subject_with(planted.race_and_leave_memory))[ADDRESS]
    assert (found.state, found.case) == (OUT_OF_REACH, None), found
    assert "outside of starts, but no case shows it" in found.why


def test_after_an_access_that_may_be_far_outside_the_inputs_inside_are_compared() -> None:
    found = verdicts(planted.subject_with(planted.leave_memory_unless_7_are_computed))
    assert (found[ADDRESS].state, found[EQUAL].state) == (REFUTED, REFUTED), found
    assert first(found[EQUAL].case, "computed") == 7


def test_a_kernel_that_writes_into_an_input_is_refuted() -> None:
    found = verdicts(planted.subject_with(planted.write_an_input))[EQUAL]
    assert found.state == REFUTED, found
    assert found.case is not None
    assert found.case.failure is not None
    assert "num_computed_tokens_ptr" in found.case.failure.place


def test_the_sum_of_an_atomic_add_overflows_and_wraps_around() -> None:
    found = verdicts(planted.subject_with(planted.add_atomically))
    assert (found[OVERFLOW].state, found[EQUAL].state) == (REFUTED, REFUTED), found
    assert first(found[OVERFLOW].case, "columns") > 0


def declared(subject: Subject, *tokens: int) -> Subject:
    """The subject with a known defect: what fails with as many computed tokens."""
    few = Condition(lambda case, _: first(case, "computed") in tokens)
    symptom = Symptom("value", "harness.launch", "bias", condition=few)
    subject.known_deviations = (
        KnownDeviation(
            "preprocess-kernel/columns",
            "https://example.org/1",
            symptom,
            id="wrong-bias",
        ),
    )
    return subject


def files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.json"))


def test_a_declared_defect_does_not_hide_another_of_the_same_path(tmp_path: Path) -> None:
    found = verdicts(declared(planted.subject_with(planted.change_two_biases), 0))[EQUAL]
    assert (found.state, found.known, first(found.case, "computed")) == (REFUTED, "", 7), found
    path = saved(found, tmp_path)
    assert (files(tmp_path), path.parent if path else None) == ([path], tmp_path)
    assert code_of([found]) == FALSIFIED


def test_a_lemma_that_declared_defects_alone_break_is_known_and_not_proved(tmp_path: Path) -> None:
    found = verdicts(declared(planted.subject_with(planted.change_two_biases), 0, 7))[EQUAL]
    assert (found.state, found.known) == (KNOWN, "wrong-bias"), found
    assert "the rest is not proved" in found.why
    # An earlier run has refuted the lemma; its file goes.
    assert saved(replace(found, state=REFUTED, known=""), tmp_path) is not None
    path = saved(found, tmp_path)
    assert (files(tmp_path), path.parent if path else None) == ([path], tmp_path / "known")
    assert code_of([found]) == CLEAN


def test_a_kernel_that_the_executor_does_not_know_is_out_of_reach_of_v1_equals_v2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def captured(*_: Any) -> Any:
        raise NotUnderstoodError("tt.dot")

    monkeypatch.setattr(proofs, "captured", captured)
    found = same_copies(load("impl"), "SD", SECONDS)
    assert (found.state, found.why) == (OUT_OF_REACH, "the executor does not know tt.dot")


def test_a_part_of_no_name_is_refused_with_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "V1 posprocess"]) == MISCONFIGURED
    printed = capsys.readouterr().err
    assert "only = 'V1 posprocess', but should be a part of a name such as V1 postprocess SD" in printed


def test_the_intact_kernel_is_proved_as_a_planted_one() -> None:
    found = verdicts(planted.subject_with(planted.do_nothing))
    assert {one.state for one in found.values()} == {PROVED}, found


@pytest.mark.parametrize(
    ("column", "stored", "left"), [(1, 6, []), (1, 7, ["table0"]), (None, 6, ["table0"])]
)
def test_a_table_may_be_written_with_what_it_holds_and_nothing_else(
    column: int | None, stored: int, left: list[str]
) -> None:
    path = paths.Path()
    # Its elements are 5, 6, 7 and 8.
    table = Region("table0", 2 << APART, 16, 4, lambda index: index + 5)
    memory = SymbolicMemory(path, [table])
    at = path.fresh("column") if column is None else column
    memory.store(table.start + 4 * at, 4, stored, "a kernel")
    memory.compare({}, ())
    assert [violation.text for violation in memory.violations] == [
        f"{name} may be left otherwise" for name in left
    ]


def test_an_access_between_two_elements_is_out_of_reach() -> None:
    path = paths.Path()
    table = Region("table0", 2 << APART, 16, 4, lambda index: index + 5)
    memory = SymbolicMemory(path, [table])
    # A column, of which it is not known that it is a multiple of the element's size.
    at = path.fresh("byte")
    path.assume(at >= 0, at < 8)
    with pytest.raises(NotUnderstoodError, match="between two elements"):
        memory.load(table.start + at, 4, "a kernel")
    path.assume(at % 4 == 0)
    assert path.implied(memory.load(table.start + at, 4, "a kernel") <= 6)


@pytest.mark.parametrize(
    ("name", "values"), [("addi", (2**31 - 1, 1)), ("subi", (-(2**31), 1)), ("muli", (2**16, 2**16))]
)
def test_known_numbers_overflow_as_unknown_ones_do(name: str, values: tuple[int, int]) -> None:
    noted: list[Any] = []
    arithmetic = SymbolicArithmetic(paths.Path(), noted.append)
    kinds = ("i32", "i32")
    arithmetic.compute(f"arith.{name}", kinds, "i32", {}, (5, 6))
    assert noted == []
    with np.errstate(all="ignore"):
        arithmetic.compute(f"arith.{name}", kinds, "i32", {}, values)
    assert noted == [True]


def test_an_oracle_whose_assertion_fails_says_nothing() -> None:
    def rule() -> None:
        raise AssertionError("two rows share a slot")

    with pytest.raises(paths.OutOfReach, match="two rows share a slot"):
        answered(rule)
