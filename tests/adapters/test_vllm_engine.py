"""Declared defects of a release's own engine match the wrong states that they make, and no others."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from properties.strategies.releases.live import LiveWorld
from statecheck import rooms
from statecheck.case import Case
from statecheck.case.failure import Failure
from statecheck.case.values import Call, Outcome, Raised, Record, Returned, SourceLine, call, record
from statecheck.subject.profile import DOCUMENTS
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.releases import PYTHON, needs_release

PLACEHOLDERS = ("r1", 3, (0, 0))
DRAFT = ("r1", 3, (7,))
OWN, ANOTHERS, NOBODYS, ZEROS = ("r1", 2, ()), ("r0", 2, ()), ("?", 0, ()), ("", 0, ())
SPECULATES: dict[str, Any] = {"num_spec": 2}


Row = tuple[int, int, int, bool]
"""Of r1 in a step: tokens computed before, tokens, drafts, and whether it begins."""
PROMPT: Row = (0, 4, 0, True)
REST: Row = (4, 2, 0, False)
DECODE: Row = (4, 3, 2, False)


def step(row: Row, beside: bool, *findings: tuple[Any, ...]) -> Returned:
    decided = dict(zip(("computed", "tokens", "drafts", "begins"), row, strict=True))
    scheduled = {"r1": decided} | ({"r0": {**decided, "begins": False}} if beside else {})
    return Returned(record("LiveStep", scheduled=scheduled, preempted=(), findings=findings))


def ends_with(
    *found: tuple[Any, ...],
    law: str = "read",
    tokens: int = 4,
    rows: tuple[Row, ...] = (DECODE,),
    beside: bool = False,
    request: str = "r1",
    conv: bool = False,
    prompt: int = 4,
    stage: int = 0,
    group: int | None = None,
    dummy: bool = False,
    **settings: Any,
) -> Case:
    """A scenario that ends with a step in which r1 reads these states, after steps with such rows of it; in the last one it is alone, or not."""
    about = {
        "request": request,
        "tokens": tokens,
        "found": found,
        "conv": conv,
        "group": int(law != "attention") if group is None else group,
        "stage": stage,
        "dummy": dummy,
    }
    last = step(rows[-1], beside, (law, "seen", "wanted", about))
    actual = [Returned(None), Returned(None), *[step(row, False) for row in rows[:-1]], last]
    made = call("LiveEngine", settings=record("LiveSettings", **settings), bind="engine")
    add = call("LiveEngine.add_request", id="r1", prompt=tuple(range(prompt)), max_tokens=9)
    steps = (made, add, *[call("LiveEngine.step", turns={})] * len(rows))
    failure = Failure("value", "seen", place=f"result.broken.{law}", function="LiveEngine.step")
    return replace(a_case(steps=steps, actual=tuple(actual)), failure=failure)


def raises(message: str, **settings: Any) -> Case:
    """A scenario whose last step raises that."""
    case = ends_with(OWN, **settings)
    return replace(case, actual=(*case.actual[:-1], Raised("AssertionError", message)))


MAMBA2: dict[str, Any] = {"kinds": ("mamba2",), **SPECULATES}
STORED: dict[str, Any] = {"connector": "mooncake", "num_spec": 3}
FILLED: Row = (4, 4, 3, True)
MOVED: dict[str, Any] = {"runner": "V1", "async_scheduling": True, **SPECULATES}
DUMMY: dict[str, Any] = {"runner": "V1", "padding": 1, "dummy_batches": True}
AGAIN = (PROMPT, DECODE, PROMPT, REST)
EVERY: dict[str, Any] = {"mamba_cache_mode": "all", **SPECULATES}
SAVES: dict[str, Any] = {"checkpoints": True, "num_spec": 1}
CHUNKS: tuple[Row, ...] = ((0, 4, 0, True), (4, 8, 0, False))
CROSSES: Row = (2, 7, 0, True)


CONNECTED: dict[str, Any] = {"connector": "sync"}
LOADED = (1, 7, "r1", 8)
ONE_LOADED = (LOADED,)
HIT: tuple[Row, ...] = ((8, 1, 0, True),)
LATER: tuple[Row, ...] = ((8, 1, 0, False),)
ANEW: Row = (0, 4, 0, True)
IDLE = Returned(record("LiveStep", scheduled={}, findings=()))


def with_connector(case: Case, **of_connector: Any) -> Case:
    """The case with what its last step tells of a connector."""
    nothing: dict[str, Any] = {"loaded": (), "saved": (), "unloaded": ()}
    ended = [outcome.value for outcome in case.actual if isinstance(outcome, Returned)]
    steps = [dict(value.fields) | nothing if isinstance(value, Record) else {} for value in ended]
    steps[-1] |= of_connector
    return replace(
        case, actual=tuple(Returned(record("LiveStep", **given) if given else None) for given in steps)
    )


def saved_behind(
    *tables: tuple[tuple[str, int, int, int], ...], hits: Sequence[Sequence[Any]] = (), **settings: Any
) -> Case:
    """Steps with these blocks of requests, and with blocks that may be hit, and a block that is saved with a wrong state as tokens of r1."""
    rows: tuple[Row, ...] = (PROMPT,) * len(tables)
    case = ends_with(ANOTHERS, rows=rows, **({"law": "saved", "connector": "offloading"} | settings))
    ended = [outcome.value for outcome in case.actual[-len(tables) :] if isinstance(outcome, Returned)]
    steps = [
        Returned(record("LiveStep", **dict(value.fields), tables=rows, published=published, outputs={}))
        for value, rows, published in zip(ended, tables, hits or [()] * len(tables), strict=True)
        if isinstance(value, Record)
    ]
    return replace(case, actual=(*case.actual[: -len(tables)], *steps))


def found_in_host(count: int, *keys: tuple[int, int], begins: int = 0, **settings: Any) -> Case:
    """A request that begins behind `begins` tokens and should begin behind `count`, where host memory had blocks of these groups and tokens of the request before."""
    chosen: dict[str, Any] = {"law": "hit", "connector": "offloading", "block_size": 4, "kinds": ("mamba1",)}
    rows: tuple[Row, ...] = (PROMPT, (begins, 3, 0, True))
    case = ends_with(ANOTHERS, rows=rows, prompt=9, tokens=count, **(chosen | settings))
    saved = tuple((group, 0, "r1", tokens) for group, tokens in keys)
    ended = [outcome.value for outcome in case.actual[-2:] if isinstance(outcome, Returned)]
    steps = [
        Returned(record("LiveStep", **dict(value.fields), saved=saved, outputs={}))
        for value in ended
        if isinstance(value, Record)
    ]
    return replace(case, actual=(*case.actual[:-2], *steps))


RUNS = (("r1", 0, 0, 1),)
SENT: dict[str, Any] = {"law": "hit", "connector": "nixl", "prompt": 5}


def in_stages(*quiet: bool, law: str = "tokens", **settings: Any) -> Case:
    """A prompt, steps without rows of which some are in a pause, and a decode that runs a wrong token in two stages."""
    rows = ((0, 4, 0, True), (4, 1, 0, False))
    chosen: dict[str, Any] = {"stages": 2, "kinds": ("mamba2",), **settings}
    case = ends_with(law=law, rows=rows, **chosen)
    nothing = Returned(record("LiveStep", scheduled={}, outputs={}, findings=(), finished=()))
    pause = call("LiveEngine.sleep", level=1, mode="keep")
    between = [call("LiveEngine.step", turns={}), *([pause] if any(quiet) else [])]
    steps = (
        *case.steps[:3],
        *(between[:1] * quiet.count(False)),
        *between[1:],
        *(between[:1] * sum(quiet)),
        case.steps[-1],
    )
    ended = [nothing] * quiet.count(False) + [Returned(None)] * any(quiet) + [nothing] * sum(quiet)
    return replace(case, steps=steps, actual=(*case.actual[:-1], *ended, case.actual[-1]))


def passed_in_stages(
    before: int,
    paused: int,
    *found: tuple[Any, ...],
    drafts: int = 1,
    last: Row = HIT[0],
    early: int = 0,
    **more: Any,
) -> Case:
    """A row with drafts passes a block's end. Steps without rows follow, before a pause and in it; the last of them has the row's result.

    The row counts so many `early` tokens more, drafts of a row before that are rejected in its step.
    """
    passing: Row = (3 + early, 1 + drafts, drafts, False)
    rows: tuple[Row, ...] = (
        (0, 3 - early, 0, True),
        *[(3 - early, 2, 1, False)] * (early > 0),
        passing,
        last,
    )
    given = {"law": "published", "tokens": 4, "stages": 2, "num_spec": 1, "async_scheduling": True, **more}
    case = ends_with(*(found or (OWN,)), rows=rows, **given)
    if early:
        passed = step(passing, False).value
        assert isinstance(passed, Record)
        passed = record("LiveStep", **dict(passed.fields), outputs={"r1": (5,)})
        case = replace(case, actual=(*case.actual[:-2], Returned(passed), case.actual[-1]))
    pause = [call("LiveEngine.sleep", level=0, mode="keep")] * (paused > 0)
    steps = (*case.steps[:-1], *case.steps[-1:] * before, *pause, *case.steps[-1:] * (paused + 1))
    nothing: dict[str, Any] = {"scheduled": {}, "outputs": {}, "findings": (), "finished": ()}
    quiet = [Returned(record("LiveStep", **nothing))] * (before + paused - 1)
    result = Returned(record("LiveStep", **(nothing | {"outputs": {"r1": (7,)}})))
    ended: list[Outcome] = [*quiet, result]
    ended[before:before] = [Returned(None)] * len(pause)
    wrong = case.actual[-1]
    assert isinstance(wrong, Returned)
    wrong = Returned(record("LiveStep", **dict(wrong.value.fields), outputs={}))
    return replace(case, steps=steps, actual=(*case.actual[:-1], *ended, wrong))


def paused(case: Case) -> Case:
    """The last step is in a pause that keeps requests and caches."""
    pause = call("LiveEngine.sleep", level=0, mode="keep")
    actual = (*case.actual[:-1], Returned(None), case.actual[-1])
    return replace(case, steps=(*case.steps[:-1], pause, case.steps[-1]), actual=actual)


def late(case: Case, anew: bool = False) -> Case:
    """The last row runs in a step of its own, in a stage that is late: a step without rows, or one in which the request begins anew."""
    last = case.actual[-1]
    assert isinstance(last, Returned)
    fields = dict(last.value.fields)
    scheduled = record("LiveStep", scheduled=fields["scheduled"], outputs={}, findings=(), finished=())
    rows = {"r1": {"computed": 0, "tokens": 4, "drafts": 0, "begins": True}} if anew else {}
    wrong = Returned(record("LiveStep", **{**fields, "scheduled": rows}))
    steps, actual = (*case.steps, case.steps[-1]), (*case.actual[:-1], Returned(scheduled), wrong)
    return replace(case, steps=steps, actual=actual)


def updated(connector: str, *calls: str) -> Case:
    """The last of these calls of an engine raises."""
    made = call("LiveEngine", settings=record("LiveSettings", connector=connector), bind="engine")
    steps = (made, *[call(f"LiveEngine.{name}") for name in calls])
    ended = [step(REST, beside=False) if name == "step" else Returned(None) for name in calls[:-1]]
    return a_case(
        steps=steps, actual=(Returned(record("LiveEngine")), *ended, Raised("AssertionError", "reset_cache"))
    )


def taken_back(
    tokens: int = 8,
    preempted: tuple[str, ...] = ("r0",),
    before: Any = (),
    took: int = 4,
    first: str = "r0",
    **more: Any,
) -> Case:
    """A step that preempts requests; r0, whose row it was, has no other, r1 has a row and block `took` if it keeps its own, and behind the step a block may be hit as `tokens` of r0. `first` began first."""
    chosen: dict[str, Any] = {"law": "published", "rows": (PROMPT, PROMPT, (4, 1, 0, False)), "group": 1, "request": "r0", "priorities": (1, 0)}  # fmt: skip
    case = ends_with(NOBODYS, tokens=tokens, **chosen | more)
    add = call("LiveEngine.add_request", id="r0", prompt=tuple(range(20, 32)), max_tokens=9)
    wrong = case.actual[-1]
    assert isinstance(wrong, Returned)
    given: dict[str, Any] = dict(wrong.value.fields)
    *said, about = given["findings"][0]
    shown: dict[str, Any] = {"preempted": preempted, "published": ((1, 5, "r0", tokens),), "findings": ((*said, about | {"block": 5}),), "tables": (("r1", 0, 1, took),)}  # fmt: skip
    shown |= {"scheduled": {}, "tables": ()} if "r1" in preempted else {}
    begins = dict(zip(("computed", "tokens", "drafts", "begins"), PROMPT, strict=True))
    plain = {"preempted": (), "published": before, "findings": (), "owners": (("r1", 0, 0, 3),)}
    begun = [plain | {"scheduled": {name: begins}} for name in (first, "r1" if first == "r0" else "r0")]
    ended = [Returned(record("LiveStep", **fields, outputs={})) for fields in (*begun, given | shown)]
    return replace(case, steps=(case.steps[0], add, *case.steps[1:]), actual=(*[Returned(None)] * 3, *ended))


A_STEP = call("LiveEngine.step", turns={})
UPDATE = call("LiveEngine.update_weights", sleep=False)
RESET, PREEMPTS = [call("LiveEngine.reset_prefix_cache", preempt=preempt) for preempt in (False, True)]
NO_SUBSCRIPT = "'NoneType' object is not subscriptable"
LINE = SourceLine("vllm/v1/core/sched/scheduler.py", 1, "schedule", "")
RESET_LINE = replace(LINE, function="reset_prefix_cache")


def sleeps(level: int, mode: str = "keep") -> Call:
    return call("LiveEngine.sleep", level=level, mode=mode)


def raises_behind(
    *calls: Call,
    runner: str = "V1",
    message: str = NO_SUBSCRIPT,
    connector: str = "mooncake",
    at: SourceLine | None = None,
) -> Case:
    """Behind a step with rows come these calls, and the next step raises."""
    made = call("LiveEngine", settings=record("LiveSettings", connector=connector, runner=runner), bind="e")
    ended = [step(REST, beside=False) if one is A_STEP else Returned(None) for one in calls]
    actual = (Returned(None), step(REST, beside=False), *ended, Raised("TypeError", message, at=at))
    return a_case(steps=(made, A_STEP, *calls, A_STEP), actual=actual)


def reset_raises(
    before: Outcome | None = None,
    *,
    last: Call = PREEMPTS,
    message: str = "Failed to reset KV cache even when all the running requests are preempted",
    at: SourceLine | None = RESET_LINE,
    **settings: Any,
) -> Case:
    """A reset of the prefix cache behind a step with rows, or behind `before`, raises."""
    chosen = {"connector": "async", "async_scheduling": True, **settings}
    made = call("LiveEngine", settings=record("LiveSettings", **chosen), bind="engine")
    actual = (Returned(None), before or step(REST, beside=False), Raised("RuntimeError", message, at=at))
    return a_case(steps=(made, A_STEP, last), actual=actual)


def waits_behind(
    reset: Call,
    *later: dict[str, Any],
    preempted: tuple[str, ...] = ("r1",),
    owners: Any = (("r1", 0, 0, 5),),
    aborted: bool = False,
) -> Case:
    """Behind a step with a row of r1 comes this call, and a step without rows that says which requests were preempted, and then these; then r1 is aborted, or not."""
    made = call("LiveEngine", settings=record("LiveSettings", connector="mooncake"), bind="engine")
    add = call("LiveEngine.add_request", id="r1", prompt=(1,), max_tokens=9)
    shown: dict[str, Any] = {"scheduled": {}, "preempted": (), "finished": (), "owners": owners}
    changes: tuple[dict[str, Any], ...] = ({"scheduled": {"r1": {}}}, {"preempted": preempted}, *later)
    first, *rest = [Returned(record("LiveStep", **shown | changed)) for changed in changes]
    calls = (made, add, A_STEP, reset, *[A_STEP] * len(rest), *[sleeps(0, "abort"), A_STEP] * aborted)
    ended = (*rest, *[Returned(None), rest[-1]] * aborted)
    return a_case(steps=calls, actual=(Returned(None), Returned(None), first, Returned(None), *ended))


def replays(request: str = "r1", runs: int = 0, tokens: int = 1, **changes: Any) -> Case:
    """A prompt's row of so many tokens beside a decode, in an engine whose layers replay graphs of decodes."""
    chosen = {"layers": 2, "prefix_caching": False, "padding": 1, "runner": "V1", **changes}
    settings = {name: value for name, value in chosen.items() if value is not None}
    case = ends_with(law="metadata", rows=((0, tokens, 0, True),), **settings)
    finding = ("metadata", "another number of runs", "should run it once", {"request": request, "runs": runs})
    return replace(case, actual=(*case.actual[:-1], step((0, tokens, 0, True), True, finding)))


