"""Declared defects of SGLang's engine match the wrong states that they make, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import subjects
from statecheck.case import Case
from statecheck.case.values import Raised, Returned, SourceLine, View, boolean, call, int32, record
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


def happened(*named: tuple[str, Mapping[str, Any]], actual: Sequence[Any] = (), **settings: Any) -> Case:
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
PAUSE, IN_PLACE = ("pause", {"retract": True}), ("pause", {"retract": False})
ABORT, CLOSE = ("abort", {"id": "r0"}), ("close_session", {"id": "s0"})
FIRST_TURN, LATER = turn(), turn(id="r1")
REPLACES, REFUSED, THIRD = turn(replaces=True), turn(id="r1", prompt=(0,)), turn(id="r2", prompt=(0,))


def in_session(*named: tuple[str, Mapping[str, Any]], ends: str = "", raised: str = "") -> Case:
    """Calls of an engine whose streaming session s0 has a turn; the first step ends that one, or none."""
    case = happened(OPENED, turn(), *named)
    outcomes: list[Any] = []
    for call_ in case.calls:
        finished = (ends,) if ends and call_.function.endswith(".step") else ()
        outcomes.append(Returned(record("RadixStep", finished=finished, scheduled={}, findings=())))
    if raised:
        at = (
            SourceLine("memory_pool.py", 1, raised.removeprefix("at "), "")
            if raised.startswith("at ")
            else None
        )
        outcomes[-1] = Raised("AssertionError", raised, at=at)
    return replace(case, actual=tuple(outcomes))


def waits(*named: tuple[str, Mapping[str, Any]], rows: int = 1, aborted: tuple[str, ...] = ()) -> Case:
    """The first step ends r0, and no other one anything."""
    case = happened(OPENED, turn(), STEP, *named, max_running_requests=rows)
    outcomes = []
    for at, _ in enumerate(case.calls):
        ended = ("r0",) if at == 3 else ()
        ran = {"scheduled": dict.fromkeys(ended), "finished": ended, "aborted": aborted if ended else ()}
        outcomes.append(Returned(record("RadixStep", **ran, findings=())))
    return replace(case, actual=tuple(outcomes))


def two_begin(first: int) -> dict[str, Any]:
    """Rows of two requests that begin: the first with so many tokens."""
    row = {"computed": 0, "drafts": 0, "begins": True}
    return {"r1": row | {"tokens": first}, "r2": row | {"tokens": 5}}


def copied_late(late: int = 1, policy: str = "write_through", other: int = 4, computed: int = 4) -> Case:
    """Two requests come back in one step while states are loaded so late; the first one's fourth token is `other`."""
    added: list[tuple[str, Mapping[str, Any]]] = [
        ("delay_copies", {"to_host": 0, "from_host": late}),
        ("add_request", {"id": "r1", "prompt": (1, 2, 3, other, 5), "max_tokens": 1}),
        ("add_request", {"id": "r2", "prompt": (1, 2, 3, 4, 6), "max_tokens": 1}),
    ]
    row = {"computed": computed, "tokens": 1, "drafts": 0, "begins": True}
    finding = ("read", "seen", "wanted", {"request": "r2", "found": (("r0", 7, ()),)})
    last = Returned(record("RadixStep", scheduled={"r1": row, "r2": row}, findings=(finding,)))
    return happened(*added, actual=(last,), host_policy=policy)


def says_after_a_turn(computed: int, drafts: int = 3) -> Case:
    """A turn of four tokens, of which so many were computed, reads keys and values that are wrong."""
    row = {"r1": {"computed": computed, "tokens": 1, "drafts": 0, "begins": True}}
    finding = ("attention", "seen", "wanted", {"request": "r1"})
    seen = Returned(record("RadixStep", scheduled=row, findings=(finding,)))
    later = turn(id="r1", prompt=(1, 7, 8, 2), sent=(2,))
    return happened(OPENED, turn(), STEP, later, actual=(seen,), num_draft_tokens=drafts)


def sent(model: str, source_tp: int, target_tp: int, **sizes: int) -> Case:
    """A transfer of states between engines with so many ranks."""
    ranks = {"source_tp": source_tp, "target_tp": target_tp}
    made = call("StateTransfer.nixl", model=model, sizes=tuple(sizes.items()), **ranks)
    return a_case(steps=(made,), actual=(Returned(()),))


