"""Compared examples: a value that a function of the subject returned, and at least a row, a field or a byte of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from statecheck.campaign.record import PropertyRecord
from statecheck.case.values import call, int32
from statecheck.execution.example import REFUSAL, Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Counts, Status, verdict_of
from statecheck.subject import NotOffered
from subjects import Outside, Subject, adapted
from tests.helpers.cases import a_property, toy
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_fresh

DIVIDED = call("divide", x=6, y=2)
COPIED, OFFSETS = ("copy-meta/copied", "fla-chunks/offsets")


def context_of(subject: Subject) -> ExecutionContext:
    return ExecutionContext(subject, InProcess(subject, "cpu"))


def port_of(**names: Any) -> Subject:
    module = ModuleType("toy_port")
    vars(module).update({"STATECHECK_PROTOCOL": 2} | names)
    return adapted(module)


def counts_of(body: Callable[[Example], Any], subject: Subject, kind: str = "agreement") -> Counts:
    context = context_of(subject)
    a_property(body, kind=kind).example(context)
    return context.counts


def test_a_value_that_the_subject_returned_is_compared_and_counted_by_its_parts() -> None:
    found = counts_of(lambda trial: trial.agrees(DIVIDED), toy(divide=lambda x, y: x // y))
    assert (found.compared, found.parts) == (1, 1)
    starts = call("prepare_chunk_offsets", cu_seqlens=int32([0, 3, 9]), chunk_size=4)
    found = counts_of(
        lambda trial: trial.agrees(starts), port_of(chunk_offsets=lambda cu_seqlens, chunk_size: [0, 1, 3])
    )
    assert (found.compared, found.parts) == (1, 3)


def test_a_condition_counts_once_after_a_function_of_the_subject_returned() -> None:
    def body(trial: Example) -> None:
        trial.holds(True, "before any call")
        trial.run(DIVIDED)
        trial.holds(True, "6 / 2 = 3")
        trial.holds(True, "3 * 2 = 6")

    # The result is compared at the end, too, and is no evidence for the property.
    found = counts_of(body, toy(divide=lambda x, y: x // y))
    assert (found.compared, found.parts) == (1, 2)


def test_a_refusal_is_evidence_in_a_property_about_refusals_alone() -> None:
    def refuse(*_: int) -> int:
        raise ValueError("y")

    def body(trial: Example) -> None:
        trial.agrees(call("divide", x=6, y=0))

    assert counts_of(body, toy(divide=refuse)).compared == 0
    assert counts_of(body, toy(divide=refuse), REFUSAL).compared == 1


def test_a_result_without_rows_is_no_evidence() -> None:
    indices = call("prepare_chunk_indices", cu_seqlens=int32([0]), chunk_size=4)
    found = counts_of(
        lambda trial: trial.agrees(indices), port_of(chunk_indices=lambda cu_seqlens, chunk_size: [])
    )
    assert (found.examples, found.compared, found.parts, found.vacuous) == (1, 0, 0, 1)


def test_calls_that_the_adapter_alone_executes_are_no_evidence() -> None:
    context = context_of(port_of(list_copies=never, copy_runs=never))
    load_properties()[COPIED].explore(context, seed=1, max_examples=30)
    assert context.counts.compared == 0
    assert context.counts.no_evidence["no function of toy_port was called"] > 0
    verdict = verdict_of(context.counts)
    assert verdict.status is Status.NOT_APPLICABLE
    assert verdict.reason.startswith("toy_port does not implement list_copies")


@pytest.mark.parametrize(("lacked", "status"), [(True, Status.NOT_APPLICABLE), (False, Status.NOT_TESTED)])
def test_a_call_about_what_the_subject_lacks_counts_as_not_offered(lacked: bool, status: Status) -> None:
    subject = toy(divide=lambda x, y: x // y)
    subject.outside = (Outside("divide", "toys have no numbers", lacked=lacked),)
    verdict = verdict_of(counts_of(lambda trial: trial.agrees(DIVIDED), subject))
    assert verdict.status is status
    assert verdict.reason.endswith("toys have no numbers")


def never(**arguments: Any) -> Any:
    raise NotImplementedError


def test_inputs_that_a_port_implements_in_part_pass_and_the_rest_is_counted() -> None:
    def chunk_offsets(cu_seqlens: list[int], chunk_size: int) -> list[int]:
        if chunk_size > 1:
            raise NotImplementedError
        return cu_seqlens

    context = context_of(port_of(chunk_offsets=chunk_offsets))
    load_properties()[OFFSETS].explore(context, seed=1, max_examples=30)
    assert verdict_of(context.counts).status is Status.PASSED
    assert context.counts.not_offered["toy_port does not implement chunk_offsets"] > 0
    assert context.counts.vacuous == 0


def test_an_exception_that_is_only_named_not_offered_is_a_failure() -> None:
    class NotOffered(Exception):
        pass

    def divide(*_: int) -> int:
        raise NotOffered("says who?")

    with pytest.raises(Falsified, match="NotOffered: says who"):
        a_property(lambda trial: trial.agrees(DIVIDED)).example(context_of(toy(divide=divide)))


def loading(reached: tuple[str, ...]) -> Callable[[Example], None]:
    """A body that comes to these situations behind its comparison."""

    def body(trial: Example) -> None:
        trial.agrees(DIVIDED)
        trial.reached(*reached)

    return body


@pytest.mark.parametrize(
    ("reached", "compared", "status", "reason"),
    [
        ((), 0, Status.NOT_TESTED, "never reached in 1 example: a block is loaded, a block is saved"),
        (("a hit",), 0, Status.NOT_TESTED, "never reached in 1 example: a block is loaded, a block is saved"),
        (
            ("a block is loaded", "a hit"),
            1,
            Status.NOT_TESTED,
            "never reached in 1 example: a block is saved",
        ),
        (("a block is loaded", "a block is saved"), 1, Status.PASSED, ""),
    ],
    ids=str,
)
def test_a_property_is_not_tested_until_each_of_its_situations_is_reached(
    reached: tuple[str, ...], compared: int, status: Status, reason: str
) -> None:
    context, wanted = context_of(toy(divide=lambda x, y: x // y)), ("a block is loaded", "a block is saved")
    a_property(loading(reached), situations=wanted).example(context)
    counts = context.counts
    assert (counts.compared, counts.situations) == (
        compared,
        {name: int(name in reached) for name in {*wanted, *reached}},
    )
    verdict = verdict_of(counts)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_a_situation_needs_more_examples_than_a_comparison_until_its_absence_tells() -> None:
    counts = Counts(examples=30, compared=30, situations=Counter({"a hit": 0}))
    row = PropertyRecord("toys/divide", "Toys divide.", "agreement", verdict_of(counts).status.value, counts)
    assert row.lacked_time
    counts.examples = 60
    assert not row.lacked_time


def test_a_situation_counts_once_in_an_example() -> None:
    def body(trial: Example) -> None:
        trial.reached("a hit")
        trial.agrees(DIVIDED)
        trial.reached("a hit")

    context = context_of(toy(divide=lambda x, y: x // y))
    a_property(body, situations=("a hit",)).example(context)
    assert (context.counts.compared, context.counts.situations) == (1, {"a hit": 1})


def test_a_failure_before_the_situation_is_compared() -> None:
    context = context_of(toy(divide=wrong_by_one))
    with pytest.raises(Falsified):
        a_property(loading(()), situations=("a hit",)).example(context)
    assert context.counts.compared == 1


@pytest.mark.parametrize(
    ("ends", "status", "reason"),
    [
        ({"examples": 9, "compared": 1, "not_offered": {"no f": 8}}, Status.PASSED, ""),
        ({"examples": 9, "not_offered": {"no f": 8}}, Status.NOT_APPLICABLE, "no f"),
        (
            {"examples": 9, "outside": {"odd": 1}, "discarded": 8},
            Status.NOT_TESTED,
            "nothing was compared in all 9 examples: odd",
        ),
        (
            {"examples": 9, "outside": {"odd": 8}, "not_offered": {"no f": 1}},
            Status.NOT_APPLICABLE,
            "odd; no f",
        ),
        ({"examples": 9, "no_evidence": {"no order": 9}}, Status.NOT_APPLICABLE, "no order"),
        ({"examples": 9}, Status.NOT_TESTED, "nothing was compared in all 9 examples: there was nothing"),
        ({}, Status.NOT_TESTED, "no example was run"),
        (
            {"examples": 9, "not_offered": {name: 9 - at for at, name in enumerate("abcdef")}},
            Status.NOT_APPLICABLE,
            "a; b; c; d; and 2 other reasons",
        ),
    ],
    ids=str,
)
def test_a_property_without_a_comparison_says_why(ends: dict[str, Any], status: Status, reason: str) -> None:
    counts = Counts()
    for name, value in ends.items():
        if isinstance(value, dict):
            getattr(counts, name).update(value)
        else:
            setattr(counts, name, value)
    verdict = verdict_of(counts)
    assert verdict.status is status
    assert verdict.reason.startswith(reason)


def remembering(offsets: Callable[..., Any]) -> Callable[..., Any]:
    """The cache of fla-core 0.6.0: the last result, for arguments that are the very same objects."""
    last: list[Any] = [None, None, None]

    def cached(cu_seqlens: Any, chunk_size: int) -> Any:
        if last[0] is not cu_seqlens or last[1] != chunk_size:
            last[:] = [cu_seqlens, chunk_size, offsets(cu_seqlens, chunk_size)]
        return last[2]

    return cached


def counted_chunks(cu_seqlens: Any, chunk_size: int) -> list[int]:
    ends = [0]
    for start, end in pairwise(map(int, cu_seqlens)):
        ends.append(ends[-1] - (start - end) // chunk_size)
    return ends


IN_PLACE = "chunk-metadata/changed-in-place"


@pytest.mark.parametrize("names", [{}, {"TENSORS": ("chunk_offsets",)}], ids=["lists", "tensors"])
def test_a_memo_by_identity_is_found_in_a_port_of_one_function(names: dict[str, Any]) -> None:
    tested = load_properties()[IN_PLACE]
    context = context_of(port_of(chunk_offsets=counted_chunks, **names))
    assert tested.not_applicable(context) is None
    tested.explore(context, seed=1, max_examples=20)
    assert context.counts.compared > 0
    with pytest.raises(Falsified):
        tested.explore(
            context_of(port_of(chunk_offsets=remembering(counted_chunks), **names)), seed=1, max_examples=20
        )


OFFERS_NOTHING = """
STATECHECK_PROTOCOL = 2
def chunk_offsets(cu_seqlens, chunk_size):
    raise NotImplementedError("nothing is offered")
