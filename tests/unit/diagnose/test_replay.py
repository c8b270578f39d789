"""Verdicts of replayed cases on subjects of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.corpus import Corpus, replayed
from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.case.findings import NotExecuted
from statecheck.case.values import Raised, Refusal, Returned, call, record
from statecheck.diagnose.replay import (
    FAILED,
    FIXED,
    KNOWN,
    NOT_APPLICABLE,
    NOT_REPRODUCED,
    _is_recorded,
    replay_case,
)
from statecheck.execution.in_process import InProcess
from statecheck.subject.loading import SOURCE, source_of
from statecheck.subject.profile import DOCUMENTS, Profile
from subjects import KnownDeviation, NotOffered, Outside, Subject, Symptom, load
from tests.helpers.cases import PAGES, a_case, toy, toy_of_pages
from tests.helpers.modules import ROOT, module

KEPT = Corpus(ROOT / "corpus").entries()
DIVIDED = a_case(
    steps=(call("cdiv", x=5, y=2),),
    expected=(Returned(3),),
    actual=(Returned(2),),
    message="result = 2, but should be 3 [cdiv(x=5, y=2)]",
)
REFUSED = a_case(
    steps=(call("cdiv", x=5, y=0),),
    expected=(Refusal("y"),),
    actual=(Returned(0),),
    message="result = 0, but should be ValueError that names y [cdiv(x=5, y=0)]",
)


@pytest.fixture(autouse=True)
def _executed_only(executed: None) -> None:
    """Most of these subjects have no device functions."""


def right(x: int, y: int) -> int:
    return -(-x // y)


def wrong(x: int, y: int) -> int:
    return x // y


def test_a_case_is_fixed_only_where_the_source_has_changed_since(tmp_path: Path) -> None:
    with module(tmp_path, "toy_source", "def cdiv(x, y):\n    return -(-x // y)\n"):
        subject = load("toy_source")
        found_in = {SOURCE: source_of(subject)}
        case = replace(DIVIDED, subject="toy_source", first_seen=found_in)
        assert replay_case(case, subject, "cpu").verdict == NOT_REPRODUCED
        assert replay_case(replace(case, subject="other"), subject, "cpu").verdict == FIXED
        (tmp_path / "toy_source.py").write_text("def cdiv(x, y):\n    return (x + y - 1) // y\n")
        assert replay_case(case, subject, "cpu").verdict == FIXED


def test_a_case_is_fixed_where_the_engine_behind_a_port_has_changed(tmp_path: Path) -> None:
    (tmp_path / "toy_replayed_engine").mkdir()
    engine = tmp_path / "toy_replayed_engine" / "division.py"
    engine.write_text("def divide(x, y):\n    return -(-x // y)\n")
    with module(
        tmp_path,
        "toy_behind",
        "from toy_replayed_engine.division import divide\ncdiv = lambda x, y: divide(x, y)\n",
    ):
        subject = load("toy_behind")
        case = replace(DIVIDED, subject="toy_behind", first_seen={SOURCE: source_of(subject)})
        assert replay_case(case, subject, "cpu").verdict == NOT_REPRODUCED
        engine.write_text("def divide(x, y):\n    return (x + y - 1) // y\n")
        assert replay_case(case, subject, "cpu").verdict == FIXED


def test_the_source_of_a_plain_port_has_the_engine_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "toy_plain_engine").mkdir()
    engine = tmp_path / "toy_plain_engine" / "chunks.py"
    engine.write_text("def offsets(starts, size):\n    return [0]\n")
    port = (
        "from toy_plain_engine.chunks import offsets\nSTATECHECK_PROTOCOL = 2\n"
        "def chunk_offsets(cu_seqlens, chunk_size):\n    return offsets(cu_seqlens, chunk_size)\n"
    )
    with module(tmp_path, "toy_plain_port", port):
        subject = load("toy_plain_port")
        before = source_of(subject)
        engine.write_text("def offsets(starts, size):\n    return [0, 1]\n")
        assert before != source_of(subject) != ""


def verdict(case: Case, subject: Subject) -> tuple[str, str]:
    found = replay_case(case, subject, "cpu")
    return found.verdict, found.message


def subject_of(divide: Callable[[int, int], int], *known: KnownDeviation, **fields: object) -> Subject:
    subject = toy(*known, cdiv=divide)
    vars(subject).update(fields)
    return subject


def test_no_case_of_the_corpus_is_held_against_a_correct_port() -> None:
    found = [replayed(entry, "examples.numpy_port", "cpu")[0].verdict for entry in KEPT]
    assert (len(found), set(found)) == (14, {FIXED, NOT_APPLICABLE})
    assert found.count(FIXED) >= 9


LISTS_ONLY = """
from examples.numpy_port import STATECHECK_PROTOCOL, list_copies

{moved}
"""
COPIES_FORWARD = """
import ctypes

def copy_runs(src_ptrs, dst_ptrs, sizes):
    for source, target, size in zip(src_ptrs, dst_ptrs, sizes):
        for byte in range(size):
            ctypes.memmove(int(target) + byte, int(source) + byte, 1)
