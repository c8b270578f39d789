"""Failing cases of one defect count as one, and those of two defects as two."""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.bucket import Bucket, bucket_of, cause_of, line_of
from statecheck.case.failure import stated
from statecheck.case.values import (
    KernelAccess,
    Raised,
    RaisedKind,
    Refusal,
    Returned,
    SourceLine,
    call,
    int32,
)
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.kernels import triton_mode
from statecheck.report.render import report_text
from subjects import load
from tests.helpers.cases import a_case, a_property, subject_of
from tests.helpers.hunts import hunting
from tests.helpers.modules import ROOT, module
from tests.helpers.observers import FailureLog
from tests.helpers.planted import broken_subject, defect_named

EXAMPLES = 60
LAUNCHING_EXAMPLES = 8
ENOUGH = 4

# One in most topics, by name: what they break shows in one place of one function.
ONE_PLACE = [
    ("ceiling division is the one for positive divisors", "cdiv/either-sign"),
    ("a conv copy is as long wherever it starts", "conv-copy/one-block"),
    ("groups that ranks need a copy of are left out", "state-shape/conv-ranks"),
    ("a sequence is cut at multiples counted from its own start", "varlen-chunks/boundaries"),
    ("the last tokens of a row that do not fill a program are dropped", "conv1d-metadata/partition"),
    ("decodes are counted wherever they stand", "split/short-prefills"),
    ("a row is looked up with the length of the row before", "block-table/row-order"),
    ("a boundary is stored in the column behind it", "v1-history/every-step"),
    ("drafts count as tokens of the running state", "align-postprocess/boundary-and-counts"),
]
# As many functions or fields show these as have what is broken in them.
FEW_PLACES = [
    ("the split of the first step is kept", "builder/several-steps", 11),
    ("every prefill has an initial state", "builder/fields", 3),
    ("a full block runs on the next one", "block-table/align-columns", 2),
]


def going_on(tested: Property) -> Property:
    """The same with drawn examples alone, whose failures do not end the search: the context has noted them."""

    def body(trial: Example, **drawn: object) -> None:
        with suppress(Falsified):
            tested.body(trial, **drawn)
            trial.compare_rest()

    return replace(tested, body=body, written=())


@cache
def failing(defect: str, name: str) -> tuple[Case, ...]:
    """Cases as they were drawn, unshrunk, which the property finds in the broken copy."""
    tested = load_properties()[name]
    variant = defect_named(defect).variant
    log = FailureLog()
    with tempfile.TemporaryDirectory() as folder, broken_subject(variant, Path(folder)) as subject:
        context = ExecutionContext(subject, InProcess(subject, "cpu"), log)
        for seed in range(6):
            if len(log.cases) < ENOUGH:
                explore(tested, context, seed)
    return tuple(log.cases)


def explore(tested: Property, context: ExecutionContext, seed: int) -> None:
    """A machine's scenario ends at its first failure."""
    most = LAUNCHING_EXAMPLES if tested.launches else EXAMPLES
    with hunting(shrink=False), suppress(Falsified):
        going_on(tested).explore(context, seed=seed, max_examples=most)


def rules(defect: str, name: str) -> set[str]:
    if load_properties()[name].launches and not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; their defects are hunted where they are executed")
    found = failing(defect, name)
    assert len(found) > 2, f"{len(found)} failing examples are no test of buckets"
    return {bucket_of(case).rule for case in found}


@pytest.mark.parametrize(("defect", "name"), ONE_PLACE)
@pytest.mark.slow
def test_all_failing_cases_of_a_defect_fall_into_one_bucket(defect: str, name: str) -> None:
    found = rules(defect, name)
    assert len(found) == 1


@pytest.mark.parametrize(("defect", "name", "most"), FEW_PLACES)
def test_a_defect_that_shows_in_several_places_makes_a_bucket_of_each(
    defect: str, name: str, most: int
) -> None:
    found = rules(defect, name)
    assert 1 < len(found) <= most


