"""Declared defects of SGLang's engine match the wrong states that they make, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import subjects
from oracle.profile import DOCUMENTS
from statecheck.case import Case
from statecheck.case.values import Returned, call, record
from statecheck.subject.known import known_in
from subjects.sglang_conditions import CONDITIONS
from tests.breakages.broken import a_case

FILE = Path(subjects.__file__).with_name("sglang_known.toml")
ALL = "session-replaced-as-a-whole"
"""Of all releases that are adapted."""
FIRST, SECOND = ("r0", 4, ()), ("r0", 8, ())


def scenario(
    found: tuple[Any, ...] = SECOND,
    *,
    prompt: int = 3,
    law: str = "published",
    between: Sequence[Mapping[str, Any]] = (),
    last: int | None = None,
    tokens: int = 4,
    **settings: Any,
) -> Case:
    """A scenario that ends with a prefix of `tokens` tokens of r0 in whose slot another state is found; its last step computed `last` tokens before."""
    usual = {"strategy": "extra_buffer", "overlap": True}
    about = {"request": "r0", "tokens": tokens, "found": (found,), "conv": False, "group": 1, "block": 3}

    def step(computed: int, tokens: int, begins: bool, *findings: tuple[Any, ...]) -> Returned:
        row = {"computed": computed, "tokens": tokens, "drafts": 0, "begins": begins}
        return Returned(record("RadixStep", scheduled={"r0": row}, findings=findings))

    made = call("RadixEngine", settings=record("RadixSettings", **(usual | settings)), bind="engine")
    more = tuple(Returned(record("RadixStep", scheduled=rows, findings=())) for rows in between)
    steps = (made, *[call("RadixEngine.step", turns={})] * (2 + len(more)))
    end = step(prompt if last is None else last, 1, False, (law, "seen", "wanted", about))
    return a_case(steps=steps, actual=(Returned(None), step(0, prompt, True), *more, end))


def decode(computed: int) -> Mapping[str, Any]:
    return {"r0": {"computed": computed, "tokens": 1, "drafts": 0, "begins": False}}


def matches(case: Case, condition: str = "kept_in_the_same_slot") -> bool:
    return CONDITIONS[condition](case, DOCUMENTS)


def ids(release: str) -> list[str]:
    return [one.id for one in known_in(FILE, release, CONDITIONS)]


def test_the_defects_are_those_of_the_releases_that_have_them() -> None:
    assert ids("0.5.18") == ["boundary-behind-a-prefill", ALL]
    assert ids("0.5.23") == [*ids("0.5.18"), "conv-sent-in-one-slice", "whole-state-sent-in-slices"]
    assert ids("0.5.17") == ids("0.5.14") == ["boundary-found-twice", "lazy-boundary-in-flight", ALL]
    assert ids("0.5.12") == [ALL]
    assert ids("0.5.5") == []


def test_a_state_of_the_next_boundary_is_known_behind_a_decode_that_passes_one_behind_a_prefill() -> None:
    assert matches(scenario())
    assert matches(scenario(between=[{}]))
    assert not matches(scenario(between=[decode(2)]))


def test_a_state_of_the_next_boundary_is_known_before_a_prefill() -> None:
    assert matches(scenario(prompt=2, between=[decode(2), decode(3), {}], last=4))
    assert not matches(scenario(prompt=2, between=[decode(2), decode(3)], last=4))


def test_another_state_is_known_before_a_prefill() -> None:
    nothing, earlier = ("?", 0, ()), ("r0", 2, ())
    rows: dict[str, Any] = {"prompt": 2, "between": [decode(2), decode(3), {}], "last": 4}
    assert matches(scenario(nothing, **rows), "kept_in_the_other_slot")
    assert matches(scenario(earlier, **rows), "kept_in_the_other_slot")
    assert not matches(scenario(SECOND, **rows), "kept_in_the_other_slot")
    assert not matches(
        scenario(nothing, **rows | {"between": [decode(2), decode(3)]}), "kept_in_the_other_slot"
    )


def test_a_state_at_the_boundary_in_flight_is_known_with_one_slot() -> None:
    lazy: dict[str, Any] = {"strategy": "extra_buffer_lazy", "prompt": 7}
    assert matches(scenario(**lazy), "passed_in_flight")
    assert matches(scenario(**lazy, tokens=6), "passed_in_flight")
    assert not matches(scenario(**lazy | {"prompt": 6}), "passed_in_flight")
    assert not matches(scenario(FIRST, **lazy), "passed_in_flight")
    assert not matches(scenario(prompt=7), "passed_in_flight")


@pytest.mark.parametrize(
    "other",
    [
        scenario(prompt=2),
        scenario(FIRST),
        scenario(("r0", 7, ())),
        scenario(("r1", 8, ())),
        scenario(("r0", 8, (9,))),
        scenario(law="owned"),
        scenario(overlap=False),
        scenario(strategy="extra_buffer_lazy"),
    ],
)
def test_any_other_wrong_state_is_new(other: Case) -> None:
    assert not matches(other)


def turns(*given: tuple[str, str, bool]) -> Case:
    """Turns of sessions, each with the request that it continues and whether it replaces, and a step that raises."""
    made = call("RadixEngine", settings=record("RadixSettings"), bind="engine")
    added = [
        call("RadixEngine.step", turns={})
        if session == "step"
        else call("RadixEngine.add_turn", session=session, after=after, replaces=replaces)
        for session, after, replaces in given
    ]
    return a_case(steps=(made, *added, call("RadixEngine.step", turns={})))


def test_a_turn_that_replaces_all_is_known_behind_another_one_of_its_session() -> None:
    first, replacing = ("s0", "", False), ("s0", "", True)
    assert matches(turns(first, replacing), "replaces_all")
    assert matches(turns(first, ("step", "", False), replacing), "replaces_all")
    assert not matches(turns(replacing), "replaces_all")
    assert not matches(turns(("s1", "", False), replacing), "replaces_all")
    assert not matches(turns(first, replacing, ("step", "", False)), "replaces_all")
    assert not matches(turns(first, ("s0", "r0", True)), "replaces_all")


def sent(model: str, source_tp: int, target_tp: int, **sizes: int) -> Case:
    """A transfer of states between engines with so many ranks."""
    made = call(
        "StateTransfer.nixl",
        model=model,
        sizes=tuple(sizes.items()),
        source_tp=source_tp,
        target_tp=target_tp,
    )
    return a_case(steps=(made,), actual=(Returned(()),))


def test_a_slice_of_a_convolution_is_known_for_models_without_parts_and_unequal_ranks() -> None:
    assert matches(sent("nemotron_h", 2, 1), "sent_in_one_slice")
    assert not matches(sent("nemotron_h", 2, 2), "sent_in_one_slice")
    assert not matches(sent("qwen3_next", 2, 1), "sent_in_one_slice")


def test_a_slice_behind_a_slot_is_known_where_all_ranks_have_the_same() -> None:
    assert matches(sent("mamba2", 2, 1, n_groups=1), "one_group_in_slices")
    assert not matches(sent("mamba2", 2, 1, n_groups=2), "one_group_in_slices")
    assert matches(sent("zaya", 2, 1), "whole_state_in_slices")
    assert not matches(sent("mamba2", 2, 1), "whole_state_in_slices")