def convolution(tokens: int, *ends: int) -> Case:
    """A convolution of so many tokens, with rows that end there."""
    x = View("x", "float32", (tokens, 2), (2**31 // (tokens - 1) + 1, 1))
    made = call("Recurrences.conv_prefill", x=x, query_start_loc=int32([0, *ends]))
    return a_case(steps=(made,), actual=(Returned(()),))


def gated(tokens: int = 3, first: bool = True, slot: int = 0, stride: int = 2, **more: Any) -> Case:
    """A convolution of LFM2 with a row of so many tokens, and one without tokens that has a state."""
    x, weight = View("x", "bfloat16", (9, 2), (stride, 1)), View("weight", "bfloat16", (2, 3), (3, 1))
    plain = {"x": x, "weight": weight, "bias": None, "activation": None, **more}
    rows = {"slots": int32([slot, 1]), "query_start_loc": int32([0, tokens, tokens])}
    states, has_state = View("states", "bfloat16", (9, 2, 2), (4, 2, 1)), boolean([first, True])
    made = call("Recurrences.conv_prefill", **plain, **rows, states=states, has_state=has_state)
    return a_case(steps=(made,), actual=(Returned(()),))


def in_chunks(tokens: int, chunk: int) -> Case:
    """A call of SSD with so many tokens, in chunks of this size."""
    x = View("x", "float32", (tokens, 1, 2), (2**31 // (tokens - 1) + 1, 2, 1))
    made = call("Recurrences.ssd_prefill", x=x, chunk_size=chunk)
    return a_case(steps=(made,), actual=(Returned(()),))


def no_slot(policy: str, late: int, message: str = "Can not alloc mamba cache", idle: int = 0) -> Case:
    """An allocation fails with copies that are so late, some steps behind a step that has a row."""
    delayed = ("delay_copies", {"to_host": late, "from_host": 0})
    rows = [{"r0": {"begins": True}}, *[{}] * idle]
    ran = [Returned(record("RadixStep", scheduled=row, findings=())) for row in rows]
    ended = (Returned(None), Returned(None), *ran, Raised("AssertionError", message))
    return happened(delayed, *[STEP] * len(ran), actual=ended, host_policy=policy)


def says(count: int = 7, *, drafts: int = 3, aborted: tuple[str, ...] = ("r0",), **changes: Any) -> Case:
    """A request that says so many tokens, of which it has three in the last step."""
    about = {"request": "r0", "said": count, "end": 5, "ended": False} | changes
    finding = ("output", "r0 says more tokens", "should end", about)
    ran = {"outputs": {"r0": (1, 2, 3)}, "aborted": aborted}
    last = record("RadixStep", scheduled={}, findings=(finding,), **ran)
    return happened(STEP, actual=(Returned(last),), num_draft_tokens=drafts)


def begun_with(added: Mapping[str, tuple[int, ...]], case: Case) -> Case:
    """The case of requests with these prompts."""
    calls = [
        call("RadixEngine.add_request", id=name, prompt=prompt, max_tokens=1)
        for name, prompt in added.items()
    ]
    return replace(case, steps=(case.steps[0], *calls, *case.steps[1:]))


def begins(computed: int, tokens: int, begins: bool = True) -> dict[str, Any]:
    """A row of r0."""
    return {"r0": {"computed": computed, "tokens": tokens, "drafts": 0, "begins": begins}}


ALIKE = {"r0": (1, 2, 3), "r1": (7, 8, 9)}
NOTHING, ANOTHERS, OF_ANOTHER_LAYER = ("?", 0, ()), ("r1", 6, ()), ("@", 0, ())
WIDE: dict[str, Any] = {"prompt": 7, "tokens": 8, "mamba_track_interval": 8}
LAZY: dict[str, Any] = {"strategy": "extra_buffer_lazy", "prompt": 7}
DRAFTS = {"r0": {"computed": 6, "tokens": 3, "drafts": 2, "begins": False}}
CHUNK = {"r1": {"computed": 0, "tokens": 3, "drafts": 0, "begins": True}}
IN_A_MIXED_BATCH: dict[str, Any] = {"between": [{**decode(2), **CHUNK}], "mixed": True}
READ: dict[str, Any] = {**IN_A_MIXED_BATCH, "law": "read"}
MAMBA2: dict[str, Any] = {"kind": "mamba2", "between": [two_begin(6)]}
HAS_A_SLOT = "session_id='s0' already has a slot"


def ids(release: str) -> list[str]:
    return [known.id for known in known_in(FILE, release, CONDITIONS)]


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
    of_kernels = [
        "tokens-of-a-chunk-in-32-bits",
        "lightning-attention-in-32-bits",
        "kept-states-in-chunks",
        "gated-convolution-in-32-bits",
        "window-of-a-gated-convolution",
    ]
    assert set(ids("0.5.23")) == {boundary, ALL, COPIES, ABORTED, *of_kernels, *of_transfers, *of_sessions}


@pytest.mark.parametrize(
    ("name", "case", "matches"),
    [
        ("kept_in_the_same_slot", scenario(), True),
        ("kept_in_the_same_slot", scenario(between=[{}]), True),
        ("kept_in_the_same_slot", scenario(prompt=2, between=[decode(2), decode(3), {}], last=4), True),
        ("kept_in_the_same_slot", scenario(prompt=2, between=[{**decode(2), **CHUNK}, decode(3)], last=4), True),
        ("kept_in_the_same_slot", scenario(("r0", 16, ()), **WIDE), True),
        ("kept_in_the_same_slot", begun_with(ALIKE, scenario()), True),
        ("kept_in_the_same_slot", begun_with(ALIKE, scenario(prompt=2, between=[decode(2), decode(3)], last=4)), True),
        ("kept_in_the_same_slot", scenario(between=[decode(2)]), False),
        ("kept_in_the_same_slot", scenario(("r0", 12, ()), **WIDE), False),
        ("kept_in_the_same_slot", scenario(prompt=2), False),
        ("kept_in_the_same_slot", scenario(("r0", 7, ())), False),
        ("kept_in_the_same_slot", scenario(("r1", 8, ())), False),
        ("kept_in_the_same_slot", scenario(("r0", 8, (9,))), False),
        ("kept_in_the_same_slot", scenario(law="owned"), False),
        ("kept_in_the_same_slot", scenario(overlap=False), False),
        ("kept_in_the_same_slot", scenario(strategy="extra_buffer_lazy"), False),
        ("kept_in_the_same_slot", begun_with(ALIKE, scenario(("r1", 8, ()), between=[{"r1": decode(3)["r0"]}])), False),
        ("kept_in_the_same_slot", scenario(OF_ANOTHER_LAYER), False),
        ("passed_in_flight", scenario(**LAZY), True),
        ("passed_in_flight", scenario(**LAZY | {"prompt": 6}, ends=DRAFTS), True),
        ("passed_in_flight", scenario(**LAZY | {"prompt": 6}), False),
        ("passed_in_flight", scenario(**LAZY, ends={"r0": DRAFTS["r0"] | {"computed": 8}}), False),
        ("passed_in_flight", scenario(FIRST, **LAZY), False),
        ("passed_in_flight", scenario(prompt=7), False),
        ("mixed_batch", scenario(("r1", 7, ()), **IN_A_MIXED_BATCH), True),
        ("mixed_batch", scenario(NOTHING, **IN_A_MIXED_BATCH), True),
        ("mixed_batch", scenario(SECOND, **IN_A_MIXED_BATCH), False),
        ("mixed_batch", scenario(NOTHING, **IN_A_MIXED_BATCH | {"mixed": False}), False),
        ("mixed_batch", scenario(NOTHING, **IN_A_MIXED_BATCH | {"between": [decode(2)]}), False),
        ("mixed_batch", scenario(OF_ANOTHER_LAYER, mixed=True, between=[decode(3)]), False),
        ("hit_of_a_mixed_batch", scenario(NOTHING, **READ, ends=begins(4, 3)), True),
        ("hit_of_a_mixed_batch", scenario(NOTHING, **READ, ends=begins(4, 3, False)), False),
        ("hit_of_a_mixed_batch", scenario(NOTHING, **READ, ends=begins(0, 3)), False),
        ("hit_of_a_mixed_batch", scenario(NOTHING, **READ | {"mixed": False}, ends=begins(4, 3)), False),
        ("hit_of_a_mixed_batch", scenario(NOTHING, **READ | {"between": [decode(2)]}, ends=begins(4, 3)), False),
        ("replaces_all", happened(FIRST_TURN, REPLACES), True),
        ("replaces_all", happened(FIRST_TURN, STEP, REPLACES), True),
        ("replaces_all", happened(REPLACES), False),
        ("replaces_all", happened(turn("s1"), REPLACES), False),
        ("replaces_all", happened(FIRST_TURN, REPLACES, STEP), False),
        ("replaces_all", happened(FIRST_TURN, turn(after="r0", replaces=True)), False),
        ("refused_before_a_record", in_session(REFUSED, raised=HAS_A_SLOT), True),
        ("refused_before_a_record", in_session(REFUSED, raised="a reused row must carry allocated KV"), False),
        ("refused_before_a_record", in_session(raised=HAS_A_SLOT), False),
        ("taken_beside_a_running_turn", in_session(REFUSED, STEP, THIRD), True),
        ("taken_beside_a_running_turn", in_session(REFUSED, STEP), False),
        ("taken_beside_a_running_turn", in_session(STEP, REFUSED, ends="r0"), False),
        ("taken_beside_a_running_turn", happened(FIRST_TURN, REFUSED, THIRD, CLOSE), False),
        ("closed_beside_a_running_turn", in_session(REFUSED, STEP, CLOSE), True),
        ("closed_beside_a_running_turn", in_session(REFUSED, STEP, CLOSE, raised="of release_kv_cache"), True),
        ("slots_of_a_closed_session", in_session(REFUSED, STEP, CLOSE, raised="at donate_mamba_ping_pong_slot"), True),
        ("slots_of_a_closed_session", in_session(STEP, CLOSE, raised="at donate_mamba_ping_pong_slot"), False),
        ("slots_of_a_closed_session", in_session(REFUSED, STEP, CLOSE, raised="of release_kv_cache"), False),
        ("closed_beside_a_running_turn", in_session(STEP, REFUSED, THIRD, ends="r0"), False),
        ("closed_beside_a_running_turn", in_session(STEP, CLOSE), False),
        ("closed_beside_a_running_turn", in_session(REFUSED, STEP, THIRD), False),
        ("retracted_and_aborted", happened(OPENED, FIRST_TURN, PAUSE, ABORT, CLOSE), True),
        ("retracted_and_aborted", happened(OPENED, FIRST_TURN, ABORT, PAUSE, CLOSE), False),
        ("retracted_and_aborted", happened(OPENED, FIRST_TURN, IN_PLACE, ABORT, CLOSE), False),
        ("retracted_and_aborted", happened(OPENED, FIRST_TURN, PAUSE, ABORT), False),
        ("retracted_and_aborted", happened(FIRST_TURN, PAUSE, ABORT, CLOSE), False),
        ("retracted_aborted_and_continued", happened(OPENED, FIRST_TURN, PAUSE, ABORT, LATER), True),
        ("retracted_aborted_and_continued", in_session(ABORT, PAUSE, STEP, LATER, ends="r0"), True),
        ("retracted_aborted_and_continued", in_session(ABORT, STEP, PAUSE, LATER, ends="r0"), False),
        ("retracted_aborted_and_continued", in_session(PAUSE, STEP, ABORT, LATER, ends="r0"), False),
        ("retracted_aborted_and_continued", happened(OPENED, FIRST_TURN, LATER, PAUSE, ABORT), False),
        ("retracted_aborted_and_continued", happened(FIRST_TURN, PAUSE, ABORT, LATER), False),
        ("retracted_and_aborted_with_few_rows", happened(OPENED, FIRST_TURN, PAUSE, ABORT, CLOSE, max_running_requests=1), True),
        ("retracted_and_aborted_with_few_rows", happened(OPENED, FIRST_TURN, PAUSE, ABORT, CLOSE, max_running_requests=2), False),
        ("retracted_and_aborted_with_few_rows", happened(OPENED, FIRST_TURN, PAUSE, CLOSE, max_running_requests=1), False),
        ("waits_for_a_free_row", waits(LATER), True),
        ("waits_for_a_free_row", waits(LATER, CLOSE), True),
        ("waits_for_a_free_row", waits(LATER, rows=2), False),
        ("waits_for_a_free_row", waits(LATER, aborted=("r0",)), False),
        ("waits_for_a_free_row", waits(CLOSE), False),
        ("waits_for_a_free_row", waits(turn("s1", id="r1"), CLOSE), False),
        ("waits_for_a_free_row", waits(REFUSED), False),
        ("taken_behind_a_retracted_turn", in_session(STEP, PAUSE, LATER), True),
        ("taken_behind_a_retracted_turn", in_session(STEP, IN_PLACE, LATER), False),
        ("taken_behind_a_retracted_turn", in_session(STEP, LATER, PAUSE), False),
        ("taken_behind_a_retracted_turn", in_session(PAUSE, STEP, LATER, ends="r0"), False),
        ("taken_behind_a_retracted_turn", in_session(PAUSE, STEP, LATER, THIRD, ends="r0"), False),
        ("taken_behind_a_retracted_turn", happened(FIRST_TURN, STEP, PAUSE, LATER), False),
        ("off_the_grid", scenario(ANOTHERS, **MAMBA2), True),
        ("off_the_grid", scenario(SECOND, **MAMBA2), False),
        ("off_the_grid", scenario(ANOTHERS, **MAMBA2 | {"between": [two_begin(8)]}), False),
        ("off_the_grid", scenario(ANOTHERS, **MAMBA2 | {"between": [{**decode(5), "r1": decode(6)["r0"]}]}), False),
        ("off_the_grid", scenario(ANOTHERS, **MAMBA2 | {"kind": "gdn"}), False),
        ("hit_off_the_grid", scenario(ANOTHERS, **MAMBA2, law="read", ends=begins(4, 1)), True),
        ("hit_off_the_grid", scenario(ANOTHERS, **MAMBA2, law="read", ends=begins(4, 1, False)), False),
        ("copied_before_it_came", copied_late(), True),
        ("copied_before_it_came", copied_late(late=0), False),
        ("copied_before_it_came", copied_late(policy=""), False),
        ("copied_before_it_came", copied_late(other=9), False),
        ("copied_before_it_came", copied_late(computed=0), False),
        ("last_token_of_a_turn", says_after_a_turn(3), True),
        ("last_token_of_a_turn", says_after_a_turn(2), False),
        ("last_token_of_a_turn", says_after_a_turn(3, drafts=0), False),
        ("sent_in_one_slice", sent("nemotron_h", 2, 1), True),
        ("sent_in_one_slice", sent("nemotron_h", 2, 2), False),
        ("sent_in_one_slice", sent("qwen3_next", 2, 1), False),
        ("one_group_in_slices", sent("mamba2", 2, 1, n_groups=1), True),
        ("one_group_in_slices", sent("mamba2", 2, 1, n_groups=2), False),
        ("whole_state_in_slices", sent("zaya", 2, 1), True),
        ("whole_state_in_slices", sent("mamba2", 2, 1), False),
        ("one_chunk_of_a_convolution", convolution(3, 3), True),
        ("one_chunk_of_a_convolution", convolution(8, 0, 8), True),
        ("one_chunk_of_a_convolution", convolution(9, 9), False),
        ("one_chunk_of_a_convolution", convolution(8, 1, 8), False),
        ("one_chunk_of_a_convolution", convolution(4, 3), False),
        ("window_of_a_gated_convolution", gated(), True),
        ("window_of_a_gated_convolution", gated(first=False), False),
        ("window_of_a_gated_convolution", gated(tokens=0), False),
        ("window_of_a_gated_convolution", gated(slot=-1), False),
        ("window_of_a_gated_convolution", gated(activation="silu"), False),
        ("gated_convolution_behind_32_bits", gated(stride=2**29), True),
        ("gated_convolution_behind_32_bits", gated(), False),
        ("gated_convolution_behind_32_bits", gated(stride=2**29, num_accepted=int32([1, 1])), False),
        ("last_token_of_one_chunk", in_chunks(16, 16), True),
        ("last_token_of_one_chunk", in_chunks(33, 16), True),
        ("last_token_of_one_chunk", in_chunks(18, 16), False),
        ("last_token_of_one_chunk", in_chunks(32, 16), False),
        ("no_slot_while_copies_run", no_slot("write_through", 3), True),
        ("no_slot_while_copies_run", no_slot("write_through", 3, "Not enough space for mamba ping pong idx, try"), True),
        ("no_slot_while_copies_run", no_slot("write_through", 3, idle=2), True),
        ("no_slot_while_copies_run", no_slot("write_through", 3, idle=3), False),
        ("no_slot_while_copies_run", no_slot("write_through", 0), False),
        ("no_slot_while_copies_run", no_slot("write_back", 3), False),
        ("no_slot_while_copies_run", no_slot("write_through", 3, "Not enough space for mamba cache"), True),
        ("no_slot_while_copies_run", no_slot("write_through", 3, "Cannot alloc mamba for load_back"), True),
        ("no_slot_while_copies_run", no_slot("write_through", 3, "Not enough space for keys"), False),
        ("aborted_past_its_end", says(), True),
        ("aborted_past_its_end", says(aborted=()), False),
        ("aborted_past_its_end", says(drafts=0), False),
        ("aborted_past_its_end", says(count=8), False),
        ("aborted_past_its_end", says(ended=True), False),
    ],
)  # fmt: skip
def test_a_declared_defect_has_its_own_wrong_states(name: str, case: Case, matches: bool) -> None:
    assert CONDITIONS[name](case, DOCUMENTS) is matches
