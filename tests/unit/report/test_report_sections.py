"""Reports fit where they are pasted, say what they leave out, and show what a port itself is called with."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from examples import numpy_port
from statecheck.case import Case
from statecheck.case.bucket import cause_of
from statecheck.case.values import (
    Call,
    Expected,
    Let,
    Outcome,
    Overwrite,
    Raised,
    Refusal,
    Returned,
    Tensor,
    call,
    int32,
)
from statecheck.diagnose.attribution import with_own_calls
from statecheck.execution.registry import load_properties
from statecheck.reference import answered, rule_for
from statecheck.report.failure import rule_of, served_text
from statecheck.report.render import MOST, report_body, report_page, report_text
from statecheck.subject import is_documented
from subjects.plain import adapted
from tests.helpers.cases import a_case, case_of, subject_of
from tests.helpers.hunts import hunt
from tests.unit.campaign.nightly_examples import parsed

FOLDED = re.compile(r"<details>\n<summary>(.*?)</summary>\n\n.*?\n\n</details>", re.DOTALL)


def many_calls(right: int, wrong: int, **changes: Any) -> Case:
    """Calls whose outcomes are as expected, and then calls whose outcomes are not."""
    count = right + wrong
    expected = (Returned(1),) * count
    actual = (Returned(1),) * right + (Returned(2),) * wrong
    steps = tuple(call("divide", x=number, y=1) for number in range(count))
    message = f"result = 2, but should be 1 [divide(x={right}, y=1)]"
    return a_case(steps=steps, expected=expected, actual=actual, message=message, **changes)


def wrong_value(step: Call, **changes: Any) -> Case:
    """The call returns another number than it should."""
    message = f"result = 2, but should be 1 [{step.function}()]"
    return a_case(steps=(step,), expected=(Returned(1),), actual=(Returned(2),), message=message, **changes)


# How long it is.


@pytest.mark.parametrize(("right", "wrong"), [(0, 1), (3, 1), (3_000, 1), (1, 3_000), (0, 3_000)])
@pytest.mark.slow
def test_a_report_can_be_pasted(right: int, wrong: int) -> None:
    assert len(report_text(many_calls(right, wrong), subject_of(many_calls(right, wrong)))) <= MOST


def test_calls_that_differ_stand_in_the_open_and_others_are_folded() -> None:
    text = report_text(many_calls(3, 1), subject_of(many_calls(3, 1)))
    (folded,) = FOLDED.finditer(text)
    assert folded[1] == "3 other calls, which came out as the rules expect"
    assert ["`divide(x=2" in part for part in (folded[0], FOLDED.sub("", text))] == [True, False]
    assert "`divide(x=3, y=1)`\n```text\nexpected    1\nactual      2\n" in FOLDED.sub("", text)


@pytest.mark.slow
def test_a_report_says_how_much_it_leaves_out_and_where_that_is() -> None:
    text = report_text(many_calls(3_000, 1), subject_of(many_calls(3_000, 1)))
    (left_out,) = re.findall(r"\*\*([\d,]+) more calls left out here, so that", text)
    shown = text.count("```text\nactual ")
    assert shown + int(left_out.replace(",", "")) == 3_000
    assert "`case.json` has everything" in text


@pytest.mark.slow
def test_the_commands_that_run_a_case_again_are_never_left_out() -> None:
    text = report_text(many_calls(1, 3_000), subject_of(many_calls(1, 3_000)))
    assert "## Run it again\n" in text
    assert "## Environment\n" in text


def test_a_long_input_is_folded_and_stays_python() -> None:
    pool = Let("pool0", Tensor("uint8", (40_000,), bytes(range(250)) * 160))
    written = Overwrite("pool0", bytes(range(250)) * 160)
    case = a_case()
    long = replace(case, steps=(pool, *case.steps, written))
    text = report_text(long, subject_of(long))
    (block,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    assert len(block) < 1_000
    assert "pool0[...] = ...  # " in block
    ast.parse(block)


# The page.


def test_folds_of_a_report_are_folds_of_its_page() -> None:
    body = parsed(report_page(report_text(many_calls(3, 1), subject_of(many_calls(3, 1)))))[1]
    (fold,) = body.iter("{http://www.w3.org/1999/xhtml}details")
    assert fold[0].text == "3 other calls, which came out as the rules expect"


@pytest.mark.parametrize(
    "text", ["# a\n\n<details>\n<summary>x</summary>\n", "# a\n\n</details>\n\n<b>b</b>\n"]
)
def test_other_markup_of_a_report_is_text_on_its_page(text: str) -> None:
    assert "<details>" not in report_body(text)
    assert "<b>" not in report_body(text)


# What it means.


def test_every_documented_function_has_a_rule_with_a_place() -> None:
    functions = [name for name in answered() if is_documented(name) and rule_for(name) is not None]
    assert len(functions) > 40
    for name in functions:
        rule = rule_of(a_case(steps=(call(name),)))
        assert rule is not None, name
        assert rule.source.startswith(("document", "contract")), name


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("MambaSpecDecodeGPUContext.run_fused_precopy", "when the request enters a new block"),
        ("postprocess_mamba_align_gpu", "A request that resumes from this state gets a wrong text"),
        ("prepare_chunk_offsets", "contains tokens of its neighbour"),
    ],
)
def test_a_report_says_what_a_served_text_would_show(function: str, words: str) -> None:
    assert words in served_text(wrong_value(call(function)))


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (Refusal("x"), Returned(1), "Wrong input is accepted"),
        (Refusal("x"), Raised("ValueError", "y"), "the error does not name"),
        (Returned(1), Raised("ValueError", "x"), "its requests end"),
    ],
)
def test_a_refusal_says_what_becomes_of_requests(expected: Expected, actual: Outcome, words: str) -> None:
    message = "the call = something, but should be something else"
    case = a_case(expected=(expected,), actual=(actual,), message=message)
    assert case.failure is not None
    assert words in served_text(replace(case, failure=replace(case.failure, kind="refusal")))


# What a port is called with.


def wrong_offsets(cu_seqlens: list[int], chunk_size: int) -> list[int]:
    return [7 for _ in cu_seqlens if chunk_size]


def moves_nothing(src_ptrs: Any, dst_ptrs: Any, sizes: Any) -> None:
    """A port that moves no run of bytes."""
    del src_ptrs, dst_ptrs, sizes


def port(**names: Any) -> ModuleType:
    found = ModuleType("toy_port")
    vars(found).update({"STATECHECK_PROTOCOL": 2} | names)
    return found


OFFSETS = call("prepare_chunk_offsets", cu_seqlens=int32([0, 5]), chunk_size=4)


def test_a_report_shows_how_the_port_s_own_function_was_called() -> None:
    subject = adapted(port(chunk_offsets=wrong_offsets))
    case = with_own_calls(case_of(subject, "cpu", OFFSETS), subject)
    own = "chunk_offsets(cu_seqlens=[0, 5], chunk_size=4)"
    assert case.own_calls == (own,)
    text = report_text(case, subject_of(case))
    open_ = FOLDED.sub("", text)
    assert f"`{own}`\n```text" in open_
    # Once: a single call needs no list, and a vector of a few elements no mark.
    assert open_.count(own) == 1
    assert "Calls of the port" not in text
    assert "^ element" not in text
    assert "prepare_chunk_offsets(" not in open_
    assert "; PROTOCOL.md, `chunk_offsets`)" in text


def test_a_failure_of_a_port_names_the_port_s_call_and_stays_in_its_bucket() -> None:
    subject = adapted(port(chunk_offsets=wrong_offsets))
    case = a_case(steps=(OFFSETS,), message="result[0] = 7, but should be 0 [prepare_chunk_offsets(x)]")
    assert case.failure is not None
    case = replace(case, failure=replace(case.failure, call=0))
    found = with_own_calls(case, subject)
    assert found.message == "result[0] = 7, but should be 0 [chunk_offsets(cu_seqlens=[0, 5], chunk_size=4)]"
    assert (cause_of(found).key, found.digest) == (cause_of(case).key, case.digest)


def test_states_and_addresses_that_a_port_is_handed_are_places_of_pools() -> None:
    """Addresses are other ones in every process."""
    subject = adapted(port(list_copies=numpy_port.list_copies, copy_runs=moves_nothing))
    tested = load_properties()["copy-meta/memmove"]
    caught = hunt(tested, subject, shrink=False)
    assert caught is not None
    message = "\n".join(with_own_calls(caught.case, subject).own_calls)
    assert re.search(
        r"^list_copies\(states=\[\(pool0\.view\(torch\.\w+\)\.as_strided\(\(\d", message, re.MULTILINE
    )
    assert re.search(
        r"^copy_runs\(src_ptrs=\[pool0 \+ \d+[^]]*\], dst_ptrs=\[pool0 \+ \d+", message, re.MULTILINE
    )


def test_a_case_that_ended_its_process_is_not_run_for_its_report() -> None:
    asked: list[object] = []
    subject = adapted(
        port(chunk_offsets=lambda cu_seqlens, chunk_size: asked.append((cu_seqlens, chunk_size)))
    )
    case = a_case(steps=(OFFSETS,), actual=(Raised("hang", "no answer within 1 s", kind="hang"),))
    assert with_own_calls(case, subject) == case
    assert asked == []