def saving(connector: str, *saved: tuple[Any, ...], ends: bool = True, sleeps: str = "") -> Case:
    """After r1 has ended, or while it waits, steps without rows, after each of which these blocks are saved; a sleep of this mode comes first."""
    shown: dict[str, Any] = {"scheduled": {}, "outputs": {}, "findings": (), "finished": ()}
    steps = [record("LiveStep", **shown | {"saved": events}) for events in saved]
    steps[0] = record("LiveStep", **shown | {"saved": saved[0], "finished": ("r1",) if ends else ()})
    made = call("LiveEngine", settings=record("LiveSettings", connector=connector), bind="engine")
    add = call("LiveEngine.add_request", id="r1", prompt=(1,), max_tokens=9)
    slept = [call("LiveEngine.sleep", level=0, mode=sleeps)] * bool(sleeps)
    calls = (made, add, *slept, *[call("LiveEngine.step", turns={})] * len(saved))
    return a_case(steps=calls, actual=(*[Returned(None)] * (2 + len(slept)), *map(Returned, steps)))


def stuck(connector: str, drafts: int, **changes: Any) -> Case:
    """No row runs, though the states of the request were loaded."""
    shown = {"scheduled": {}, "loaded": ONE_LOADED, "owners": (("r1", 0, 0, 5),)} | changes
    return with_connector(ends_with(rows=HIT, connector=connector, num_spec=drafts), **shown)


