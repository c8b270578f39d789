"""What tells defects of a release's builders apart, where two of them show in one step, or one has consequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from oracle.profile import DOCUMENTS
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.case import Case, Failure
from statecheck.case.values import Call, Expected, Name, Raised, Record, Returned, Tensor
from statecheck.execution.run import Follower, rules_of
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case

GDN = BuilderSetup(kind="gdn", full_cudagraphs=True, max_num_seqs=3)
ALL = BuilderSetup(kind="mamba1", mode="all", full_cudagraphs=True, max_num_seqs=3)
DECODE, FIRST_TOKEN = StepRequest(1, 3), StepRequest(1, 0, True)


def outcomes(*steps: Call) -> list[Returned]:
    """What the rules expect of these calls."""
    asked = [one.expected for _, one in Follower(rules_of(DOCUMENTS)).follow(steps) if one is not None]
    assert all(isinstance(one, Returned) for one in asked)
    return [one for one in asked if isinstance(one, Returned)]


def case_of(steps: tuple[Call, ...], expected: tuple[Expected, ...], *actual: Returned | Raised) -> Case:
    failure = Failure("value", "metadata differ", function=steps[-1].function, call=1, place="result.x")
    return a_case(steps=steps, expected=expected, actual=actual, failure=failure)


def built(setup: BuilderSetup, step: BuildCall, change: Callable[[Record], Record]) -> Case:
    """A step of which a release builds something else than the rules do."""
    steps = (setup.construct(), step.build(setup))
    made, right = outcomes(*steps)
    assert isinstance(right.value, Record)
    return case_of(steps, (made, right), made, replace(right, value=change(right.value)))


def with_fields(metadata: Record, **changes: object) -> Record:
    return replace(metadata, fields=tuple((name, changes.get(name, old)) for name, old in metadata.fields))


def with_entries(metadata: Record, entries: int) -> Record:
    """So many entries for a row each, and one more for starts, as a buffer has them that is cut elsewhere."""

    def cut(name: str, count: int) -> Tensor:
        values = dict(metadata.fields)[name].values()
        return Tensor("int32", (count,), (*values, *(values[-1:] * count))[:count])

    ids, starts = "non_spec_state_indices_tensor", "non_spec_query_start_loc"
    return with_fields(metadata, **{ids: cut(ids, entries), starts: cut(starts, entries + 1)})


@pytest.mark.parametrize(
    ("tokens", "entries", "known"), [(1, 3, True), (1, 2, False), (5, 3, True), (5, 2, False)]
)
def test_entries_are_as_many_as_there_are_tokens_and_room(tokens: int, entries: int, known: bool) -> None:
    step = BuildCall((DECODE, DECODE), padded_tokens=tokens)
    case = built(GDN, step, lambda metadata: with_entries(metadata, entries))
    assert CONDITIONS["padded_to_tokens"](case, DOCUMENTS) is known


@pytest.mark.parametrize(("entries", "known"), [(1, True), (2, True), (3, False)])
def test_a_first_token_that_is_taken_for_a_decode_may_be_padded_to_tokens(entries: int, known: bool) -> None:
    step = BuildCall((FIRST_TOKEN,), padded_tokens=1)
    unmarked = replace(step, marks=False, bounds=False)
    _, as_decode = outcomes(GDN.construct(), unmarked.build(GDN))
    assert isinstance(as_decode.value, Record)
    wrong = with_entries(as_decode.value, entries)
    assert CONDITIONS["first_token"](built(GDN, step, lambda _: wrong), DOCUMENTS) is known


def test_nothing_else_is_known_beside_a_first_token() -> None:
    case = built(
        GDN, BuildCall((FIRST_TOKEN,), padded_tokens=1), lambda one: with_fields(one, num_spec_decodes=7)
    )
    assert not CONDITIONS["first_token"](case, DOCUMENTS)


@pytest.mark.parametrize(("entries", "known"), [(0, True), (2, False)])
def test_another_block_table_fails_because_of_the_indices_that_were_cut(entries: int, known: bool) -> None:
    step = BuildCall((), padded_rows=1)
    construct, build = ALL.construct(), step.build(ALL)
    made, right = outcomes(construct, build)
    assert isinstance(right.value, Record)
    cut = Tensor("int32", (entries,), (0,) * entries)
    indices = {"block_idx_last_scheduled_token": cut, "block_idx_last_computed_token": cut}
    wrong = replace(right, value=with_fields(right.value, **indices))
    named = build.named["common_attn_metadata"]
    arguments = {
        "self": Name("builder"),
        "metadata": Name("metadata"),
        "blk_table": named["block_table_tensor"],
        "slot_mapping": named["slot_mapping"],
    }
    update = Call(f"{ALL.builder}.update_block_table", tuple(arguments.items()), by_content=True)
    expected = (made, right, outcomes(construct, build, update)[-1])
    case = case_of((construct, build, update), expected, made, wrong, Raised("RuntimeError", "shapes differ"))
    assert CONDITIONS["kept_indices"](case, DOCUMENTS) is known
