"""The laws of a whole engine say what a step breaks, each thing by its name, and nothing of a step that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from oracle.lifecycle.broken_laws import Broken, BrokenLaws, in_sentences
from oracle.lifecycle.known_states import KnownStates
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.named_states import next_token, states_after
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep, Transfers, WindowAccess
from oracle.recurrences.bounds import Near
from tests.oracle.observed_steps import (
    NEXT,
    PROMPT,
    STATES,
    Change,
    about,
    laws,
    of_group,
    of_row,
    of_step,
    prefill,
)


def test_a_step_that_is_right_breaks_nothing() -> None:
    assert laws().step(prefill()) == []


def test_a_shared_state_may_be_in_another_column_of_each_owner() -> None:
    seen = prefill()
    seen.owners_after = [*seen.owners, ("r1", 1, 1, 2)]
    seen.references = [(1, 1), (2, 2)]
    assert laws().step(seen) == []


def shared(*owner: Any, **others: Any) -> Change:
    """A block that has one more owner."""
    counts = {1: 1, 2: 1, owner[3]: 2}
    return of_step(owners_after=[*prefill().owners, owner], references=[*counts.items()], **others)


def unseen(seen: ObservedStep) -> None:
    """The engine does not report the state that the group read."""
    seen.rows[0].groups[0] = replace(seen.rows[0].groups[0], temporal=(), windows=())


def no_keys(seen: ObservedStep) -> None:
    """A published block of attention of which no key is shown."""
    seen.published = [(0, 1, "r0", 4, [("keys", ())]), *seen.published[1:]]


COUNTS, OTHER_TOKENS = of_row(0, computed=1), of_row(0, tokens=(1, 2, 3, 9))
TWICE, ELSEWHERE = of_row(0, groups=prefill().rows[0].groups * 2), of_group(0, written=(2, 3))
SAYS = of_step(outputs={"r0": (NEXT + 1,)})
UNWRITTEN = (1, 2, "r0", 4, [("conv", tuple(STATES[2:])), ("temporal", STATES[1])])


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (of_group(0, temporal=(STATES[0],)), "read"),
        (of_group(0, windows=((0, STATES[0]),)), "read"),
        (unseen, "read"),
        (no_keys, "published"),
        (of_row(0, keys=((STATES[0],),)), "attention"),
        (COUNTS, "computed"),
        (OTHER_TOKENS, "tokens"),
        (TWICE, "metadata"),
        (of_row(0, wrong=((1, 3, 0.5, Near(0.25, 0.125)),)), "read"),
        (ELSEWHERE, "written"),
        (of_step(stray=[replace(prefill().rows[0].groups[0], written=(3,))]), "written"),
        (of_step(published=[prefill().published[0], UNWRITTEN]), "published"),
        (shared("r1", 0, 0, 2), "owned"),
        (shared("r0", 1, 1, 2), "owned"),
        (shared("r1", 0, 1, 1), "owned"),
        (shared("r1", 1, 0, 2, published=prefill().published[:1]), "owned"),
        (of_step(references=[(1, 1), (2, 2)]), "owned"),
        (of_step(free=4), "free"),
        (SAYS, "output"),
        (of_step(idle=True, references=[], owners_after=[], free=7), "left"),
    ],
)
def test_a_violation_in_a_step_has_the_name_of_its_law(change: Change, law: str) -> None:
    seen = prefill()
    change(seen)
    assert law in [found for found, *_ in laws().step(seen)]


def test_prefixes_are_locked_while_something_runs_alone() -> None:
    seen = prefill()
    seen.locked = [4]
    assert laws().step(seen) == []
    gone: dict[str, Any] = {"idle": True, "references": [], "owners_after": [], "free": 7, "slots": {}}
    of_step(**gone, locked=[4, 8])(seen)
    [broken] = laws().step(seen)
    assert broken == (
        "left",
        "prefixes of [4, 8] tokens are locked when all requests are gone",
        "should not be",
        {},
    )


def test_blocks_and_slots_that_are_left_are_said_each() -> None:
    seen = prefill()
    seen.idle = True
    assert [(law, text, wanted) for law, text, wanted, _ in laws().step(seen)] == [
        ("left", "blocks [1, 2] are in use when all requests are gone", "should be free"),
        ("left", "slots ['r0'] are in use when all requests are gone", "should be free"),
    ]


def test_a_row_that_was_not_scheduled_and_one_that_is_missing_are_said() -> None:
    seen = prefill()
    seen.scheduled = {}
    assert [(law, text, wanted) for law, text, wanted, _ in laws().step(seen)] == [
        ("tokens", "the worker runs tokens [1, 2, 3, 4] of r0", "should run none, as scheduled")
    ]
    seen = prefill()
    seen.rows = []
    [(law, text, wanted, about)] = laws().step(seen)
    assert (law, text, wanted) == ("tokens", "the worker runs no tokens of r0", "should run 4, as scheduled")
    assert about == {"request": "r0"}


def test_a_decode_reads_the_state_after_the_drafts_that_were_accepted() -> None:
    checker = laws()
    checker.step(prefill())
    # Of two drafts the first is what the model says.
    right = [*PROMPT, NEXT]
    second = next_token(states_after(right)[-1])
    tokens = (NEXT, second, second)
    group = GroupAccess(1, True, (2, 2), (tuple(STATES[2:]),), (STATES[3],), (2,), (0, 1, 2))
    row = ForwardRow("r0", tokens, 4, keys=(tuple(STATES),), groups=[group])
    scheduled = {"r0": Decided(4, 3, 2, begins=False)}
    said = (second, next_token(states_after([*right, second])[-1]))
    assert checker.step(replace(prefill(), scheduled=scheduled, rows=[row], outputs={"r0": said})) == []
    assert checker.requests["r0"].computed == 6


def test_a_state_in_words_names_the_tokens_that_it_should_not_know() -> None:
    checker = laws()
    checker.requests["r0"].state(4)
    checker.known.remember(STATES[1], (7, 8))
    assert (
        checker.known.meaning(states_after((1, 2, 7, 8))[-1])
        == "the state after 2 tokens of r0 and then [7, 8]"
    )
    assert checker.known.meaning(5) == "what is no request's state"


def test_the_owner_of_a_wrong_state_is_in_the_data_of_the_violation() -> None:
    checker = laws()
    checker.step(prefill())
    seen = replace(prefill(), scheduled={}, rows=[], outputs={})
    seen.published = [(1, 2, "r0", 4, [("temporal", STATES[2])])]
    ((law, _, _, about),) = checker.step(seen)
    assert (law, about) == (
        "published",
        {"request": "r0", "tokens": 4, "found": (("r0", 3, ()),), "conv": False, "group": 1, "block": 2},
    )


@pytest.mark.parametrize("change", [COUNTS, OTHER_TOKENS, TWICE, ELSEWHERE, SAYS])
def test_a_violation_about_no_state_names_its_request(change: Change) -> None:
    seen = prefill()
    change(seen)
    assert {about["request"] for *_, about in laws().step(seen)} == {"r0"}


def test_a_shared_state_is_named_after_the_request_that_is_asked_for() -> None:
    checker = laws()
    checker.add("r1", (*PROMPT, 9))
    for request in reversed(checker.requests.values()):
        request.state(5)
    assert [checker.known.found(STATES[2], name)[0] for name in ("", "r1", "r2")] == ["r0", "r1", "r0"]


# A decode that drafts beside a request that comes back, with pages of two tokens.

SAID = [NEXT, next_token(states_after([*PROMPT, NEXT])[-1])]
AFTER = next_token(states_after([*PROMPT, *SAID])[-1])
LAST = next_token(states_after([*PROMPT, *SAID, AFTER])[-1])
DRAFTS = (SAID[1], AFTER, 8)
"""The first two are what the model says."""
LONGER = states_after([*PROMPT, 5])
CONTENTS = [("conv", tuple(STATES[2:])), ("temporal", STATES[3])]


def two_requests() -> LiveLaws:
    made = LiveLaws((2, 4), window=2, num_blocks=12)
    made.add("r0", PROMPT)
    made.add("r1", (*PROMPT, 5))
    made.requests["r0"].computed, made.requests["r0"].said = 4, 1
    return made


def two_rows() -> ObservedStep:
    """Pages 4 and 5 and the state in block 2 are shared; r1 computes its last token, and takes its state along to block 3."""
    first = GroupAccess(1, True, (2, 2), (tuple(STATES[2:]),), (STATES[3],), (7, 0), (0, 1, 2, 3))
    second = GroupAccess(1, True, (3, 2), (tuple(STATES[2:]),) * 2, (STATES[3],) * 2, (3,), (4,))
    owners = [
        *(("r0", 0, column, block) for column, block in enumerate((4, 5, 8))),
        *(("r1", 0, column, block) for column, block in enumerate((4, 5, 6))),
        *(("r0", 1, column, block) for column, block in enumerate((2, 7))),
        *(("r1", 1, column, block) for column, block in enumerate((2, 3))),
    ]
    return ObservedStep(
        scheduled={"r0": Decided(4, 4, 3, begins=False), "r1": Decided(4, 1, 0, begins=True)},
        rows=[
            ForwardRow("r0", (NEXT, *DRAFTS), 4, keys=(tuple(STATES),), groups=[first]),
            ForwardRow("r1", (5,), 4, keys=(tuple(STATES),) * 2, groups=[second]),
        ],
        outputs={"r0": (SAID[1], AFTER, LAST), "r1": (next_token(LONGER[-1]),)},
        owners=owners,
        owners_after=owners,
        references=[(2, 2), (3, 1), (4, 2), (5, 2), (6, 1), (7, 1), (8, 1)],
        free=4,
        published=[
            (0, 4, "r0", 2, [("keys", tuple(STATES[:2]))]),
            (0, 5, "r0", 4, [("keys", tuple(STATES[2:]))]),
            (0, 6, "r1", 5, [("keys", (LONGER[-1], 99))]),
            (1, 2, "r0", 4, CONTENTS),
        ],
    )


def test_rows_of_two_requests_break_nothing_and_count_what_was_accepted() -> None:
    checker = two_requests()
    assert checker.step(two_rows()) == []
    assert [request.computed for request in checker.requests.values()] == [7, 5]
    rejected = states_after([*PROMPT, NEXT, *DRAFTS])
    assert checker.known.found(rejected[-1]) == ("r0", 7, (8,))


FIRST, SECOND = ("r0", 1, ()), ("r0", 2, ())
WRONG_KEYS = (*STATES[:3], STATES[0])
PADDED = GroupAccess(1, False, (0, 0), (), (), (0, 9), ())
WRONG = [("conv", (STATES[0], STATES[1])), ("temporal", STATES[0])]


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (of_row(1, keys=(WRONG_KEYS,) * 2), [("attention", about("r1", 4, (FIRST,), 0, 5))]),
        (of_row(0, computed=5, tokens=(9, *DRAFTS), keys=((*STATES, 9),)), [("computed", {"request": "r0"})]),
        (
            of_step(scheduled={**two_rows().scheduled, "r0": Decided(4, 3, 3, begins=False)}),
            [("tokens", {"request": "r0"})],
        ),
        (of_group(1, tokens=(3,)), [("metadata", {"request": "r1"})]),
        (of_group(1, temporal=(STATES[0],) * 2), [("read", about("r1", 4, (FIRST,), 1, 2))]),
        (
            of_group(1, windows=((STATES[0], 0),) * 2),
            [("read", about("r1", 4, (FIRST, ("", 0, ())), 1, 3, conv=True))],
        ),
        (of_step(stray=[PADDED]), [("written", {"group": 1, "block": 9, "dummy": False})]),
        (of_step(dummies=[PADDED]), [("written", {"group": 1, "block": 9, "dummy": True})]),
        (
            of_step(published=[*two_rows().published, (1, 3, "", 0, WRONG)]),
            [("published", {"group": 1, "block": 3})],
        ),
        (
            of_step(published=[*two_rows().published[:3], (1, 2, "r0", 4, WRONG)]),
            [("published", about("r0", 4, (FIRST, SECOND), 1, 2, conv=True))],
        ),
        (
            of_step(published=[*two_rows().published, (0, 5, "r0", 4, [("keys", WRONG_KEYS[2:])])]),
            [("published", about("r0", 4, (FIRST,), 0, 5))],
        ),
        (of_step(references=[*two_rows().references, (9, 1), (10, 1)], free=2), [("owned", {})]),
        (
            of_step(references=[*two_rows().references[:1], *two_rows().references[2:]], free=5),
            [("owned", {})],
        ),
        (
            of_step(
                owners_after=[*two_rows().owners, ("r2", 0, 1, 2)],
                references=[(2, 3), *two_rows().references[1:]],
            ),
            [("owned", {"group": 0, "block": 2})],
        ),
        (of_step(idle=True), [("left", {})]),
    ],
)
def test_a_violation_in_a_step_of_two_requests_is_reported_once(
    change: Change, broken: list[tuple[str, Any]]
) -> None:
    seen = two_rows()
    change(seen)
    assert [(law, data) for law, _, _, data in two_requests().step(seen)] == broken


def test_a_page_that_a_request_does_not_have_is_block_0() -> None:
    seen = two_rows()
    of_row(1, keys=(WRONG_KEYS,))(seen)
    seen.owners = [owner for owner in seen.owners if owner != ("r1", 0, 1, 5)]
    assert [data["block"] for *_, data in two_requests().step(seen)] == [0]


def test_a_sentence_names_rows_and_where_they_were_read() -> None:
    seen = two_rows()
    seen.published = [*seen.published[:3], (1, 2, "r0", 4, WRONG)]
    of_group(0, temporal=(0,), initial=False)(seen)
    of_group(1, temporal=(STATES[0],) * 2)(seen)
    states = "the state after 1 token of r0, the state after 2 tokens of r0"
    assert [sentence for _, sentence, *_ in two_requests().step(seen)] == [
        "the forward of r0 reads zeros without a block",
        "the forward of r1 reads the state after 1 token of r0 of block 2 of group 1",
        f"block 2 of group 1, which may be hit as 4 tokens of r0, holds conv rows written with {states}",
    ]


def test_zeros_and_unknown_states_are_of_no_request() -> None:
    known = laws().known
    known.remember(0, (7,))
    assert [known.found(state) for state in (0, states_after((7,))[0], 5)] == [
        ("", 0, ()),
        ("", 0, (7,)),
        ("?", 0, ()),
    ]


def test_laws_are_in_sentences_of_what_breaks_each_first() -> None:
    broken: list[Broken] = [
        ("read", "it reads", "should not", {}),
        ("read", "it too", "should", {}),
        ("free", "2", "should be 3", {}),
    ]
    assert in_sentences(broken) == BrokenLaws(read="it reads, but should not", free="2, but should be 3")


def test_a_state_is_an_odd_number_of_33_bits_that_names_its_tokens() -> None:
    assert states_after((1, 2, 3)) == [1846331445, 5550778877, 8092309491]


@pytest.mark.parametrize(
    ("state", "vocabulary", "token"),
    [(5, 7, 1005), (7, 7, 1000), (1234567, 10, 1007), (2_000_009, 1_000_003, 1003)],
)
def test_the_next_token_follows_from_the_state(state: int, vocabulary: int, token: int) -> None:
    assert next_token(state, vocabulary) == token


def test_a_state_is_that_of_a_request_that_has_come_to_it() -> None:
    known = KnownStates()
    for name in ("r0", "r1"):
        known.add(name, PROMPT)
    assert known.requests["r0"].token(1) == 2
    assert known.found(STATES[2]) == ("?", 0, ())
    known.requests["r1"].state(3)
    assert known.found(STATES[2]) == ("r1", 3, ())


def published_of(name: str, *counts: int) -> list[Any]:
    """Blocks of four tokens of attention, and of a recurrent group, that may be hit; what they hold is another law's."""
    attention: list[Any] = [(0, 10 + count, name, count, []) for count in counts]
    return [*attention, *((1, 30 + count, name, count, []) for count in counts)]


