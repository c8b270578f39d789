"""The laws of an engine in stages: each stage has its own states and its own time, and what it breaks is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oracle.lifecycle.named_states import next_token, states_after
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep
from oracle.lifecycle.stages import StagedLaws

PROMPT = (1, 2, 3, 4)
NEXT = next_token(states_after(PROMPT)[-1])
STATES = states_after((*PROMPT, NEXT))
OWNERS = [("r0", 0, 0, 1), ("r0", 0, 1, 3), ("r0", 1, 0, 2)]
PREFILL = GroupAccess(1, False, (2, 2), ((0, 0),), (0,), (2,), (0, 1, 2, 3))
DECODE = GroupAccess(1, True, (2, 2), (tuple(STATES[2:4]),), (STATES[3],), (2,), (0,))
STATE = [("conv", tuple(STATES[2:4])), ("temporal", STATES[3])]


def laws() -> StagedLaws:
    """The laws of an engine with two stages, to which a request of four tokens has come."""
    made = StagedLaws((4, 8), window=2, num_blocks=8, num_stages=2)
    made.add("r0", PROMPT)
    return made


def prefill(stage: int) -> ObservedStep:
    handed = tuple(STATES[:4]) if stage else ()
    row = ForwardRow("r0", PROMPT, keys=((),), groups=[PREFILL], handed=handed)
    return ObservedStep(scheduled={"r0": Decided(0, 4, 0, begins=True)}, owners=OWNERS, rows=[row])


def decode(stage: int) -> ObservedStep:
    handed = (STATES[4],) if stage else ()
    row = ForwardRow("r0", (NEXT,), computed=4, keys=(tuple(STATES[:4]),), groups=[DECODE], handed=handed)
    return ObservedStep(scheduled={"r0": Decided(4, 1, 0, begins=False)}, owners=OWNERS, rows=[row])


def engine(*stages: tuple[int, ObservedStep], **more: object) -> ObservedStep:
    """A step of the engine, in which stages came to these batches."""
    seen = ObservedStep(owners_after=OWNERS, references=[(1, 1), (2, 1), (3, 1)], free=4, slots={"r0": 0})
    return replace(seen, stages=stages, **more)  # type: ignore[arg-type]


def test_a_stage_that_comes_to_a_batch_late_breaks_nothing() -> None:
    followed = laws()
    steps = (
        engine((0, prefill(0))),
        engine((0, decode(0)), (1, prefill(1)), outputs={"r0": (NEXT,)}),
        engine((1, decode(1))),
    )
    assert [followed.step(step) for step in steps] == [[], [], []]


def test_a_stage_that_reads_the_state_of_a_later_batch_is_named() -> None:
    followed = laws()
    wrong = decode(1)
    wrong.rows[0].groups[0] = replace(DECODE, temporal=(STATES[4],))
    assert followed.step(engine((0, prefill(0)), (0, decode(0)), (1, prefill(1)))) == []
    [(law, seen, wanted, about)] = followed.step(engine((1, wrong)))
    assert law == "read"
    assert seen == "in stage 1, the forward of r0 reads the state after 5 tokens of r0 of block 2 of group 1"
    assert wanted == "should read the state after its 4 computed tokens"
    assert about["stage"] == 1


def changed(stage: int, **row: object) -> ObservedStep:
    seen = prefill(stage)
    seen.rows = [replace(seen.rows[0], **row)]  # type: ignore[arg-type]
    return seen


WRITTEN_ELSEWHERE = [replace(PREFILL, written=(2, 4))]


@pytest.mark.parametrize(
    ("stage", "of_batch", "law", "words"),
    [
        (1, changed(1, handed=tuple(STATES[1:5])), "read", "takes in the state after 2 tokens of r0 from the stage before"),
        (0, changed(0, tokens=(1, 2, 3, NEXT)), "tokens", "the tokens of r0"),
        (0, changed(0, computed=1), "computed", "computed tokens of r0 = 1"),
        (1, changed(1, groups=WRITTEN_ELSEWHERE), "written", "writes to block 4 of group 1"),
        (0, replace(prefill(0), rows=[]), "tokens", "runs no tokens of r0"),
        (1, replace(prefill(1), scheduled={}), "tokens", "runs tokens [1, 2, 3, 4] of r0"),
        (1, ObservedStep(host_memory=(((4, 5), (4, 6)),)), "metadata", "reads = [4, 6]"),
        (1, ObservedStep(published=[(1, 2, "r0", 3, STATE)]), "published", "may be hit as 3 tokens of r0"),
        (0, ObservedStep(stray=[PREFILL]), "written", "a row of padding"),
    ],
)  # fmt: skip
def test_a_violation_in_a_stage_has_the_name_of_its_law(
    stage: int, of_batch: ObservedStep, law: str, words: str
) -> None:
    [(broken, seen, _, about)] = laws().step(engine((stage, of_batch)))
    assert (broken, about["stage"]) == (law, stage)
    assert seen.startswith(f"in stage {stage}, ")
    assert words in seen


def test_the_last_token_s_state_from_the_stage_before_is_looked_at() -> None:
    [(law, _, wanted, about)] = laws().step(engine((1, changed(1, handed=(*STATES[:3], STATES[0])))))
    assert (law, wanted) == ("read", "should take in the state after its 4 tokens")
    assert about == {"request": "r0", "tokens": 4, "found": (("r0", 1, ()),), "conv": False, "stage": 1}


@pytest.mark.parametrize(("handed", "reads"), [((STATES[4], 99), 0), ((99, 99), 1)])
def test_the_states_of_a_stage_behind_drafts_are_not_known(handed: tuple[int, ...], reads: int) -> None:
    followed = laws()
    followed.step(engine((1, prefill(1))))
    row = ForwardRow("r0", (NEXT, 9), computed=4, keys=(tuple(STATES[:4]),), handed=handed)
    drafted = ObservedStep(scheduled={"r0": Decided(4, 2, 1, begins=False)}, owners=OWNERS, rows=[row])
    # The row has no group of states, which is said, too.
    assert [law for law, *_ in followed.step(engine((1, drafted)))].count("read") == reads


def test_a_batch_in_which_a_request_has_no_tokens_needs_no_row_of_it() -> None:
    waits = replace(prefill(0), scheduled={"r0": Decided(0, 0, 0, begins=True)}, rows=[])
    assert laws().step(engine((0, waits))) == []


def test_there_are_as_many_stages_as_the_engine_has() -> None:
    assert len(laws().stages) == 2


def test_host_memory_that_stays_breaks_nothing() -> None:
    stays = ObservedStep(host_memory=(((4, 5), (4, 5)), ((1,), (1,))))
    assert laws().step(engine((0, stays), (1, stays))) == []


def test_the_first_change_of_host_memory_is_said() -> None:
    twice = ObservedStep(host_memory=(((4,), (4,)), ((1,), (2,)), ((3,), (5,))))
    [(_, seen, wanted, _)] = laws().step(engine((0, twice)))
    assert (seen[-3:], wanted) == ("[2]", "should stay [1] until the output of the batch comes")


def test_a_stage_knows_nothing_of_what_another_has_computed() -> None:
    """The second stage begins where the first is done already, and reads no state all the same."""
    followed = laws()
    followed.step(engine((0, prefill(0)), (0, decode(0))))
    assert followed.stages[0].requests["r0"].computed == 5
    assert followed.stages[1].requests["r0"].computed == 0
    assert followed.known.requests is followed.requests


LEAKS = engine(idle=True)


@pytest.mark.parametrize(
    ("seen", "laws_broken"),
    [
        (engine(free=5), ["free"]),
        (engine(outputs={"r0": (NEXT + 1,)}), ["output"]),
        (LEAKS, ["left", "left"]),
        (engine(published=[(1, 2, "", 0, STATE)]), ["published"]),
        (engine(published=[(1, 2, "r0", 3, STATE)]), []),
        (engine(scheduled={"r0": Decided(0, 4, 0, begins=True)}), []),
    ],
)
def test_owners_outputs_and_leaks_are_the_engines(seen: ObservedStep, laws_broken: list[str]) -> None:
    """Contents and rows are those of stages: of a step itself, nothing of them is looked at."""
    assert [law for law, *_ in laws().step(seen)] == laws_broken
