"""Inputs that a subject's contract leaves out are not tried, are counted apart, and never pass for a success."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from statecheck.case.values import Call, Tensor, call
from statecheck.execution.example import ExecutionContext, OutsideDomain
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.subject.profile import DOCUMENTS, Profile
from subjects import NotOffered, Outside, load
from subjects.plain import adapted
from tests.helpers.cases import PAGES, a_property, toy, toy_of_pages

NEGATIVE = Outside("div*", "negative numbers", lambda asked: asked.named["x"] < 0)


def context_of(divide: Callable[[int, int], Any], **fields: Any) -> ExecutionContext:
    subject = toy(divide=divide)
    vars(subject).update(fields)
    return ExecutionContext(subject, InProcess(subject, "cpu"))


def leave(context: ExecutionContext, *steps: Call) -> str:
    """Why an example with these steps says nothing."""
    with pytest.raises(OutsideDomain) as caught:
        context.begin(a_property()).agrees(*steps)
    return str(caught.value)


def untouched(x: int, y: int) -> int:
    raise AssertionError(f"no call should divide {x} by {y}")


def test_an_input_that_is_outside_is_never_tried() -> None:
    context = context_of(untouched, outside=(NEGATIVE,))
    assert leave(context, call("divide", x=-1, y=1)) == "negative numbers"
    assert context.counts.outside == {"negative numbers": 1}


def test_calls_before_an_input_outside_count() -> None:
    context = context_of(lambda x, y: 7, outside=(NEGATIVE,))
    with pytest.raises(AssertionError, match="should be 3"):
        context.begin(a_property()).agrees(call("divide", x=6, y=2))


def test_refused_input_is_outside_for_a_subject_that_does_not_promise_refusals() -> None:
    assert leave(context_of(untouched, refuses=False), call("divide", x=6, y=0)) == "the rules refuse y"


def test_a_subject_that_promises_refusals_is_held_to_them() -> None:
    with pytest.raises(AssertionError, match="should be ValueError that names y"):
        context_of(lambda x, y: 0).begin(a_property()).agrees(call("divide", x=6, y=0))


def missing(x: int, y: int) -> int:
    raise NotOffered(f"no division of {x} by {y}")


def test_a_call_that_a_release_does_not_offer_is_outside() -> None:
    context = context_of(missing, refuses=False)
    assert leave(context, call("divide", x=6, y=2)) == "no division of 6 by 2"


def test_a_kept_step_that_a_release_does_not_offer_is_outside() -> None:
    with pytest.raises(OutsideDomain, match="no division of 6 by 2"):
        context_of(missing).begin(a_property()).keep(call("divide", x=6, y=2))


def test_refusals_are_not_applicable_to_who_does_not_promise_them() -> None:
    tested = a_property(kind="refusal")
    assert tested.not_applicable(context_of(untouched)) is None
    reason = tested.not_applicable(context_of(untouched, refuses=False))
    assert reason == "toy does not promise to refuse what is undocumented"


ALWAYS = Outside("div*", "numbers")


def test_a_property_all_of_whose_functions_are_outside_is_not_applicable() -> None:
    context = context_of(untouched, outside=(ALWAYS,))
    assert a_property().not_applicable(context) == "numbers"
    assert leave(context, call("divide", x=6, y=2)) == "numbers"


def test_a_property_of_which_some_inputs_are_inside_is_applicable() -> None:
    assert a_property().not_applicable(context_of(untouched, outside=(NEGATIVE,))) is None
    context = context_of(untouched, outside=(ALWAYS,))
    vars(context.subject.module)["cdiv"] = untouched
    assert a_property(functions=("divide", "cdiv")).not_applicable(context) is None


def test_orders_of_programs_are_not_applicable_where_kernels_are_compiled() -> None:
    context, tested = context_of(untouched), a_property(kind="order-free")
    assert tested.not_applicable(context) is None
    context.port.device = "cuda"
    assert tested.not_applicable(context) == (
        "where kernels are compiled, on cuda, programs run in an order of the device's own"
    )


def test_an_order_in_which_no_programs_ran_is_no_evidence() -> None:
    context = context_of(lambda x, y: x // y)
    a_property(lambda trial: trial.agrees(call("divide", x=6, y=2)), kind="order-free").example(context)
    assert (context.counts.compared, context.counts.vacuous) == (0, 0)
    assert context.counts.reasons == "no launch of several programs, which could run in another order"


@pytest.mark.usefixtures("executed")
def test_an_order_in_which_programs_ran_is_evidence() -> None:
    subject = load("impl")
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    load_properties()["copy-meta/program-order"].explore(context, seed=1, max_examples=6)
    counts = context.counts
    assert counts.compared > 0
    assert counts.compared + counts.no_evidence.total() + counts.discarded == counts.examples


OTHER = Profile(kept_pages_of_drafts=True)


@pytest.mark.parametrize(("profile", "pages"), [(DOCUMENTS, 3), (OTHER, 5)])
def test_a_trial_asks_the_rules_of_its_subject_s_release(profile: Profile, pages: int) -> None:
    subject = toy_of_pages(pages, profile)
    ExecutionContext(subject, InProcess(subject, "cpu")).begin(a_property()).agrees(PAGES)


@dataclass(frozen=True)
class Drawn:
    """An input from which every release is taken through steps of its own."""

    profile: Profile = DOCUMENTS

    def of_release(self, profile: Profile) -> Drawn:
        return replace(self, profile=profile)


def test_a_drawn_input_is_for_the_release_of_the_subject_from_the_first_one_on() -> None:
    seen = list[Profile]()
    first, second = context_of(untouched, profile=OTHER), context_of(untouched)
    tested = a_property(
        lambda trial, drawn: seen.append(drawn.profile), strategies={"drawn": st.builds(Drawn)}
    )
    tested.explore(first, seed=1, max_examples=3)
    assert seen
    assert all(profile is OTHER for profile in seen)
    tested.explore(second, seed=1, max_examples=1)
    assert seen[-1] is DOCUMENTS


@pytest.mark.parametrize(("declared", "is_outside"), [({}, False), ({"EMPTY_SEQUENCES": False}, True)])
def test_a_port_without_empty_sequences_is_not_asked_about_one(
    declared: dict[str, bool], is_outside: bool
) -> None:
    port = ModuleType("my_port")
    vars(port).update(STATECHECK_PROTOCOL=2, chunk_offsets=lambda cu_seqlens, chunk_size: [], **declared)
    outside = adapted(port).outside
    for starts, empty in (((0, 0), True), ((0, 64, 64, 70), True), ((0, 64, 70), False)):
        asked = call(
            "prepare_chunk_offsets", cu_seqlens=Tensor("int32", (len(starts),), starts), chunk_size=64
        )
        assert any(rule.holds(asked) for rule in outside) == (is_outside and empty)