def having(where: str, *counts: int, **others: Any) -> ObservedStep:
    """A step behind which blocks of r0 stand in the cache, or in the store of a connector."""
    if where == "cache":
        return ObservedStep(published=published_of("r0", *counts), **others)
    stored = Transfers({}, {}, frozenset(), frozenset(), (), {}, offered=published_of("r0", *counts))
    return ObservedStep(transfers=stored, **others)


@pytest.mark.parametrize("where", ["cache", "store"])
@pytest.mark.parametrize(
    ("prompt", "begins_behind", "hits"),
    [(8, 0, [4]), (8, 4, []), (13, 8, [12]), (13, 12, []), (4, 0, []), (5, 0, [4])],
)
def test_a_request_that_begins_like_an_ended_request_hits_its_last_boundary(
    where: str, prompt: int, begins_behind: int, hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    tokens = tuple(range(1, 14))
    seen.add("r0", tokens)
    seen.managed(having(where, 4, 8, 12))
    seen.add("r1", tokens[:prompt])
    decided = {"r1": Decided(begins_behind, 1, 0, begins=True)}
    broken = seen.managed(having(where, 4, 8, 12, scheduled=decided))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize(("emptied", "hits"), [((), [8]), ((1,), []), ((2,), [])])
def test_a_request_loads_what_a_store_had_when_its_load_began_unless_it_was_emptied(
    emptied: tuple[int, ...], hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    for name in ("r0", "r1"):
        seen.add(name, range(1, 14))
    waits = having("store", 4, 8)
    assert waits.transfers is not None
    waits.transfers = replace(waits.transfers, waiting=frozenset({"r1"}))
    begins = having("store", 4, 8, 12, scheduled={"r1": Decided(4, 1, 0, begins=True)})
    broken: list[Broken] = []
    for at, step in enumerate((having("store", 4, 8), waits, begins)):
        if at in emptied:
            seen.empty_store()
        broken = seen.managed(step)
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize(("begins_behind", "hits"), [(0, [12]), (11, [12]), (12, [])])
def test_a_request_begins_behind_what_another_one_has_computed_for_it(
    begins_behind: int, hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    seen.add("r1", range(1, 14))
    sent = Transfers({}, {}, frozenset(), frozenset(), (), {}, sent=frozenset({"r1"}))
    decided = {"r1": Decided(begins_behind, 1, 0, begins=True)}
    broken = seen.managed(ObservedStep(scheduled=decided, transfers=sent))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize(("prompt", "hits"), [(8, []), (9, [4]), (12, [4]), (13, [8])])
def test_the_last_block_of_a_hit_is_computed_again_for_a_draft_model(prompt: int, hits: list[int]) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64, recomputed=4)
    tokens = tuple(range(1, 14))
    seen.add("r0", tokens)
    seen.managed(ObservedStep(published=published_of("r0", 4, 8, 12)))
    seen.add("r1", tokens[:prompt])
    decided = {"r1": Decided(0, 1, 0, begins=True)}
    broken = seen.managed(ObservedStep(scheduled=decided, published=published_of("r0", 4, 8, 12)))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize(
    ("prompt", "hits"), [(range(1, 10), [4]), ((*range(1, 9), 20), []), ((*range(1, 13), 20), [4])]
)
def test_a_key_that_covers_a_token_behind_its_block_is_no_key_of_another_token(
    prompt: Sequence[int], hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64, recomputed=4, lookahead=1)
    seen.add("r0", range(1, 14))
    seen.managed(ObservedStep(published=published_of("r0", 4, 8, 12)))
    seen.add("r1", prompt)
    decided = {"r1": Decided(0, 1, 0, begins=True)}
    broken = seen.managed(ObservedStep(scheduled=decided, published=published_of("r0", 4, 8, 12)))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize(("room", "hits"), [(4, [12]), (3, [])])
def test_what_host_memory_has_is_hit_where_a_request_a_prefix_and_a_chunk_find_slots(
    room: int, hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    seen.add("r0", range(1, 14))
    seen.managed(ObservedStep(published=published_of("r0", 4, 8, 12), first_host_block=20, room=room))
    seen.add("r1", range(1, 14))
    decided = {"r1": Decided(0, 1, 0, begins=True)}
    behind = ObservedStep(
        scheduled=decided, published=published_of("r0", 4, 8, 12), first_host_block=20, room=0
    )
    assert [about["tokens"] for name, _, _, about in seen.managed(behind) if name == "hit"] == hits


@pytest.mark.parametrize(("at_load", "hits"), [((4, 8), [8]), ((4,), [])])
def test_a_request_that_is_loaded_hits_what_could_be_hit_when_its_load_began(
    at_load: tuple[int, ...], hits: list[int]
) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    seen.add("r0", range(1, 14))
    seen.add("r1", range(1, 14))
    loading = Transfers({}, {(0, 9): "r1"}, frozenset(), frozenset(), (), {})
    seen.managed(ObservedStep(published=published_of("r0", *at_load)))
    seen.managed(
        ObservedStep(
            published=published_of("r0", *at_load), owners_after=[("r1", 0, 0, 9)], transfers=loading
        )
    )
    seen.managed(ObservedStep(published=published_of("r0", 4, 8)))
    decided = {"r1": Decided(4, 1, 0, begins=True)}
    broken = seen.managed(ObservedStep(scheduled=decided, published=published_of("r0", 4, 8)))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


@pytest.mark.parametrize("lost", [0, 1])
def test_a_boundary_that_one_group_has_lost_is_no_hit(lost: int) -> None:
    seen = LiveLaws((4, 4), window=2, num_blocks=64)
    seen.add("r0", range(1, 9))
    seen.managed(ObservedStep(published=published_of("r0", 4)))
    seen.add("r1", range(1, 9))
    left = [row for row in published_of("r0", 4) if row[0] != lost]
    decided = {"r1": Decided(0, 8, 0, begins=True)}
    assert "hit" not in [name for name, *_ in seen.managed(ObservedStep(scheduled=decided, published=left))]


def sliding_laws(attention: int) -> LiveLaws:
    """The laws of an engine with sliding windows of four tokens, whose blocks have two; those of other groups have so many."""
    return LiveLaws((attention, attention, 2), window=2, num_blocks=64, sliding_window=4)


@pytest.mark.parametrize(
    ("lost", "hits"),
    [((), [12]), ((12,), [8]), ((10,), [8]), ((8,), [12]), ((2, 4, 6, 8), [12]), ((2, 4, 6, 8, 10), [])],
    ids=str,
)
def test_a_hit_needs_the_blocks_of_the_last_window_alone(lost: tuple[int, ...], hits: list[int]) -> None:
    # Three tokens before the hit lie in two blocks of two tokens.
    seen = sliding_laws(4)
    published = published_of("r0", 4, 8, 12)
    published += [(2, 50 + count, "r0", count, []) for count in (2, 4, 6, 8, 10, 12) if count not in lost]
    seen.add("r0", range(1, 14))
    seen.managed(ObservedStep(published=published))
    seen.add("r1", range(1, 14))
    broken = seen.managed(ObservedStep(scheduled={"r1": Decided(0, 1, 0, begins=True)}, published=published))
    assert [about["tokens"] for name, _, _, about in broken if name == "hit"] == hits


def slides(computed: int, tokens: int, first: int, blocks: dict[int, int], **changed: Any) -> ObservedStep:
    """A step of a request in an engine with sliding windows of four tokens, whose group has these blocks of two tokens by column."""
    states = states_after(range(1, 32))
    places = tuple(range(tokens))
    state = states[computed - 1] if computed else 0
    group = GroupAccess(1, computed > 0, (2, 2), ((0, 0),), (state,), (2,), places)
    window = WindowAccess(
        2, (tuple(states[first:computed]),), tuple(blocks.values())[:1], tuple(blocks.values())[-1:]
    )
    row = ForwardRow(
        "r0",
        tuple(range(computed + 1, computed + tokens + 1)),
        computed=computed,
        keys=(tuple(states[:computed]),),
        groups=[group],
        sliding=[replace(window, **changed)],
    )
    owners = [
        ("r0", 0, 0, 1),
        ("r0", 1, 0, 2),
        *(("r0", 2, column, block) for column, block in blocks.items()),
    ]
    decided = Decided(computed, tokens, 0, begins=not computed)
    return ObservedStep(scheduled={"r0": decided}, rows=[row], owners=owners)


def broken_by_windows(*steps: ObservedStep) -> list[tuple[str, str]]:
    """The laws that the steps break, and what was seen, but for conv rows."""
    seen = sliding_laws(16)
    seen.add("r0", range(1, 32))
    return [(law, text) for step in steps for law, text, *_ in seen.forward(step) if "conv rows" not in text]


_STEPS = (slides(0, 5, 0, {0: 3, 1: 4, 2: 5}), slides(5, 3, 2, {1: 4, 2: 5, 3: 6}))


def test_a_forward_reads_the_keys_of_its_window_and_blocks_before_it_may_be_freed() -> None:
    assert broken_by_windows(*_STEPS, slides(8, 1, 5, {2: 5, 3: 6, 4: 7})) == []
    # A step later than they could be freed, they are.
    assert broken_by_windows(*_STEPS, slides(8, 1, 5, {1: 4, 2: 5, 3: 6, 4: 7})) == []


@pytest.mark.parametrize(
    ("third", "broken"),
    [
        (slides(8, 1, 5, {2: 5, 4: 7}, read=(5, 6)), ("attention", "the forward of r0 reads block 6 of group 2")),
        (slides(8, 1, 5, {2: 5, 3: 6}, written=(7,)), ("written", "the forward of r0 writes to block 7 of group 2")),
        (slides(8, 1, 4, {2: 5, 3: 6, 4: 7}), ("attention", "reads the state after 5 tokens of r0 at token 5")),
        (slides(8, 1, 6, {2: 5, 3: 6, 4: 7}), ("attention", "reads the state after 7 tokens of r0 at token 5")),
        (slides(8, 1, 5, {0: 3, 2: 5, 3: 6, 4: 7}), ("freed", "r0 has block 3 of group 2, whose tokens end at 2")),
    ],
    ids=("freed early", "written elsewhere", "too many", "too few", "kept"),
)  # fmt: skip
def test_a_forward_with_sliding_windows_reads_no_more_and_no_less(
    third: ObservedStep, broken: tuple[str, str]
) -> None:
    (law, text), *more = broken_by_windows(*_STEPS, third)
    assert (law, more) == (broken[0], [])
    assert broken[1] in text


def test_a_group_of_sliding_windows_that_is_left_out_is_said() -> None:
    step = slides(0, 5, 0, {0: 3})
    step.rows[0].sliding = []
    assert [law for law, _ in broken_by_windows(step)] == ["metadata"]


def test_states_of_the_weights_before_an_update_are_no_states_of_a_request() -> None:
    checker = laws()
    assert checker.step(prefill()) == []
    checker.update_weights()
    # The request keeps the token that it has said, and what comes behind it is another one.
    assert checker.requests["r0"].tokens == [*PROMPT, NEXT]
    assert checker.requests["r0"].state(4) not in STATES
    broken = checker.step(ObservedStep(published=prefill().published))
    assert [(law, about["found"][0][0]) for law, _, _, about in broken if law == "published"] == [
        ("published", "?"),
        ("published", "?"),
    ]