def failed(
    failing: tuple[int, ...],
    unloaded: tuple[str, ...],
    scheduled: dict[str, Any],
    finished: tuple[str, ...] = (),
) -> Case:
    about = {"unloaded": unloaded, "scheduled": scheduled, "finished": finished}
    return with_connector(ends_with(rows=HIT, failing_loads=failing), **about)


def no_blocks(message: str, exception: str = "ValueError") -> Case:
    """A step with a connector that loads at once raises that."""
    case = ends_with(OWN, connector="sync")
    return replace(case, actual=(*case.actual[:-1], Raised(exception, message)))


def a_broadcast(message: str, **settings: Any) -> Case:
    """A step in two stages raises that."""
    case = ends_with(OWN, **{"stages": 2, "num_spec": 1, **settings})
    return replace(case, actual=(*case.actual[:-1], Raised("RuntimeError", message)))


def left_waiting(
    free: int, like: int = 4, scheduled: Any = (), owners: Any = (), ran: bool = False, **settings: Any
) -> Case:
    """r1 has 17 tokens, of which the first `like` are those of r0, which has ended, and so many blocks are free; r1 `ran` before."""
    chosen = {"kinds": ("mamba2",), "block_size": 8, "prefix_match_unit": 4, **settings}
    made = call("LiveEngine", settings=record("LiveSettings", **chosen), bind="engine")
    first, second = tuple(range(1, 8)), (*range(1, like + 1), *range(100, 117 - like))
    adds = [
        call("LiveEngine.add_request", id=f"r{number}", prompt=prompt, max_tokens=1)
        for number, prompt in enumerate((first, second))
    ]
    nothing = {"outputs": {}, "findings": (), "finished": (), "scheduled": {}, "owners": (), "free": free}
    before = {"outputs": {"r0": (1000,)}, "finished": ("r0",), "scheduled": {"r1": {}} if ran else {}}
    steps = [nothing | before, nothing]
    steps[-1] |= {"scheduled": dict(scheduled), "owners": owners}
    ended = [Returned(record("LiveStep", **step)) for step in steps]
    return replace(
        a_case(
            steps=(made, *adds, *[call("LiveEngine.step", turns={})] * 2),
            actual=(*[Returned(None)] * 3, *ended),
        ),
        failure=Failure("value", "seen", place="progress", function="LiveEngine.step"),
    )


def ends_in(rows: tuple[Row | None, ...], **settings: Any) -> Case:
    """A scenario that ends with these steps, of which some have no rows."""
    case = ends_with(rows=(REST,), **settings)
    steps = [IDLE if row is None else step(row, beside=False) for row in rows]
    return replace(case, actual=(*case.actual[:-1], *steps))