"""


@pytest.mark.parametrize(
    ("moved", "becomes"),
    [(COPIES_FORWARD, FAILED), ("from examples.numpy_port import copy_runs", FIXED)],
    ids=["broken", "mended"],
)
def test_a_port_needs_what_is_called_and_not_what_is_handed_over(
    tmp_path: Path, moved: str, becomes: str
) -> None:
    """The case hands over functions that describe copies, which a port that lists copies itself has no use for."""
    path = Corpus(ROOT / "corpus").find("a859efe47f")
    assert '"Function"' in path.read_text(encoding="utf-8")
    name = f"toy_port_{becomes.lower()}"
    with module(tmp_path, name, LISTS_ONLY.format(moved=moved)):
        assert not load(name).has("get_temporal_copy_spec")
        assert verdict(Case.load(path), load(name))[0] == becomes


def test_a_wrong_outcome_fails_and_a_right_one_is_fixed() -> None:
    assert verdict(DIVIDED, subject_of(wrong)) == (FAILED, "result = 2, but should be 3")
    assert verdict(DIVIDED, subject_of(right))[0] == FIXED


def test_the_rules_are_asked_and_not_what_the_file_expects() -> None:
    outdated = replace(DIVIDED, expected=(Returned(7),))
    assert verdict(outdated, subject_of(right))[0] == FIXED


def test_a_condition_that_the_same_outcomes_break_is_no_more_fixed_than_it_was() -> None:
    broken = replace(
        DIVIDED,
        expected=(Returned(3),),
        actual=(Returned(3),),
        failure=stated("5 is halved", "should not be"),
    )
    assert verdict(broken, subject_of(right)) == (FAILED, "5 is halved, but should not be")


def test_a_condition_that_other_outcomes_broke_is_fixed() -> None:
    broken = replace(DIVIDED, actual=(Returned(3),), failure=stated("5 is halved", "should not be"))
    assert verdict(replace(broken, actual=(Returned(4),)), subject_of(right))[0] == FIXED


@pytest.mark.parametrize(
    ("recorded", "is_the_same"), [({"x": (1,)}, True), ({"x": (2,)}, False), ({"y": (1,)}, False)]
)
def test_a_recorded_outcome_may_lack_fields_that_are_observed_since(
    recorded: dict[str, Any], is_the_same: bool
) -> None:
    now = Returned((record("Step", x=(1,), since="nothing"),))
    assert _is_recorded((now,), (Returned((record("Step", **recorded),)),)) is is_the_same


def test_a_refusal_that_the_subject_does_not_promise_is_not_applicable() -> None:
    assert verdict(REFUSED, subject_of(lambda x, y: 0))[0] == FAILED
    found = verdict(REFUSED, subject_of(lambda x, y: pytest.fail("tried"), refuses=False))
    assert found == (NOT_APPLICABLE, "the rules refuse y")


def test_an_input_that_the_contract_leaves_out_is_not_tried() -> None:
    outside = (Outside("cdiv", "odd numbers", lambda asked: bool(asked.named["x"] % 2)),)
    found = verdict(DIVIDED, subject_of(lambda x, y: pytest.fail("tried"), outside=outside))
    assert found == (NOT_APPLICABLE, "odd numbers")


def not_here(x: int, y: int) -> int:
    raise NotOffered(f"no division of {x} by {y}")


def test_a_case_of_a_call_that_a_release_does_not_offer_is_not_applicable() -> None:
    assert verdict(DIVIDED, subject_of(not_here)) == (NOT_APPLICABLE, "no division of 5 by 2")


@pytest.mark.parametrize(
    ("profile", "wanted"), [(Profile(kept_pages_of_drafts=True), FIXED), (DOCUMENTS, FAILED)]
)
def test_the_rules_are_those_of_the_subject_s_release(profile: Profile, wanted: str) -> None:
    case = a_case(steps=(PAGES,), expected=(Returned(5),), actual=(Returned(3),))
    assert verdict(case, toy_of_pages(5, profile))[0] == wanted


ROUNDS = Symptom("value", "cdiv", "result")


def test_a_declared_defect_is_known_and_another_one_is_not() -> None:
    known = KnownDeviation("toys/divide", "https://example.org/1", ROUNDS, id="rounds-down")
    other = KnownDeviation("toys/multiply", "https://example.org/2", ROUNDS)
    assert verdict(DIVIDED, subject_of(wrong, known)) == (KNOWN, "rounds-down: result = 2, but should be 3")
    assert verdict(DIVIDED, subject_of(wrong, other))[0] == FAILED
    assert verdict(DIVIDED, subject_of(right, known))[0] == FIXED


def test_a_known_defect_is_taken_for_new_on_request() -> None:
    known = KnownDeviation("toys/divide", "https://example.org/1", ROUNDS)
    assert replay_case(DIVIDED, subject_of(wrong, known), "cpu", as_new=True).verdict == FAILED


def test_an_order_of_programs_is_not_replayed_where_kernels_are_compiled() -> None:
    ordered = replace(DIVIDED, steps=(replace(DIVIDED.calls[0], schedule="reversed"),))
    found = replay_case(ordered, subject_of(right), "cuda")
    assert (found.verdict, "order of the device's own" in found.message) == (NOT_APPLICABLE, True)
    assert verdict(ordered, subject_of(right))[0] == FIXED


def test_a_case_whose_launch_cannot_be_executed_is_not_applicable() -> None:
    def unknown(*_: int) -> int:
        raise NotExecuted("divide_kernel is not executed on a CPU: the executor does not know tt.new")

    words = "divide_kernel is not executed on a CPU: the executor does not know tt.new"
    assert verdict(DIVIDED, subject_of(unknown)) == (NOT_APPLICABLE, words)


def test_a_finding_of_the_sanitizer_is_not_fixed_where_nothing_is_watched() -> None:
    raced = replace(DIVIDED, actual=(Raised("RaceBetweenPrograms", "two programs race", kind="race"),))
    assert raced.sanitized
    for sanitized, becomes in ((False, NOT_APPLICABLE), (True, FIXED)):
        subject = subject_of(right)
        port = InProcess(subject, "cpu", sanitized=sanitized)
        assert replay_case(raced, subject, "cpu", port).verdict == becomes
