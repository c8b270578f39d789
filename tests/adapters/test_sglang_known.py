"""Declared defects of SGLang's engine match the wrong states that they make, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import subjects
from statecheck.case import Case
from statecheck.case.values import Raised, Returned, call, record
from statecheck.subject.known import known_in
from statecheck.subject.profile import DOCUMENTS
from subjects.sglang_conditions import CONDITIONS
from tests.helpers.cases import a_case

FILE = Path(subjects.__file__).with_name("sglang_known.toml")
MIXED = "nothing-kept-in-a-mixed-batch"
GRID = "mamba2-rows-on-one-grid"
COPIES, ABORTED = "no-slot-while-copies-run", "aborted-past-its-end"
ALL = "session-replaced-as-a-whole"
"""Of all releases that are adapted."""
ENDS_AFTER = "should end after 5, by its stop token"
FIRST, SECOND = ("r0", 4, ()), ("r0", 8, ())


def scenario(
    found: tuple[Any, ...] = SECOND,
    *,
    prompt: int = 3,
    law: str = "published",
    between: Sequence[Mapping[str, Any]] = (),
    last: int | None = None,
    tokens: int = 4,
    ends: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Case:
    """A scenario that ends with a prefix of `tokens` tokens of r0 in whose slot another state is found; its last step computed `last` tokens before, or
    had the rows `ends`.
    """
    usual = {"strategy": "extra_buffer", "overlap": True}
    about = {"request": "r0", "tokens": tokens, "found": (found,), "conv": False, "group": 1, "block": 3}

    def step(computed: int, tokens: int, begins: bool, *findings: tuple[Any, ...]) -> Returned:
        row = {"computed": computed, "tokens": tokens, "drafts": 0, "begins": begins}
        return Returned(record("RadixStep", scheduled={"r0": row}, findings=findings))

    made = call("RadixEngine", settings=record("RadixSettings", **(usual | settings)), bind="engine")
    more = tuple(Returned(record("RadixStep", scheduled=rows, findings=())) for rows in between)
    steps = (made, *[call("RadixEngine.step", turns={})] * (2 + len(more)))
    finding = (law, "seen", "wanted", about)
    end = step(prompt if last is None else last, 1, False, finding)
    if ends is not None:
        end = Returned(record("RadixStep", scheduled=ends, findings=(finding,)))
    return a_case(steps=steps, actual=(Returned(None), step(0, prompt, True), *more, end))


def decode(computed: int) -> Mapping[str, Any]:
    return {"r0": {"computed": computed, "tokens": 1, "drafts": 0, "begins": False}}


def matches(case: Case, condition: str = "kept_in_the_same_slot") -> bool:
    return CONDITIONS[condition](case, DOCUMENTS)


def ids(release: str) -> list[str]:
    return [one.id for one in known_in(FILE, release, CONDITIONS)]


def test_the_defects_are_those_of_the_releases_that_have_them() -> None:
    of_transfers = ["conv-sent-in-one-slice", "whole-state-sent-in-slices"]
    of_refusals = [
        "refused-turn-of-a-new-session",
        "turn-beside-a-running-turn",
        "session-closed-beside-a-running-turn",
    ]
    of_sessions = [
        *of_refusals,
        "session-of-an-aborted-turn",
        "session-with-drafts",
        "turn-beside-a-retracted-turn",
        "turn-without-a-free-row",
    ]
    boundary, full = "boundary-behind-a-prefill", "lazy-boundary-in-a-full-pool"
    before_0_5_20 = [GRID, "copied-before-it-came-from-host-memory"]
    assert set(ids("0.5.19")) == {boundary, full, ALL, MIXED, *before_0_5_20}
    assert set(ids("0.5.20")) == set(ids("0.5.21")) == {boundary, full, ALL, MIXED}
    assert set(ids("0.5.22")) == {boundary, ALL, MIXED, *of_sessions}
    assert set(ids("0.5.23")) == {boundary, ALL, COPIES, ABORTED, *of_transfers, *of_sessions}


def test_a_state_of_the_next_boundary_is_known_behind_a_decode_that_passes_one_behind_a_prefill() -> None:
    assert matches(scenario())
    assert matches(scenario(between=[{}]))
    assert not matches(scenario(between=[decode(2)]))


def test_a_state_of_the_next_boundary_is_known_before_a_prefill() -> None:
    assert matches(scenario(prompt=2, between=[decode(2), decode(3), {}], last=4))
    assert not matches(scenario(prompt=2, between=[decode(2), decode(3)], last=4))


def test_the_next_boundary_is_that_of_the_settings() -> None:
    wide: dict[str, Any] = {"prompt": 7, "tokens": 8, "mamba_track_interval": 8}
    assert matches(scenario(("r0", 16, ()), **wide))
    assert not matches(scenario(("r0", 12, ()), **wide))


def test_a_state_at_the_boundary_in_flight_is_known_with_one_slot() -> None:
    lazy: dict[str, Any] = {"strategy": "extra_buffer_lazy", "prompt": 7}
    assert matches(scenario(**lazy), "passed_in_flight")
    assert matches(scenario(**lazy, tokens=6), "passed_in_flight")
    assert not matches(scenario(**lazy | {"prompt": 6}), "passed_in_flight")
    drafts = {"r0": {"computed": 6, "tokens": 3, "drafts": 2, "begins": False}}
    assert matches(scenario(**lazy | {"prompt": 6}, ends=drafts), "passed_in_flight")
    assert not matches(scenario(**lazy, ends={"r0": drafts["r0"] | {"computed": 8}}), "passed_in_flight")
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


def test_a_stale_state_in_the_slot_of_a_mixed_batch_is_known() -> None:
    chunk = {"computed": 0, "tokens": 3, "drafts": 0, "begins": True}
    mixed: dict[str, Any] = {"between": [{**decode(2), "r1": chunk}], "mixed": True}
    assert matches(scenario(("r1", 7, ()), **mixed), "mixed_batch")


def test_a_hit_of_a_prefix_from_a_mixed_batch_is_known_in_the_turn_in_which_it_begins() -> None:
    chunk = {"computed": 0, "tokens": 3, "drafts": 0, "begins": True}
    hit: dict[str, Any] = {"r0": {"computed": 4, "tokens": 3, "drafts": 0, "begins": True}}
    mixed: dict[str, Any] = {"between": [{**decode(2), "r1": chunk}], "mixed": True, "law": "read"}
    nothing, known = ("?", 0, ()), "hit_of_a_mixed_batch"
    assert matches(scenario(nothing, **mixed, ends=hit), known)
    assert not matches(scenario(nothing, **mixed, ends={"r0": hit["r0"] | {"begins": False}}), known)
    assert not matches(scenario(nothing, **mixed, ends={"r0": hit["r0"] | {"computed": 0}}), known)
    assert not matches(scenario(nothing, **mixed | {"mixed": False}, ends=hit), known)
    assert not matches(scenario(nothing, **mixed | {"between": [decode(2)]}, ends=hit), known)


def test_a_state_that_was_not_kept_is_known_behind_a_mixed_batch() -> None:
    nothing = ("?", 0, ())
    chunk = {"computed": 0, "tokens": 3, "drafts": 0, "begins": True}
    mixed: dict[str, Any] = {"between": [{**decode(2), "r1": chunk}], "mixed": True}
    assert matches(scenario(nothing, **mixed), "mixed_batch")
    assert not matches(scenario(SECOND, **mixed), "mixed_batch")
    assert not matches(scenario(nothing, **mixed | {"mixed": False}), "mixed_batch")
    assert not matches(scenario(nothing, **mixed | {"between": [decode(2)]}), "mixed_batch")


def happened(*named: tuple[str, Mapping[str, Any]], actual: Sequence[Returned] = (), **settings: Any) -> Case:
    """A scenario of these calls, and a step."""
    made = call("RadixEngine", settings=record("RadixSettings", **settings), bind="engine")
    steps = (
        made,
        *(call(f"RadixEngine.{name}", **given) for name, given in named),
        call("RadixEngine.step", turns={}),
    )
    return a_case(steps=steps, actual=tuple(actual))


def turn(session: str = "s0", after: str = "", **more: Any) -> tuple[str, Mapping[str, Any]]:
    usual = {"id": "r0", "prompt": (1,), "sent": (1,), "replaces": False}
    return "add_turn", {"session": session, "after": after} | usual | more


STEP: tuple[str, Mapping[str, Any]] = ("step", {"turns": {}})
OPENED: tuple[str, Mapping[str, Any]] = ("open_session", {"id": "s0", "streaming": True})


def test_a_turn_that_replaces_all_is_known_behind_another_one_of_its_session() -> None:
    first, replacing = turn(), turn(replaces=True)
    assert matches(happened(first, replacing), "replaces_all")
    assert matches(happened(first, STEP, replacing), "replaces_all")
    assert not matches(happened(replacing), "replaces_all")
    assert not matches(happened(turn("s1"), replacing), "replaces_all")
    assert not matches(happened(first, replacing, STEP), "replaces_all")
    assert not matches(happened(first, turn(after="r0", replaces=True)), "replaces_all")


def in_session(*named: tuple[str, Mapping[str, Any]], ends: str = "", raised: str = "") -> Case:
    """Calls of an engine whose streaming session s0 has a turn; the first step ends that one, or none."""
    case = happened(OPENED, turn(), *named)
    outcomes: list[Any] = []
    for one in case.calls:
        finished = (ends,) if ends and one.function.endswith(".step") else ()
        outcomes.append(Returned(record("RadixStep", finished=finished, scheduled={}, findings=())))
    if raised:
        outcomes[-1] = Raised("AssertionError", raised)
    return replace(case, actual=tuple(outcomes))


def test_each_way_in_which_a_refused_turn_fails_is_known_by_its_cause() -> None:
    refused, closed = turn(id="r1", prompt=(0,)), ("close_session", {"id": "s0"})
    third = turn(id="r2", prompt=(0,))
    taken, beside, close = (
        "refused_before_a_record",
        "taken_beside_a_running_turn",
        "closed_beside_a_running_turn",
    )
    message = "session_id='s0' already has a slot"
    assert matches(in_session(refused, raised=message), taken)
    assert not matches(in_session(refused, raised="a reused row must carry allocated KV"), taken)
    assert not matches(in_session(raised=message), taken)
    assert matches(in_session(refused, STEP, third), beside)
    assert not matches(in_session(refused, STEP), beside)
    assert not matches(in_session(STEP, refused, third, ends="r0"), close)
    assert not matches(in_session(STEP, refused, ends="r0"), beside)
    assert matches(in_session(refused, STEP, closed), close)
    assert matches(in_session(refused, STEP, closed, raised="of release_kv_cache"), close)
    assert not matches(in_session(STEP, closed), close)
    assert not matches(in_session(refused, STEP, third), close)
    assert not matches(happened(turn(), refused, third, closed), beside)


def test_an_aborted_turn_is_known_behind_a_pause_if_its_session_is_closed() -> None:
    pause, abort, close = (
        ("pause", {"retract": True}),
        ("abort", {"id": "r0"}),
        ("close_session", {"id": "s0"}),
    )
    in_place = ("pause", {"retract": False})
    assert matches(happened(OPENED, turn(), pause, abort, close), "retracted_and_aborted")
    assert not matches(happened(OPENED, turn(), abort, pause, close), "retracted_and_aborted")
    assert not matches(happened(OPENED, turn(), in_place, abort, close), "retracted_and_aborted")
    assert matches(happened(OPENED, turn(), close, pause, abort), "retracted_and_aborted")
    assert not matches(happened(OPENED, turn(), pause, abort), "retracted_and_aborted")
    assert not matches(happened(turn(), pause, abort, close), "retracted_and_aborted")


def test_a_turn_behind_an_aborted_one_is_known_if_a_pause_sent_that_back() -> None:
    pause, abort, known = (
        ("pause", {"retract": True}),
        ("abort", {"id": "r0"}),
        "retracted_aborted_and_continued",
    )
    assert matches(happened(OPENED, turn(), pause, abort, turn(id="r1")), known)
    assert matches(happened(OPENED, turn(), abort, pause, turn(id="r1")), known)
    assert matches(in_session(abort, pause, STEP, turn(id="r1"), ends="r0"), known)
    assert not matches(in_session(abort, STEP, pause, turn(id="r1"), ends="r0"), known)
    assert not matches(in_session(pause, STEP, abort, turn(id="r1"), ends="r0"), known)
    assert not matches(happened(OPENED, turn(), turn(id="r1"), pause, abort), known)
    assert not matches(happened(OPENED, turn(), pause, abort), known)
    assert not matches(happened(turn(), pause, abort, turn(id="r1")), known)


def test_a_request_that_waits_is_known_where_the_row_of_an_aborted_turn_is_lost() -> None:
    pause, abort, close = (
        ("pause", {"retract": True}),
        ("abort", {"id": "r0"}),
        ("close_session", {"id": "s0"}),
    )
    known = "retracted_and_aborted_with_few_rows"
    assert matches(happened(OPENED, turn(), pause, abort, close, max_running_requests=1), known)
    assert not matches(happened(OPENED, turn(), pause, abort, close, max_running_requests=2), known)
    assert not matches(happened(OPENED, turn(), pause, close, max_running_requests=1), known)


def test_a_turn_that_waits_is_known_where_sessions_keep_all_rows() -> None:
    def waits(*named: tuple[str, Mapping[str, Any]], rows: int = 1, aborted: tuple[str, ...] = ()) -> Case:
        """The first step ends r0, and no other one anything."""
        case = happened(OPENED, turn(), STEP, *named, max_running_requests=rows)
        outcomes = []
        for at, _ in enumerate(case.calls):
            ended = ("r0",) if at == 3 else ()
            ran = {"scheduled": dict.fromkeys(ended), "finished": ended, "aborted": aborted if ended else ()}
            outcomes.append(Returned(record("RadixStep", **ran, findings=())))
        return replace(case, actual=tuple(outcomes))

    later, known, closed = turn(id="r1"), "waits_for_a_free_row", ("close_session", {"id": "s0"})
    assert matches(waits(later), known)
    assert matches(waits(later, closed), known)
    assert not matches(waits(later, rows=2), known)
    assert not matches(waits(later, aborted=("r0",)), known)
    assert not matches(waits(closed), known)
    assert not matches(waits(turn("s1", id="r1"), closed), known)
    assert not matches(waits(turn(id="r1", prompt=(0,))), known)


def test_a_turn_is_known_behind_a_turn_that_was_sent_back_and_has_not_ended() -> None:
    pause, later, known = ("pause", {"retract": True}), turn(id="r1"), "taken_behind_a_retracted_turn"
    assert matches(in_session(STEP, pause, later), known)
    assert matches(in_session(STEP, pause, STEP, later), known)
    assert not matches(in_session(STEP, ("pause", {"retract": False}), later), known)
    assert not matches(in_session(STEP, later, pause), known)
    assert not matches(in_session(pause, STEP, later, ends="r0"), known)
    assert not matches(happened(turn(), STEP, pause, later), known)


def test_a_state_of_other_tokens_is_known_where_a_row_of_mamba2_begins_inside_of_a_chunk() -> None:
    def rows(first: int) -> dict[str, Any]:
        row = {"computed": 0, "drafts": 0, "begins": True}
        return {"r1": row | {"tokens": first}, "r2": row | {"tokens": 5}}

    mamba2: dict[str, Any] = {"kind": "mamba2", "between": [rows(6)]}
    other, known = ("r1", 6, ()), "off_the_grid"
    assert matches(scenario(other, **mamba2), known)
    assert not matches(scenario(SECOND, **mamba2), known)
    assert not matches(scenario(other, **mamba2 | {"between": [rows(8)]}), known)
    assert not matches(scenario(other, **mamba2 | {"between": [{**decode(5), "r1": decode(6)["r0"]}]}), known)
    assert not matches(scenario(other, **mamba2 | {"kind": "gdn"}), known)
    hit = {"r3": {"computed": 4, "tokens": 1, "drafts": 0, "begins": True}}
    read = scenario(other, **mamba2, law="read", ends={"r0": hit["r3"]})
    assert matches(read, "hit_off_the_grid")
    late = scenario(other, **mamba2, law="read", ends={"r0": hit["r3"] | {"begins": False}})
    assert not matches(late, "hit_off_the_grid")


def test_a_state_of_a_request_that_begins_otherwise_is_new() -> None:
    added = {"r0": (1, 2, 3), "r1": (7, 8, 9)}
    calls = [
        call("RadixEngine.add_request", id=name, prompt=tokens, max_tokens=1)
        for name, tokens in added.items()
    ]
    alike, other = scenario(), scenario(("r1", 8, ()), between=[{"r1": decode(3)["r0"]}])
    for case, known in ((alike, True), (other, False)):
        assert matches(replace(case, steps=(case.steps[0], *calls, *case.steps[1:]))) is known


def test_a_copy_before_a_late_load_is_known_where_another_request_comes_back_at_once() -> None:
    def read(late: int = 1, policy: str = "write_through", other: int = 4, computed: int = 4) -> Case:
        added: list[tuple[str, Mapping[str, Any]]] = [
            ("delay_copies", {"to_host": 0, "from_host": late}),
            ("add_request", {"id": "r1", "prompt": (1, 2, 3, other, 5), "max_tokens": 1}),
            ("add_request", {"id": "r2", "prompt": (1, 2, 3, 4, 6), "max_tokens": 1}),
        ]
        row = {"computed": computed, "tokens": 1, "drafts": 0, "begins": True}
        finding = ("read", "seen", "wanted", {"request": "r2", "found": (("r0", 7, ()),)})
        last = Returned(record("RadixStep", scheduled={"r1": row, "r2": row}, findings=(finding,)))
        return happened(*added, actual=(last,), host_policy=policy)

    known = "copied_before_it_came"
    assert matches(read(), known)
    assert not matches(read(late=0), known)
    assert not matches(read(policy=""), known)
    assert not matches(read(other=9), known)
    assert not matches(read(computed=0), known)


def test_a_batch_of_decodes_and_prefills_counts_as_a_prefill_beside_a_decode() -> None:
    chunk = {"computed": 0, "tokens": 3, "drafts": 0, "begins": True}
    mixed = [{**decode(2), "r1": chunk}, decode(3)]
    assert matches(scenario(prompt=2, between=mixed, last=4))
    assert not matches(scenario(prompt=2, between=[decode(2), decode(3)], last=4))


def test_the_last_token_of_a_turn_is_known_with_drafts() -> None:
    def ended(computed: int, drafts: int = 3) -> Case:
        row = {"r1": {"computed": computed, "tokens": 1, "drafts": 0, "begins": True}}
        finding = ("attention", "seen", "wanted", {"request": "r1"})
        seen = Returned(record("RadixStep", scheduled=row, findings=(finding,)))
        later = turn(id="r1", prompt=(1, 7, 8, 2), sent=(2,))
        return happened(OPENED, turn(), STEP, later, actual=(seen,), num_draft_tokens=drafts)

    assert matches(ended(3), "last_token_of_a_turn")
    assert not matches(ended(2), "last_token_of_a_turn")
    assert not matches(ended(3, drafts=0), "last_token_of_a_turn")


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


def test_a_failed_allocation_is_known_while_prefixes_are_copied_to_host_memory() -> None:
    def fails(policy: str, late: int, message: str = "Can not alloc mamba cache") -> Case:
        delayed = ("delay_copies", {"to_host": late, "from_host": 0})
        raised: tuple[Any, ...] = (Raised("AssertionError", message),)
        return happened(delayed, STEP, actual=raised, host_policy=policy)

    known = "no_slot_while_copies_run"
    assert matches(fails("write_through", 3), known)
    assert matches(fails("write_through_selective", 1), known)
    assert not matches(fails("write_through", 0), known)
    assert not matches(fails("write_back", 3), known)
    assert not matches(fails("", 3), known)
    assert matches(fails("write_through", 3, "Not enough space for mamba ping pong idx, try"), known)
    assert not matches(fails("write_through", 3, "Not enough space for mamba cache"), known)


def test_a_state_of_another_layer_is_no_known_defect() -> None:
    other = ("@", 0, ())
    assert not matches(scenario(other), "kept_in_the_same_slot")
    assert not matches(scenario(other, mixed=True, between=[decode(3)]), "mixed_batch")


def test_tokens_behind_the_end_are_known_of_a_request_that_was_aborted_with_drafts() -> None:
    def says(
        count: int = 7, *, drafts: int = 3, aborted: tuple[str, ...] = ("r0",), wanted: str = ENDS_AFTER
    ) -> Case:
        finding = ("output", f"r0 says {count} tokens", wanted, {"request": "r0"})
        last = record(
            "RadixStep",
            scheduled={},
            findings=(finding,),
            outputs={"r0": (1, 2, 3)},
            aborted=aborted,
        )
        return happened(STEP, actual=(Returned(last),), num_draft_tokens=drafts)

    known = "aborted_past_its_end"
    assert matches(says(), known)
    assert matches(says(wanted="should end after 5, by its length"), known)
    assert not matches(says(aborted=()), known)
    assert not matches(says(drafts=0), known)
    assert not matches(says(count=8), known)
    assert not matches(says(wanted="should say [1, 2, 4], as with every feature off"), known)