def between_items(last: Row | None = None, **settings: Any) -> Case:
    """r1 has computed the 9 tokens of its first item and the one before it, and then ran `last`, or nothing."""
    chosen = {
        "items": ((1, 9), (11, 1)),
        "max_num_batched_tokens": 8,
        "num_spec": 1,
        "method": "eagle",
        "prompt": 13,
        **settings,
    }
    return ends_in(((0, 8, 0, True), (8, 2, 0, False), last), **chosen)


def in_turn(*turns: str, says: bool = False, **settings: Any) -> Case:
    """For each word a step: "r1" runs alone in it, "-r1" is preempted in it, and with "" it is empty; r1 `says` a token in the last one."""
    shown: dict[str, Any] = {"scheduled": {}, "preempted": (), "outputs": {}}
    events: list[dict[str, Any]] = [
        {"preempted": (turn[1:],)} if turn[:1] == "-" else {"scheduled": {turn: {}} if turn else {}}
        for turn in turns
    ]
    events[-1]["outputs"] = {"r1": (7,)} if says else {}
    case = ends_with(rows=(REST,), **{"stages": 2, "async_scheduling": True, **settings})
    return replace(
        case, actual=(*case.actual[:-1], *[Returned(record("LiveStep", **shown | event)) for event in events])
    )


def sat_out(sits_out: bool, runner: str, drafts: int, ring: int = 0, found: tuple[Any, ...] = (OWN,)) -> Case:
    row = (4, 3, drafts, False)
    case = ends_with(
        *found, rows=(PROMPT, row, row, row), runner=runner, replayssm_buffer_len=ring, **SPECULATES
    )
    actual = (*case.actual[:-2], IDLE, case.actual[-1]) if sits_out else case.actual
    return replace(case, actual=actual)


def goes_on_behind_a_pause(
    accepted: int,
    law: str,
    tokens: int,
    level: int = 0,
    rows_after: tuple[Row, ...] = (),
    found: Any = OWN,
    aborts: bool = False,
    **settings: Any,
) -> Case:
    """r1 decodes with two drafts from 9 tokens on. A pause comes before the result of that row, behind the end of r0 if it `aborts`, and r1 goes on behind it."""
    computed = 9 + 1 + accepted
    rows = ((9, 3, 2, False), (computed, 3, 2, False), *rows_after)
    case = ends_with(found, law=law, tokens=tokens, rows=rows, **MOVED | settings)
    said = {"r1": tuple(range(1 + accepted))}
    quiet = Returned(record("LiveStep", scheduled={}, outputs=said, findings=()))
    pause = (call("LiveEngine.sleep", level=level, mode="keep"), call("LiveEngine.step", turns={}))
    aborted = (call("LiveEngine.abort", id="r0"),) * aborts
    return replace(
        case,
        steps=(*case.calls[:3], *aborted, *pause, *case.calls[3:]),
        actual=(*case.actual[:3], *[Returned(None)] * aborts, Returned(None), quiet, *case.actual[3:]),
    )