def chunk_indices(cu_seqlens, chunk_size):
    raise NotImplementedError("nothing is offered")
def list_copies(states, block_ids, src_column, dst_column, bias, layout):
    raise NotImplementedError("nothing is offered")
def copy_runs(src_ptrs, dst_ptrs, sizes):
    raise NotImplementedError("nothing is offered")
"""
ONE_FUNCTION = """
STATECHECK_PROTOCOL = 2
def chunk_offsets(cu_seqlens, chunk_size):
    found = [0]
    for start, end in zip(cu_seqlens, cu_seqlens[1:]):
        found.append(found[-1] - (start - end) // chunk_size)
    return found
"""
CHOSEN = "fla-chunks/offsets or copy-meta/copied"
NIGHT = ("statecheck", "nightly", "--examples", "60", "--only", CHOSEN)
SUITE = ("pytest", "properties", "-p", "no:cacheprovider", "--max-examples", "30", "-k", CHOSEN)


@pytest.mark.parametrize(
    ("source", "command", "code", "message"),
    [
        (OFFERS_NOTHING, NIGHT, 2, "INCOMPLETE"),
        (ONE_FUNCTION, NIGHT, 0, "CLEAN"),
        (OFFERS_NOTHING, SUITE, 5, "nothing was compared"),
        (ONE_FUNCTION, SUITE, 0, "1 passed"),
    ],
    ids=["nightly: nothing", "nightly: one", "pytest: nothing", "pytest: one"],
)
@pytest.mark.slow
def test_a_campaign_that_compared_no_function_of_the_subject_is_not_clean(
    tmp_path: Path, source: str, command: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "toy_port.py").write_text(source, encoding="utf-8")
    where: tuple[str | Path, ...] = (
        *["--subject", "toy_port", "--device", "cpu", "--reports"],
        tmp_path / "reports",
    )
    where += ("--corpus", tmp_path / "corpus") if command is NIGHT else ()
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CI": "1"}
    done = run_fresh("-m", *command, *where, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def wrong_by_one(x: int, y: int) -> int:
    return x // y + 1


def test_a_wrong_result_that_a_condition_does_not_see_fails_at_the_end() -> None:
    def body(trial: Example) -> None:
        first, other = trial.returns(DIVIDED), trial.returns(DIVIDED)
        trial.holds(first == other, "two calls give different results")

    with pytest.raises(Falsified) as raised:
        a_property(body).example(context_of(toy(divide=wrong_by_one)))
    failure = raised.value.case.failure
    assert failure is not None
    assert (failure.call, failure.observed) == (0, "result = 4")


def test_a_condition_that_is_false_speaks_before_a_wrong_result() -> None:
    def body(trial: Example) -> None:
        trial.holds(trial.returns(DIVIDED) == 3, "6 / 2 = 4", "should be 3", place="quotient")

    with pytest.raises(Falsified, match="6 / 2 = 4, but should be 3"):
        a_property(body).example(context_of(toy(divide=wrong_by_one)))


def test_a_wrong_result_fails_where_the_example_ends_at_a_missing_function() -> None:
    def divide_by_two_alone(x: int, y: int) -> int:
        if y != 2:
            raise NotOffered("not built")
        return wrong_by_one(x, y)

    def body(trial: Example) -> None:
        trial.returns(DIVIDED)
        trial.returns(call("divide", x=6, y=3))

    with pytest.raises(Falsified, match="result = 4"):
        a_property(body).example(context_of(toy(divide=divide_by_two_alone)))
