"""The timeline of a scenario in a release's own engine: what the scheduler decided, what blocks hold, and which one is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.failure import Failure
from statecheck.case.timeline import Timeline
from statecheck.case.values import Call, Outcome, Raised, Returned, call, record
from statecheck.report.render import report_text
from statecheck.report.scenario_timeline import CACHE, MOST_MOMENTS, block_tables, timeline_of
from tests.helpers.cases import a_case, subject_of
from tests.helpers.modules import ROOT

NOTHING = record("BrokenLaws", read="nothing")
STEP = call("LiveEngine.step", turns={})
Did = tuple[Call, Outcome]
OWNERS = (("r0", 0, 0, 1), ("r0", 1, 0, 2))


def scheduled(computed: int, tokens: int, *, drafts: int = 0, begins: bool = False) -> dict[str, Any]:
    return {"computed": computed, "tokens": tokens, "drafts": drafts, "begins": begins}


def found(count: int, name: str = "r0", *more: int) -> tuple[Any, ...]:
    return ((name, count, more),)


def step(**seen: Any) -> Did:
    """A step in which nothing happens but what is given."""
    names = ("preempted", "finished", "owners", "published", "findings", "tables", "accesses", "held")
    nothing = {"scheduled": {}, "outputs": {}, "free": 20, "idle": False, "broken": NOTHING}
    return STEP, Returned(record("LiveStep", **(nothing | dict.fromkeys(names, ()) | seen)))


def arrives(name: str, *prompt: int) -> Did:
    return call("LiveEngine.add_request", id=name, prompt=prompt, max_tokens=4), Returned(None)


def scenario(*did: Did, law: str = "read") -> Case:
    made = call("LiveEngine", settings=record("LiveSettings", kinds=("gdn",)), bind="engine")
    whole = ((made, Returned(record("LiveEngine"))), *did)
    failure = Failure("value", "seen", place=f"result.broken.{law}", function="LiveEngine.step")
    steps, actual = tuple(step_ for step_, _ in whole), tuple(outcome for _, outcome in whole)
    return replace(a_case(steps=steps, actual=actual), failure=failure)


def drawn(*did: Did, law: str = "read") -> Timeline:
    timeline = timeline_of(scenario(*did, law=law))
    assert timeline is not None
    assert len(block_tables(timeline)) <= len(timeline.moments)
    return timeline


def prefill(**seen: Any) -> Did:
    """r0 computes four tokens, in block 1 of attention and block 2 of its states."""
    usual = {
        "scheduled": {"r0": scheduled(0, 4, begins=True)},
        "outputs": {"r0": (7,)},
        "owners": OWNERS,
        "tables": OWNERS,
        "accesses": (("r0", 0, (), 0, (1,), ()), ("r0", 1, (), 2, (2,), ())),
        "held": (found(4), found(4)),
    }
    return step(**(usual | seen))


def decode(read: tuple[Any, ...], *, finding: tuple[Any, ...] = (), **seen: Any) -> Did:
    """r0 computes its fifth token, and reads block 3, its second column."""
    tables = (*OWNERS, ("r0", 0, 1, 4), ("r0", 1, 1, 3))
    usual = {
        "scheduled": {"r0": scheduled(4, 1)},
        "tables": tables,
        "owners": tables,
        "accesses": (("r0", 0, (1,), 0, (4,), found(4)), ("r0", 1, (3,), 3, (3,), read)),
        "held": (found(4), found(4), found(5), found(5)),
        "findings": finding,
    }
    return step(**(usual | seen))


def about(law: str, group: int, block: int, *founds: Any, tokens: int = 4, conv: bool = False) -> Any:
    of = {"request": "r0", "tokens": tokens, "found": founds, "conv": conv, "group": group, "block": block}
    return ((law, "it reads something else", "should read its own", of),)


def test_each_step_tells_what_the_scheduler_decided_and_what_came_of_it() -> None:
    published = ((1, 2, "r0", 4),)
    titles = [
        moment.title for moment in drawn(arrives("r0", 1, 2, 3, 4), prefill(published=published)).moments
    ]
    assert titles == [
        "step 0, the forward: group 0 is attention, group 1 gdn; r0 comes in with 4 tokens; r0 begins and computes 4; r0 gets blocks 1, 2",
        "step 0, after it: r0 says 1 token; 20 blocks are free; block 2 may be hit as 4 tokens of r0",
    ]


@pytest.mark.parametrize(
    ("did", "words"),
    [
        (step(scheduled={"r1": scheduled(2, 3, drafts=1, begins=True)}), "r1 begins with a hit of 2 tokens and computes 2 and 1 draft"),
        (step(scheduled={"r0": scheduled(2, 1, begins=True)}), "r0 resumes with a hit of 2 tokens and computes 1"),
        (step(scheduled={"r0": scheduled(4, 3, drafts=2)}), "r0 computes 1 and 2 drafts"),
        (step(preempted=("r0",)), "r0 is preempted; r0 gives back blocks 1, 2"),
        (step(finished=("r0",)), "r0 finishes; r0 gives back blocks 1, 2"),
        ((call("LiveEngine.abort", id="r0"), Returned(None)), "r0 is aborted"),
        ((call("LiveEngine.reset_prefix_cache", preempt=True), Returned(None)), "the prefix cache is reset, and requests that run"),
        ((call("LiveEngine.update_weights", sleep=True), Returned(None)), "other weights, and what was in memory is lost"),
        ((STEP, Raised("IndexError", "out of range")), "step 1 raises IndexError: out of range"),
    ],
)  # fmt: skip
def test_a_title_says_what_happened(did: Did, words: str) -> None:
    moments = drawn(arrives("r0", 1, 2), arrives("r1", 1, 2), prefill(), did, step()).moments
    assert any(words in moment.title for moment in moments)


def test_an_engine_that_does_not_say_what_its_slots_hold_has_tables_of_their_owners() -> None:
    engine, turn = "RadixEngine", call("RadixEngine.step", turns={})
    settings = record("RadixSettings", kind="gdn", strategy="extra_buffer")
    made = (call(engine, settings=settings, bind="engine"), Returned(record(engine)))
    paused = (call(f"{engine}.pause", retract=False), Returned(None))
    seen: dict[str, Any] = {
        "scheduled": {"r0": scheduled(0, 4, begins=True)},
        "finished": (),
        "aborted": (),
        "outputs": {"r0": (7,)},
    }
    seen |= {
        "owners_after": (("r0", 0, 0, 4), ("r0", 1, 0, 2)),
        "published": ((1, 3, "r0", 4),),
        "idle": False,
        "broken": NOTHING,
    }
    wrong = about("published", 1, 3, *found(2))
    steps = (made, paused, (turn, Returned(record("RadixStep", **seen, findings=wrong))))
    failure = Failure("value", "seen", place="result.broken.published", function=turn.function)
    case = replace(
        a_case(steps=tuple(step_ for step_, _ in steps), actual=tuple(outcome for _, outcome in steps)),
        failure=failure,
    )
    timeline = timeline_of(case)
    assert timeline is not None
    assert "group 1 gdn; pause; r0 begins and computes 4" in timeline.moments[0].title
    rows = {(row.request, row.group): [cell.block for cell in row.cells] for row in timeline.moments[-1].rows}
    assert rows == {("r0", 0): [4], ("r0", 1): [2], (CACHE, 1): [3]}
    assert "**✗ 3: 2 tokens r0 (4 tokens r0)" in block_tables(timeline)[1]


def test_blocks_hold_states_by_the_name_of_their_request() -> None:
    timeline = drawn(arrives("r0", 1, 2, 3, 4), prefill(held=(found(4), found(3, "r0", 9))))
    forward, after = timeline.moments
    assert [row.cells[0].holds for row in forward.rows] == ["new", "new"]
    assert [(row.cells[0].holds, row.cells[0].owner) for row in after.rows] == [
        ("4 tokens", "r0"),
        ("3 tokens + 1 other", "r0"),
    ]


def test_blocks_without_owner_that_may_be_hit_are_those_of_the_cache() -> None:
    gone = step(finished=("r0",), published=((1, 2, "r0", 4),))
    (row,) = drawn(arrives("r0", 1, 2, 3, 4), prefill(), gone).moments[-1].rows
    (cell,) = row.cells
    assert (row.request, row.group, cell.block, cell.holds, cell.published) == (CACHE, 1, 2, "4 tokens", True)


def test_a_forward_marks_the_columns_that_it_reads_and_writes() -> None:
    timeline = drawn(arrives("r0", 1, 2, 3, 4), prefill(), decode(found(4)))
    row = timeline.moments[2].rows[1]
    assert (row.run, row.reads, row.writes, row.cells[1].holds) == (1, (1,), (1,), "4 tokens")


def test_a_wrong_read_of_a_forward_is_marked_beside_the_right_block() -> None:
    wrong = found(3)
    timeline = drawn(arrives("r0", 1, 2, 3, 4), prefill(), decode(wrong, finding=about("read", 1, 3, *wrong)))
    cell = timeline.moments[2].rows[1].cells[1]
    assert (cell.holds, cell.owner, cell.expected, cell.wrong) == ("3 tokens", "r0", "4 tokens r0", True)
    assert timeline.finding is not None
    assert timeline.finding.spot == (2, "r0", 1, 1)


def test_a_wrongly_published_block_is_marked_after_the_step() -> None:
    finding = about("published", 1, 2, ("?", 0, ()))
    did = prefill(published=((1, 2, "r0", 4),), findings=finding)
    timeline = drawn(arrives("r0", 1, 2, 3, 4), did, law="published")
    assert timeline.finding is not None
    assert timeline.finding.spot == (1, "r0", 1, 0)
    cell = timeline.moments[1].rows[1].cells[0]
    assert (cell.holds, cell.expected, cell.owner, cell.published) == ("no state", "4 tokens r0", "", True)


def test_a_law_about_no_block_is_named_where_it_is_broken() -> None:
    finding: tuple[Any, ...] = (
        ("left", "slots ['r0'] are in use when all requests are gone", "should be free", {}),
    )
    timeline = drawn(arrives("r0", 1), prefill(), step(findings=finding), law="left")
    assert timeline.finding is None
    assert timeline.moments[-1].title.endswith(
        "✗ slots ['r0'] are in use when all requests are gone, but should be free"
    )


def test_a_law_about_a_request_and_no_block_is_marked_where_the_request_runs() -> None:
    finding = (("output", "r0 says [9]", "should say [8]", {"request": "r0"}),)
    timeline = drawn(arrives("r0", 1, 2, 3, 4), prefill(), decode(found(4), finding=finding), law="output")
    assert timeline.finding is not None
    assert timeline.finding.spot == (2, "r0", 1, 1)
    assert not timeline.moments[2].rows[1].cells[1].wrong


def test_the_finding_is_of_the_law_that_the_case_is_about() -> None:
    findings = (*about("output", 1, 3, *found(3)), *about("read", 1, 2, *found(2)))
    timeline = drawn(arrives("r0", 1, 2, 3, 4), prefill(), decode(found(4), finding=findings))
    assert timeline.finding is not None
    assert timeline.finding.column == 0


def test_a_long_scenario_is_shown_from_its_last_steps_on() -> None:
    timeline = drawn(arrives("r0", 1, 2, 3, 4), *[prefill()] * MOST_MOMENTS)
    assert len(timeline.moments) == MOST_MOMENTS
    assert timeline.moments[0].title.startswith(
        f"{MOST_MOMENTS} moments before are left out. step {MOST_MOMENTS // 2}, "
    )


def test_a_case_that_was_saved_without_what_blocks_held_has_a_picture_too() -> None:
    case = Case.load(ROOT / "docs" / "findings" / "one-token-prompt.json")
    timeline = timeline_of(case)
    assert timeline is not None
    assert [moment.title.partition(":")[0] for moment in timeline.moments][-1] == "step 3, after it"


def test_a_function_that_is_only_named_like_an_engine_has_no_timeline() -> None:
    assert timeline_of(scenario((STEP, Returned(record("LiveStep", scheduled=3))))) is None
    assert timeline_of(a_case()) is None


def test_the_report_has_the_table_where_it_went_wrong() -> None:
    wrong = found(3)
    did = decode(wrong, finding=about("read", 1, 3, *wrong))
    case = scenario(arrives("r0", 1, 2, 3, 4), prefill(), did)
    case = replace(case, expected=tuple(Returned(None) for _ in case.actual))
    text = report_text(case, subject_of(case))
    assert "<summary>Block tables over time</summary>" in text
    row = "| r0, group 1 | 2: 4 tokens r0 | **✗ 3: 3 tokens r0 (4 tokens r0) @RW** |"
    assert text.count(row) == 2
    order = ["What happened", "Block tables where it went wrong", "Expected and actual"]
    assert [line[3:] for line in text.splitlines() if line[3:] in order] == order