@pytest.mark.parametrize(
    ("name", "case", "matches"),
    [
        ("took_in_placeholders", ends_with(PLACEHOLDERS, **SPECULATES), True),
        ("took_in_placeholders", ends_with(PLACEHOLDERS), False),
        ("took_in_placeholders", ends_with(DRAFT, **SPECULATES), False),
        ("took_in_placeholders", ends_with(OWN, **SPECULATES), False),
        ("first_token_of_gdn_in_an_engine", ends_with(NOBODYS, tokens=0, kinds=("gdn",)), True),
        ("first_token_of_gdn_in_an_engine", ends_with(NOBODYS, tokens=1, kinds=("gdn",)), False),
        ("first_token_of_gdn_in_an_engine", ends_with(NOBODYS, tokens=0, kinds=("mamba2",)), False),
        ("padded_prompt", ends_with(NOBODYS, tokens=0, rows=((0, 3, 2, True),), **SPECULATES), True),
        ("padded_prompt", ends_with(NOBODYS, tokens=0, rows=((0, 1, 0, True),), **SPECULATES), False),
        ("padded_prompt", ends_with(NOBODYS, tokens=4, **SPECULATES), False),
        ("dummy_batch_in_rows_of_requests", paused(ends_with(law="written", dummy=True, **DUMMY)), True),
        ("dummy_batch_in_rows_of_requests", ends_with(law="written", dummy=True, **DUMMY), False),
        ("dummy_batch_in_rows_of_requests", paused(ends_with(law="written", **DUMMY)), False),
        ("dummy_batch_in_rows_of_requests", paused(ends_with(law="written", dummy=True, **DUMMY | {"padding": 0})), False),
        ("preempted_behind_its_row", taken_back(), True),
        ("preempted_behind_its_row", taken_back(priorities=()), False),
        ("preempted_behind_its_row", taken_back(preempted=("r1",)), False),
        ("preempted_behind_its_row", taken_back(preempted=("r0", "r1")), True),
        ("preempted_behind_its_row", taken_back(preempted=("r0", "r1"), priorities=(0, 1)), False),
        ("preempted_behind_its_row", taken_back(priorities=(0, 1)), False),
        ("preempted_behind_its_row", taken_back(took=3), False),
        ("preempted_behind_its_row", taken_back(first="r1"), False),
        ("preempted_behind_its_row", taken_back(before=((1, 5, "r0", 8),)), False),
        ("preempted_behind_its_row", taken_back(tokens=5, request="r1", preempted=("r1",)), False),
        ("resumed_with_a_short_rest", ends_with(OWN, rows=AGAIN, **MAMBA2), True),
        ("resumed_with_a_short_rest", ends_with(OWN, rows=(*AGAIN[:3], (4, 4, 0, False)), **MAMBA2), False),
        ("resumed_with_a_short_rest", ends_with(OWN, rows=(*AGAIN[:3], DECODE), **MAMBA2), False),
        ("resumed_with_a_short_rest", ends_with(OWN, rows=(PROMPT, REST), **MAMBA2), False),
        ("resumed_with_a_short_rest", ends_with(ANOTHERS, rows=AGAIN, **MAMBA2), False),
        ("resumed_with_a_short_rest", ends_with(OWN, rows=AGAIN, kinds=("gdn",), **SPECULATES), False),
        ("resumed_with_a_short_rest", ends_with(ANOTHERS, rows=AGAIN, law="published", tokens=6, request="r0", **MAMBA2), True),
        ("resumed_with_a_short_rest", ends_with(ANOTHERS, rows=AGAIN, law="published", tokens=4, request="r0", **MAMBA2), False),
        ("accepted_count_of_another_row", ends_with(OWN, DRAFT, rows=(DECODE, DECODE), beside=True, **MOVED), True),
        ("accepted_count_of_another_row", ends_with(OWN, DRAFT, rows=(DECODE, DECODE), **MOVED), False),
        ("accepted_count_of_another_row", ends_with(ANOTHERS, rows=(DECODE, DECODE), beside=True, **MOVED), False),
        ("accepted_count_of_another_row", ends_with(OWN, rows=(DECODE, DECODE), beside=True, **MOVED | {"runner": "V2"}), False),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention", rows=((2, 2, 0, True),), tokens=1, beside=True, prefix_match_unit=2), True),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention", rows=((2, 2, 0, True),), tokens=1, prefix_match_unit=2), False),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention", rows=((4, 2, 0, True),), tokens=1, beside=True, prefix_match_unit=2), False),
        ("hits_inside_blocks", ends_with(ZEROS, law="attention", rows=((2, 2, 0, True),), tokens=1, beside=True), False),
        ("smaller_attention_blocks", ends_with(OWN, law="published", rows=(CROSSES,), attention_block_size=2), True),
        ("smaller_attention_blocks", ends_with(OWN, law="published", rows=(CROSSES,), tokens=8, attention_block_size=2), False),
        ("smaller_attention_blocks", ends_with(OWN, law="published", rows=((2, 2, 0, True),), attention_block_size=2), False),
        ("saves_inside_blocks", ends_with(OWN, law="published", rows=(CROSSES,), checkpoints=True, prefix_match_unit=2), True),
        ("saves_inside_blocks", ends_with(OWN, law="published", rows=(PROMPT,), checkpoints=True, prefix_match_unit=2), False),
        ("decode_without_drafts", ends_with(OWN, rows=((4, 1, 0, False),), kinds=("gdn",), **SPECULATES), True),
        ("decode_without_drafts", ends_with(OWN, rows=((3, 1, 0, False),), kinds=("gdn",), **SPECULATES), False),
        ("decode_without_drafts", ends_with(OWN, rows=((4, 2, 1, False),), kinds=("gdn",), **SPECULATES), False),
        ("decode_without_drafts", ends_with(OWN, rows=((4, 1, 0, False),), **MAMBA2), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=CHUNKS, prompt=14, tokens=12, **SAVES), True),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=CHUNKS, prompt=12, tokens=12, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=CHUNKS, prompt=14, tokens=8, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", rows=CHUNKS, prompt=14, tokens=12, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(NOBODYS, law="published", conv=True, rows=CHUNKS, prompt=14, tokens=12, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=((0, 8, 0, True),), prompt=14, tokens=8, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=(*CHUNKS[:1], (4, 12, 0, False)), prompt=18, tokens=16, **SAVES), False),
        ("saves_before_the_last_chunk", ends_with(OWN, law="published", conv=True, rows=CHUNKS, prompt=14, tokens=12, **SAVES | SPECULATES), False),
        ("column_of_a_hit", ends_with(ZEROS, rows=((4, 1, 0, True),), attention_block_size=2), True),
        ("column_of_a_hit", ends_with(ZEROS, rows=((2, 1, 0, True),), attention_block_size=2), False),
        ("column_of_a_hit", ends_with(ZEROS, rows=((4, 1, 0, False),), attention_block_size=2), False),
        ("tail_published_again", ends_with(OWN, law="published", tokens=3, async_scheduling=True, prefix_match_unit=1), True),
        ("tail_published_again", ends_with(OWN, law="published", tokens=4, async_scheduling=True, prefix_match_unit=1), False),
        ("tail_published_again", ends_with(OWN, law="published", tokens=3, prefix_match_unit=1), False),
        ("drafts_past_a_boundary", ends_with(OWN, law="published", rows=((3, 2, 1, False),), **EVERY), True),
        ("drafts_past_a_boundary", ends_with(OWN, law="published", rows=((3, 2, 0, False),), **EVERY), False),
        ("drafts_past_a_boundary", ends_with(OWN, law="published", rows=((4, 2, 1, False),), **EVERY), False),
        ("drafts_past_a_boundary", ends_with(NOBODYS, law="published", rows=((3, 2, 1, False),), **EVERY), False),
        ("drafts_past_a_boundary", ends_with(OWN, law="published", rows=((3, 2, 1, False),), **SPECULATES), False),
        ("conv_rows_in_a_later_column", ends_with(OWN, conv=True, rows=((3, 2, 1, False), DECODE), **EVERY), True),
        ("conv_rows_in_a_later_column", ends_with(OWN, rows=((3, 2, 1, False), DECODE), **EVERY), False),
        ("conv_rows_in_a_later_column", ends_with(OWN, conv=True, tokens=5, rows=((3, 2, 1, False), DECODE), **EVERY), False),
        ("conv_rows_in_a_later_column", ends_with(OWN, conv=True, rows=((3, 2, 1, False),), **EVERY), False),
        ("decode_without_the_column_before", raises("block_idx_last_scheduled_token_prev_step is None", **EVERY), True),
        ("decode_without_the_column_before", raises("block_idx_last_scheduled_token_prev_step is None", **SPECULATES), False),
        ("decode_without_the_column_before", raises("something else", **EVERY), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=HIT, **CONNECTED), loaded=ONE_LOADED), True),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=HIT, **CONNECTED), loaded=((0, *LOADED[1:]),)), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=HIT, **CONNECTED)), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=4, rows=HIT, **CONNECTED), loaded=ONE_LOADED), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=LATER, **CONNECTED), loaded=ONE_LOADED), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=HIT, connector="async"), loaded=ONE_LOADED), False),
        ("loaded_in_its_step", with_connector(ends_with(NOBODYS, tokens=8, rows=HIT, prefix_caching=False, **CONNECTED), loaded=ONE_LOADED), False),
        ("stuck_after_loads", stuck("async", 1), True),
        ("stuck_after_loads", stuck("sync", 1), False),
        ("stuck_after_loads", stuck("async", 0), False),
        ("stuck_after_loads", stuck("async", 1, scheduled={"r1": {}}), False),
        ("stuck_after_loads", stuck("async", 1, owners=()), False),
        ("stuck_after_loads", stuck("async", 1, loaded=()), False),
        ("stuck_after_loads", stuck("async", 1, unloaded=("r1",)), False),
        ("stuck_after_a_failed_load", failed((0,), ("r1",), {}), True),
        ("stuck_after_a_failed_load", failed((), ("r1",), {}), False),
        ("stuck_after_a_failed_load", failed((0,), (), {}), False),
        ("stuck_after_a_failed_load", failed((0,), ("r1",), {"r1": {}}), False),
        ("stuck_after_a_failed_load", failed((0,), ("r1",), {}, ("r1",)), False),
        ("sooner_than_its_token", in_stages(True, True), True),
        ("sooner_than_its_token", in_stages(False, True, stages=3), True),
        ("sooner_than_its_token", late(in_stages(True, True, stages=3, late_stages=(1, 0, 0))), True),
        ("sooner_than_its_token", late(in_stages(True, True, stages=3, late_stages=(1, 0, 0)), anew=True), True),
        ("sooner_than_its_token", late(in_stages(True, True, stages=3)), False),
        ("sooner_than_its_token", late(late(in_stages(True, True, stages=3, late_stages=(1, 0, 0)))), False),
        ("sooner_than_its_token", in_stages(False, True), False),
        ("sooner_than_its_token", in_stages(False), False),
        ("sooner_than_its_token", in_stages(True, async_scheduling=True), False),
        ("sooner_than_its_token", in_stages(True, stages=1), False),
        ("sooner_than_its_token", in_stages(True, law="read"), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1), True),
        ("passed_before_it_is_taken_in", passed_in_stages(1, 1, stages=3), True),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, early=1), True),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, law="read", last=(4, 1, 0, True)), True),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, law="read", last=(4, 1, 0, False)), False),
        ("passed_before_it_is_taken_in", passed_in_stages(1, 1), False),
        ("passed_before_it_is_taken_in", passed_in_stages(2, 0), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, stage=1), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, group=0), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, NOBODYS), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, drafts=0), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, tokens=8), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, block_size=8), False),
        ("passed_before_it_is_taken_in", passed_in_stages(0, 1, async_scheduling=False), False),
        ("receives_another_width", a_broadcast("stage 0 receives (1, 2) of a broadcast of (1, 1)"), True),
        ("receives_another_width", a_broadcast("stage 0 receives (1, 2) of a broadcast of (1, 1)", num_spec=0), False),
        ("receives_another_width", a_broadcast("stage 0 receives (2, 2) of a broadcast of (1, 2)"), False),
        ("receives_another_width", a_broadcast("stage 0 receives (1, 1) of a broadcast of (1, 2)"), False),
        ("receives_another_width", a_broadcast("stage 0 waits for a broadcast of a batch that comes later"), False),
        ("no_blocks_for_a_load", no_blocks("Cannot get 2 free blocks from the pool"), True),
        ("no_blocks_for_a_load", no_blocks("block_size must be divisible"), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(6), True),
        ("waits_for_the_copy_of_a_hit", left_waiting(7), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(9, kinds=("gdn", "mamba2")), True),
        ("waits_for_the_copy_of_a_hit", left_waiting(10, kinds=("gdn", "mamba2")), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(7, num_spec=1), True),
        ("waits_for_the_copy_of_a_hit", left_waiting(6, like=0), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(6, like=0, ran=True), True),
        ("waits_for_the_copy_of_a_hit", left_waiting(7, like=0, ran=True), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(6, prefix_match_unit=0), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(6, scheduled={"r1": {}}), False),
        ("waits_for_the_copy_of_a_hit", left_waiting(6, owners=(("r1", 0, 0, 5),)), False),
        ("waits_between_items", between_items(), True),
        ("waits_between_items", between_items(items=((1, 9), (12, 1))), False),
        ("waits_between_items", between_items(max_num_batched_tokens=10), False),
        ("waits_between_items", between_items(method="ngram"), False),
        ("waits_between_items", between_items(prompt=11), False),
        ("waits_between_items", between_items(last=(10, 1, 0, False)), False),
        ("begins_for_ever", ends_in((ANEW, None) * 5, async_scheduling=True), True),
        ("begins_for_ever", ends_in((ANEW, None) * 5, async_scheduling=False), False),
        ("begins_for_ever", ends_in((ANEW, REST, ANEW, None) * 3, async_scheduling=True), False),
        ("begins_for_ever", ends_in((ANEW,) * 10, async_scheduling=True), False),
        ("begins_for_ever", ends_in((None,) * 9 + (ANEW,), async_scheduling=True), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r2", "r2", "", "-r2", "r1", "-r1"), True),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r2", "-r2", "r1"), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r1", "-r1", "r1", "-r1"), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r2", "r2", "-r1", "r1", "-r2"), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r2", "-r2", "r1", "-r1", says=True), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r2", "-r2", "r1", "-r1", stages=1), False),
        ("preempt_themselves_in_turn", in_turn("r1", "-r1", "r2", "-r2", "r1", "-r1", async_scheduling=False), False),
        ("reset_with_a_step_in_flight", reset_raises(), True),
        ("reset_with_a_step_in_flight", reset_raises(at=None), True),
        ("reset_with_a_step_in_flight", reset_raises(IDLE), False),
        ("reset_with_a_step_in_flight", reset_raises(connector=""), False),
        ("reset_with_a_step_in_flight", reset_raises(async_scheduling=False), False),
        ("reset_with_a_step_in_flight", reset_raises(last=RESET), False),
        ("reset_with_a_step_in_flight", reset_raises(message="CUDA error: an illegal memory access was encountered"), False),
        ("reset_with_a_step_in_flight", reset_raises(at=replace(LINE, function="free_blocks")), False),
        ("reset_again_before_a_step", updated("offloading", "step", "update_weights", "update_weights"), True),
        ("reset_again_before_a_step", updated("offloading", "update_weights", "abort", "sleep"), True),
        ("reset_again_before_a_step", updated("offloading", "update_weights", "step", "update_weights"), False),
        ("reset_again_before_a_step", updated("offloading", "update_weights", "abort"), False),
        ("reset_again_before_a_step", updated("simple", "step", "update_weights", "update_weights"), False),
        ("saves_for_ever", saving("simple-lazy", (), ONE_LOADED, ((1, 8, "r1", 4),)), True),
        ("saves_for_ever", saving("simple-lazy", (), ONE_LOADED, ONE_LOADED), False),
        ("saves_for_ever", saving("simple-lazy", (), ONE_LOADED, ((1, 8, "r1", 4),), ends=False), False),
        ("saves_for_ever", saving("simple-lazy", (), ONE_LOADED, ((1, 8, "r1", 4),), ends=False, sleeps="abort"), True),
        ("saves_for_ever", saving("simple", (), ONE_LOADED, ((1, 8, "r1", 4),)), False),
        ("sat_a_step_out", sat_out(True, "V1", 2), True),
        ("sat_a_step_out", sat_out(False, "V1", 2), False),
        ("sat_a_step_out", sat_out(True, "V2", 2), False),
        ("sat_a_step_out", sat_out(True, "V1", 0), False),
        ("sat_a_step_out", goes_on_behind_a_pause(0, "read", 10), False),
        ("sat_a_step_out", goes_on_behind_a_pause(0, "read", 10, connector="async"), True),
        ("sat_a_step_out", goes_on_behind_a_pause(0, "read", 10, level=1), True),
        ("sat_a_step_out", goes_on_behind_a_pause(0, "read", 10, aborts=True), True),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 12), True),
        ("corrected_twice", goes_on_behind_a_pause(1, "published", 12), True),
        ("corrected_twice", goes_on_behind_a_pause(2, "published", 12), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 8), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 16), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 12, level=1), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 12, async_scheduling=False), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 12, runner="V2"), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "published", 12, mamba_cache_mode="all"), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "read", 10), True),
        ("corrected_twice", goes_on_behind_a_pause(0, "read", 11, rows_after=((13, 3, 2, False),)), True),
        ("corrected_twice", goes_on_behind_a_pause(0, "read", 12, rows_after=((13, 3, 2, False), (14, 3, 2, False))), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "read", 10, found=NOBODYS), False),
        ("corrected_twice", goes_on_behind_a_pause(0, "read", 10, found=NOBODYS, kernels=True), True),
        ("given_away_before_its_save", saved_behind((("r1", 0, 0, 1),), (("r0", 1, 1, 1),)), True),
        ("given_away_before_its_save", saved_behind((("r1", 0, 0, 1),), (("r0", 1, 1, 2),)), False),
        ("given_away_before_its_save", saved_behind((("r1", 0, 0, 1),), (("r1", 0, 0, 1),)), False),
        ("given_away_before_its_save", saved_behind((("r1", 0, 0, 1),), (("r0", 1, 1, 1),), runner="V1"), False),
        ("given_away_before_its_save", saved_behind(RUNS, RUNS, hits=(((1, 2, "r1", 4),), ((1, 2, "r0", 4),))), True),
        ("given_away_before_its_save", saved_behind(RUNS, (("r0", 1, 0, 2),), hits=(((1, 2, "r1", 4),), ())), True),
        ("given_away_before_its_save", saved_behind(RUNS, RUNS, hits=(((1, 2, "r1", 4),), ())), False),
        ("given_away_before_its_save", saved_behind(RUNS, (("r0", 1, 0, 2),), hits=(((1, 2, "r1", 4),),) * 2), False),
        ("has_all_but_the_state", saved_behind(RUNS, RUNS, hits=(((0, 2, "r1", 4),), ()), **SENT), True),
        ("has_all_but_the_state", saved_behind(RUNS, RUNS, hits=(((1, 2, "r1", 4),), ((0, 2, "r1", 4),)), **SENT), False),
        ("has_all_but_the_state", saved_behind(RUNS, RUNS, hits=(((0, 2, "r1", 2),), ()), **SENT), False),
        ("has_all_but_the_state", saved_behind(RUNS, RUNS, hits=(((0, 2, "r1", 4),), ()), **(SENT | {"prompt": 6})), False),
        ("has_all_but_the_state", saved_behind(RUNS, RUNS, hits=(((0, 2, "r1", 4),), ()), **(SENT | {"connector": "simple"})), False),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (0, 6), (1, 6)), True),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (1, 4), (0, 6), (1, 6)), False),
        ("lacks_a_state_before_a_tail", found_in_host(8, (0, 4), (0, 8), (1, 8)), False),
        ("lacks_a_state_before_a_tail", found_in_host(6), False),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (0, 6)), False),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (0, 6), (1, 6), begins=4), False),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (0, 6), (1, 6), num_spec=1, method="eagle"), False),
        ("lacks_a_state_before_a_tail", found_in_host(3, (0, 3), (1, 3)), False),
        ("lacks_a_state_before_a_tail", found_in_host(6, (0, 4), (0, 6), (1, 6), connector="simple"), False),
        ("placeholders_in_a_store", ends_with(OWN, law="saved", tokens=8, rows=(FILLED,), **STORED), True),
        ("placeholders_in_a_store", ends_with(OWN, law="saved", tokens=9, rows=(FILLED,), **STORED), False),
        ("placeholders_in_a_store", ends_with(OWN, law="saved", tokens=4, rows=(FILLED,), **STORED), False),
        ("placeholders_in_a_store", ends_with(OWN, law="saved", tokens=8, rows=((4, 4, 3, False),), **STORED), False),
        ("placeholders_in_a_store", raises("", rows=(FILLED, DECODE), **STORED), True),
        ("placeholders_in_a_store", raises("", rows=(FILLED, DECODE), **(STORED | {"num_spec": 2})), False),
        ("placeholders_in_a_store", raises("", rows=(FILLED, DECODE), **(STORED | {"connector": "offloading"})), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE), True),
        ("preempted_by_a_reset_with_a_store", raises_behind(PREEMPTS, RESET), True),
        ("preempted_by_a_reset_with_a_store", raises_behind(sleeps(1), runner="V2", message=""), True),
        ("preempted_by_a_reset_with_a_store", raises_behind(RESET), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(sleeps(0)), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(sleeps(1, "abort")), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, A_STEP), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, message="something else"), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, runner="V2"), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, at=LINE), False),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, at=replace(LINE, function="build_connector_meta")), True),
        ("preempted_by_a_reset_with_a_store", raises_behind(UPDATE, connector="offloading"), False),
        ("preempted_by_a_reset_with_a_store", waits_behind(UPDATE), True),
        ("preempted_by_a_reset_with_a_store", waits_behind(UPDATE, {"scheduled": {"r1": {}}}, {}), False),
        ("preempted_by_a_reset_with_a_store", waits_behind(UPDATE, {}, aborted=True), True),
        ("preempted_by_a_reset_with_a_store", waits_behind(UPDATE, {"finished": ("r1",)}), False),
        ("preempted_by_a_reset_with_a_store", waits_behind(UPDATE, owners=()), False),
        ("preempted_by_a_reset_with_a_store", waits_behind(sleeps(0)), False),
        ("shape_of_a_graph_of_decodes", replays(), True),
        ("shape_of_a_graph_of_decodes", replays(runs=-1), False),
        ("shape_of_a_graph_of_decodes", replays(runs=2), False),
        ("shape_of_a_graph_of_decodes", replays(tokens=2), False),
        ("shape_of_a_graph_of_decodes", replays(layers=None), False),
        ("shape_of_a_graph_of_decodes", replays(prefix_caching=True), False),
        ("shape_of_a_graph_of_decodes", replays(padding=None), False),
        ("shape_of_a_graph_of_decodes", replays(runner="V2"), False),
        ("sat_out_with_a_ring", sat_out(True, "V1", 0, ring=2), True),
        ("sat_out_with_a_ring", sat_out(False, "V1", 0, ring=2), False),
        ("sat_out_with_a_ring", sat_out(True, "V1", 0, ring=1), False),
        ("sat_out_with_a_ring", goes_on_behind_a_pause(0, "read", 10, replayssm_buffer_len=2), False),
        ("sat_out_with_a_ring", sat_out(True, "V1", 0, ring=2, found=(OWN, ANOTHERS)), False),
    ],
)  # fmt: skip
def test_a_declared_defect_has_its_own_wrong_states(name: str, case: Case, matches: bool) -> None:
    assert CONDITIONS[name](case, DOCUMENTS) is matches