@pytest.mark.parametrize(
    ("name", "defects"),
    [
        (
            "builder/fields",
            ("every prefill has an initial state", "the first block to write is the last one"),
        ),
        pytest.param(
            "refusals/bad-input",
            ("a bool passes for an int", "a matrix passes for a vector"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_defects_that_break_different_places_have_no_bucket_in_common(
    name: str, defects: tuple[str, ...]
) -> None:
    found = [rule for defect in defects for rule in rules(defect, name)]
    assert len(set(found)) == len(found)


def test_the_shrunk_case_is_in_the_bucket_of_those_that_it_came_from() -> None:
    defect, name = ONE_PLACE[2]
    assert {bucket_of(case).id for case in shrinking(defect, name)} == {
        bucket_of(case).id for case in failing(defect, name)
    }


def shrinking(defect: str, name: str) -> list[Case]:
    """All that fails on the way from the first failing example to the smallest."""
    variant = defect_named(defect).variant
    log = FailureLog()
    with tempfile.TemporaryDirectory() as folder, broken_subject(variant, Path(folder)) as subject:
        context = ExecutionContext(subject, InProcess(subject, "cpu"), log)
        with hunting(shrink=True), pytest.raises(Falsified):
            load_properties()[name].explore(context, seed=1, max_examples=200)
    assert len({case.digest for case in log.cases}) > 1
    return log.cases


def with_outcome(message: str, expected: Returned | Refusal, actual: Returned | Raised) -> Case:
    """A case whose call has these outcomes."""
    return a_case(expected=(expected,), actual=(actual,), message=f"{message} [divide(x=5, y=2)]")


def raised(
    exception: str, message: str, kind: RaisedKind = "refusal", access: KernelAccess | None = None
) -> Case:
    words = f"the call = {exception}: {message}, but should be a result, 3"
    return with_outcome(words, Returned(3), Raised(exception, message, kind=kind, access=access))


def with_finding(tensor: str, index: int, line: int, kind: RaisedKind = "memory") -> Case:
    """A finding whose sentence names another kernel and another tensor than its fields do."""
    access = KernelAccess("copy_kernel", "stores", tensor, (index,))
    message = f"program ({index}, 0, 0) of other loads element [1] of `stray` at copies.py:{line}"
    return raised("OutsideView", message, kind, access)


DIFFERS = with_outcome("result = 4, but should be 3", Returned(3), Returned(4))
FAULTED = raised("illegal access", "memory was touched that is not there", "fault")
BUCKETS = [
    (DIFFERS, "divide: result", ""),
    (
        raised("IndexError", "index 7 is out of bounds for dimension 0 with size 3"),
        "divide: raises IndexError",
        "",
    ),
    (
        with_outcome(
            "result = 4, but should be ValueError that names starts[3]", Refusal("starts[3]"), Returned(4)
        ),
        "divide: returns, but should raise ValueError that names starts",
        "",
    ),
    (FAULTED, "divide: fault", "illegal access"),
    (raised("hang", "no answer within 30 s", "hang"), "divide: hang", "hang"),
    (with_finding("pool0", 3, 36), "divide: copy_kernel stores pool", "OutsideView"),
    (with_finding("pool1", 64, 40), "divide: copy_kernel stores pool", "OutsideView"),
    (with_finding("pool1", 64, 40, "race"), "divide: copy_kernel races for pool", "OutsideView"),
    (with_finding("", 64, 40), "divide: copy_kernel stores memory of no known tensor", "OutsideView"),
    (raised("OutsideView", "an exception of that name"), "divide: raises OutsideView", ""),
    (a_case(steps=(), expected=(), actual=(), message=""), "", ""),
]


@pytest.mark.parametrize(("case", "rule", "fault"), BUCKETS, ids=[rule + fault for _, rule, fault in BUCKETS])
def test_a_bucket_is_what_was_broken_and_how_without_what_belongs_to_one_input(
    case: Case, rule: str, fault: str
) -> None:
    assert bucket_of(case) == Bucket("toys/divide", rule, fault, "toy")


def test_a_finding_has_its_fields_from_the_access_and_not_from_its_sentence() -> None:
    failure = with_finding("pool0", 3, 36).failure
    assert failure is not None
    assert (failure.kind, failure.place, failure.part) == ("memory", "pool0", "pool")
    assert failure.access == KernelAccess("copy_kernel", "stores", "pool0", (3,))
    case = with_finding("pool0", 3, 36)
    assert Case.from_json(case.to_json()) == case


def test_the_seed_and_the_device_make_no_difference() -> None:
    cases = [replace(DIFFERS, seed=seed, device=device) for seed in (None, 1) for device in ("cpu", "cuda")]
    assert len({bucket_of(case).id for case in cases}) == 1


def test_another_subject_and_another_property_are_other_buckets() -> None:
    cases = (DIFFERS, replace(DIFFERS, subject="impl"), replace(DIFFERS, property_id="toys/add"))
    assert len({bucket_of(case).id for case in cases}) == 3


def test_an_id_is_the_same_in_every_process() -> None:
    cases = [case for case, _, _ in BUCKETS] + [a_case(message="{'a', 'b'} has {0, 1}, but should be -1")]
    here = [bucket_of(case).id for case in cases]
    assert [ids_elsewhere(cases, seed) for seed in ("1", "2")] == [here, here]


def ids_elsewhere(cases: list[Case], hash_seed: str) -> list[str]:
    script = (
        "import json, sys; from statecheck.case.bucket import bucket_of; from statecheck.case import Case\n"
        "print(json.dumps([bucket_of(Case.from_json(one)).id for one in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps([case.to_json() for case in cases]),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("place", "rule", "expected"),
    [
        ("chunk_indices[3]", "", "chunk_indices"),
        ("physical chunks", "", "physical chunks"),
        ("read", "zeros are read", "zeros are read"),
    ],
)
def test_the_rule_of_a_condition_comes_from_its_fields(place: str, rule: str, expected: str) -> None:
    sentences = ("chunk 1 = tokens 1..3", "the words say nothing of it", "result[0] = ValueError")
    found = {stated(seen, f"should {seen}", place=place, rule=rule).rule for seen in sentences}
    assert found == {expected}


def test_the_message_of_an_exception_makes_no_bucket() -> None:
    case, other = (raised("IndexError", message) for message in ("index 7 of 3", "list index out of range"))
    assert bucket_of(case) == bucket_of(other)
    assert bucket_of(case) != bucket_of(raised("ValueError", "index 7 of 3"))


PORT = """\
def first(values):
    return values[len(values)]


def second(values):
    return [values[at] for at in range(len(values) + 1)]


def chunk_offsets(cu_seqlens, chunk_size):
    return first([]) if len(cu_seqlens) > 1 else second([])


STATECHECK_PROTOCOL = 2
"""


def raising_case(folder: Path, source: str, starts: list[int]) -> Case:
    """The failing case of a port that raises, whatever it is asked."""
    linecache.clearcache()
    with module(folder, "raising_port", source) as name:
        subject = load(name)
        context = ExecutionContext(subject, InProcess(subject, "cpu"))
        trial = context.begin(a_property())
        with pytest.raises(Falsified) as falsified:
            trial.agrees(call("prepare_chunk_offsets", cu_seqlens=int32(starts), chunk_size=4))
    return falsified.value.case


def test_an_exception_has_the_line_of_the_port_that_it_came_from(tmp_path: Path) -> None:
    case = raising_case(tmp_path, PORT, [0, 5])
    (outcome,) = case.actual
    assert isinstance(outcome, Raised)
    assert outcome.at == SourceLine("raising_port.py", 2, "first", "return values[len(values)]")
    assert "IndexError: list index out of range (raising_port.py:2 in first), but should be" in case.message
    assert line_of(Case.from_json(case.to_json()).actual[0]) == "first: return values[len(values)]"
    assert outcome == replace(outcome, at=None)
    assert str(tmp_path) not in report_text(case, subject_of(case))


def test_two_lines_that_raise_alike_are_two_buckets_and_two_causes(tmp_path: Path) -> None:
    first, other = (raising_case(tmp_path, PORT, starts) for starts in ([0, 5], [0]))
    assert bucket_of(first).rule == bucket_of(other).rule
    assert bucket_of(first).id != bucket_of(other).id
    assert cause_of(first).key != cause_of(other).key
    assert [cause_of(case).raised.partition(":")[0] for case in (first, other)] == ["first", "second"]


def test_a_line_that_moves_stays_in_its_bucket(tmp_path: Path) -> None:
    before = raising_case(tmp_path, PORT, [0, 5])
    after = raising_case(tmp_path, f"# A new comment.\n\n{PORT}", [0, 5])
    assert (":2 in" in before.message, ":4 in" in after.message) == (True, True)
    assert bucket_of(before) == bucket_of(after)