def test_a_field_of_settings_that_a_case_leaves_out_is_as_it_was_drawn() -> None:
    """Both sides have the default; the adapter's cannot be imported without a release."""
    text = (ROOT / "subjects/vllm/engine/settings.py").read_text(encoding="utf-8")
    (settings,) = (node for node in ast.parse(text).body if getattr(node, "name", "") == "LiveSettings")
    assert isinstance(settings, ast.ClassDef)
    defaults = {
        node.target.id: ast.literal_eval(node.value)
        for node in settings.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }
    always = dict(LiveWorld().settings_with("").fields)
    drawn = {field.name: field.default for field in fields(LiveWorld) if field.name != "layout"}
    assert {name: defaults[name] for name in drawn.keys() - always} == {
        name: drawn[name] for name in drawn.keys() - always
    }


_TWO_ENGINES = """
import os
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm")
subject.resolve("LiveEngine")
before = dict(os.environ)
settings = [subject.construct("LiveSettings", {"kinds": ("mamba2",), "runner": runner}) for runner in ("V1", "V2")]
engines = [subject.resolve("LiveEngine")(one) for one in settings]
print(*[engine.config.use_v2_model_runner for engine in engines])
print({name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)} or "nothing")
"""


@pytest.mark.slow
@needs_release
def test_engines_of_two_runners_stand_side_by_side_and_change_no_variable() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _TWO_ENGINES), cwd=rooms.FOLDER, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-2:] == ["False True", "nothing"]


_READ_BY_OTHERS = """
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from oracle.lifecycle.named_states import states_after
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
state = states_after((1, 2, 3))[-1]
settings = LiveSettings(kinds=("mamba2", "gdn", "mamba1"), layers=2, num_blocks=4)
memories = [LiveMemory(settings, False, stage) for stage in range(3)]
layers = [layer for memory in memories for group in memory.groups[1:] for layer in group]
taken = []
for written in layers:
    written.write_temporal(1, state)
    written.write_window(1, [state, state])
    temporal, rows = (written._arrays[at][1].copy() for at in (1, 0))
    for read in layers:
        read._arrays[1][2], read._arrays[0][2] = temporal, rows
        own = read is written
        taken += [own is (read.temporal(2) == state), own is (read.window(2, 0) == [state, state])]
        read._arrays[1][2], read._arrays[0][2] = rows[0], temporal
        taken += [read.temporal(2) != state, read.window(2, 0)[0] != state]
print(len(layers), taken.count(False))
"""


@pytest.mark.slow
@needs_release
def test_a_state_of_a_layer_is_none_of_another_layer_kind_or_stage() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _READ_BY_OTHERS), cwd=rooms.FOLDER, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "18 0"


_STORE = """
import ctypes
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm")
settings = {"kinds": ("mamba2",), "num_blocks": 40, "connector": "mooncake"}
engine = subject.resolve("LiveEngine")(subject.construct("LiveSettings", settings))
store, memory = engine.connection.store, ctypes.create_string_buffer(b"abcdefgh", 8)
start = ctypes.addressof(memory)
def get(key, to, sizes):
    done = store.batch_get_into_multi_buffers([key], [[start + at for at in to]], [sizes])
    return done, memory.raw
store.batch_put_from_multi_buffers(["key"], [[start, start + 2]], [[2, 2]], None)
refused = [get("other", [4], [2]), get("key", [4], [2]), get("key", [4, 6], [2, 1])]
print(refused == [([-1], b"abcdefgh")] * 3, get("key", [4, 6], [2, 2]) == ([4], b"abcdabcd"))
engine.add_request("r0", (1, 2, 3, 4, 5), 2)
store.kept = None
try:
    engine.step({})
except TypeError as error:
    print(error)
"""

_READS = """
import os
os.environ["VLLM_SSM_CONV_STATE_LAYOUT"] = "DS"
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm")
settings = {"kinds": ("mamba2",), "num_blocks": 40, "connector": "nixl"}
engine = subject.resolve("LiveEngine")(subject.construct("LiveSettings", settings))
def raises(*_, **__):
    raise ValueError("no such descriptor")
engine.connection.worker.connector_worker.nixl_wrapper.make_prepped_xfer = raises
engine.add_request("r0", (1, 2, 3), 1, sends=True)
print(engine.step({}).finished)
engine.add_request("r1", (1, 2, 3), 1, loads="r0")
try:
    engine.step({}), engine.step({})
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (_STORE, ["True True", "argument of type 'NoneType' is not iterable"]),
        (_READS, ["('r0',)", "no such descriptor"]),
    ],
    ids=["store", "reads"],
)
def test_what_a_store_raises_and_what_nixl_logs_ends_the_step(script: str, said: list[str]) -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", script), cwd=rooms.FOLDER, capture_output=True, text=True, check=False
    )
    assert found.stdout.splitlines()[-2:] == said, found.stderr


_IN_STAGES = """
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm")
said = []
for stages, late in ((1, ()), (2, (0, 3)), (3, (1, 2, 3))):
    fields = {"kinds": ("mamba2",), "num_blocks": 40, "async_scheduling": True, "num_spec": 2, "method": "eagle"}
    settings = subject.construct("LiveSettings", {**fields, "stages": stages, "late_stages": late})
    engine = subject.resolve("LiveEngine")(settings)
    engine.add_request("r0", (1, 2, 3, 4, 5, 6, 7), 9)
    engine.add_request("r1", (1, 2, 3, 4, 8), 6)
    outputs = {"r0": (), "r1": ()}
    for _ in range(60):
        step = engine.step({"r0": 1, "r1": 2})
        assert not step.findings, step.findings
        for name, tokens in step.outputs.items():
            outputs[name] += tokens
        if step.idle:
            break
    assert step.idle
    said.append(outputs)
print(said[0] == said[1] == said[2], *map(len, said[0].values()))
"""


@pytest.mark.slow
@needs_release
def test_requests_say_the_same_in_any_number_of_stages() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _IN_STAGES), cwd=rooms.FOLDER, capture_output=True, text=True, check=False
    )
    assert found.stdout.splitlines()[-1:] == ["True 9 6"], found.stderr


_BEHIND_A_PAUSE = """
from statecheck.kernels import triton_mode
triton_mode.prepare("cpu")
from statecheck.subject import load
subject = load("vllm")
fields = {"kinds": ("mamba2",), "num_blocks": 40, "max_model_len": 32, "async_scheduling": True, "num_spec": 1, "method": "eagle"}
for stages, between in ((2, 0), (2, 1), (3, 1), (1, 0)):
    engine = subject.resolve("LiveEngine")(subject.construct("LiveSettings", {**fields, "stages": stages}))
    engine.add_request("r0", tuple(range(1, 12)), 3)
    while not any(row["computed"] == 11 for row in engine.step({"r0": 1}).scheduled.values()):
        pass
    for _ in range(between):
        engine.step({"r0": 1})
    engine.sleep(0, "keep")
    steps = [engine.step({"r0": 1}) for _ in range(6)]
    print(*sorted({about["stage"] for step in steps for law, *_, about in step.findings if law == "published"}))
"""


@pytest.mark.slow
@needs_release
def test_stages_lack_the_state_of_passed_drafts_only_if_no_step_copies_it_before_a_hit() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _BEHIND_A_PAUSE), cwd=rooms.FOLDER, capture_output=True, text=True, check=False
    )
    assert found.stdout.splitlines()[-4:] == ["0", "", "0 1", ""], found.stderr


_HIDDEN_GPU = """
import vllm.third_party.pynvml as driver
driver.nvmlInit = driver.nvmlShutdown = lambda: None
driver.nvmlDeviceGetCount = lambda: 1
import subjects.vllm.release
from vllm.platforms import resolve_current_platform_cls_qualname
print(resolve_current_platform_cls_qualname().rpartition(".")[2])
"""


@pytest.mark.slow
@needs_release
def test_a_gpu_that_is_hidden_is_no_platform_of_a_release() -> None:
    found = subprocess.run(
        (str(PYTHON), "-c", _HIDDEN_GPU), cwd=rooms.FOLDER, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] == "UnspecifiedPlatform"
