"""Conditions about scenarios of a whole engine: what it is like, and the wrong state that a broken step tells of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
from properties.harness.case.values import Raised
from properties.harness.subject.deviation import Condition
from properties.subjects.vllm_conditions.scenarios import (
    about_of,
    all_of,
    decided_of,
    of_engine,
    of_wrong_state,
    own,
    settings_of,
    somebodys,
    speculates,
    steps_of,
)

_LATEST = 4
"""Steps within which rows that moved may read by their old places."""
_LAST = 10
"""How many steps at the end of a scenario are looked at."""


def _with_placeholders(about: dict[str, Any]) -> bool:
    return any(more and not any(more) for _, _, more in about["found"])


def _of_the_first_token(about: dict[str, Any]) -> bool:
    return bool(about["tokens"] == 0)


def _smaller_attention_blocks(settings: dict[str, Any]) -> bool:
    return 0 < settings.get("attention_block_size", 0) < settings.get("block_size", 4)


def _hits_inside_blocks(settings: dict[str, Any]) -> bool:
    return settings.get("prefix_match_unit", 0) > 0 or _smaller_attention_blocks(settings)


def _saves_inside_blocks(settings: dict[str, Any]) -> bool:
    return bool(settings.get("checkpoints")) and _hits_inside_blocks(settings)


def _drafts_with_a_model(settings: dict[str, Any]) -> bool:
    return speculates(settings) and settings.get("method") == "eagle"


def _overlaps_drafts(settings: dict[str, Any]) -> bool:
    return speculates(settings) and bool(settings.get("async_scheduling"))


def _moves_counts(settings: dict[str, Any]) -> bool:
    return (
        _overlaps_drafts(settings) and settings.get("runner") == "V1" and settings.get("prefix_caching", True)
    )


def _prompt_of(case: Case, name: str) -> int:
    """Tokens of the request's prompt."""
    adds = (call.named for call in case.calls if call.function.endswith("add_request"))
    return next((len(one["prompt"]) for one in adds if one["id"] == name), 0)


def _short_rests(case: Case, name: str) -> Iterator[tuple[int, int]]:
    """Tokens before and after each row in which a request that was preempted computes again what it had said, in a
    row no longer than a decode with drafts.
    """
    longest = 1 + settings_of(case).get("num_spec", 0)
    prompt, begun = _prompt_of(case, name), 0
    for step in steps_of(case):
        one = step.get(name)
        if one is None:
            continue
        begun += bool(one["begins"])
        if begun > 1 and not one["drafts"] and one["computed"] >= prompt and 1 < one["tokens"] <= longest:
            yield one["computed"], one["computed"] + one["tokens"]


def _resumed_with_a_short_rest(case: Case, _: Profile) -> bool:
    """Whether such a row is of the request, or, since a block is named after its first owner, ended where the state should be."""
    about = about_of(case)
    if own(about) and any(_short_rests(case, about["request"])):
        return True
    names = {name for step in steps_of(case) for name in step}
    rests = (rest for name in names for rest in _short_rests(case, name))
    return _is_published(case) and any(first < about["tokens"] <= last for first, last in rests)


def _is_published(case: Case) -> bool:
    return case.failure is not None and case.failure.part.endswith(".published")


def _rows_moved(case: Case, _: Profile) -> bool:
    """Whether other requests than before were in one of the latest steps, so that rows could move."""
    latest = [tuple(step) for step in steps_of(case)[-_LATEST:]]
    return len(set(latest)) > 1


def _padded_prompt(case: Case, _: Profile) -> bool:
    """Whether the request that read a wrong state had computed nothing, and was filled up with placeholders."""
    decided = decided_of(case)
    return bool(decided["computed"] == 0 and decided["drafts"] > 0)


def _crossed_there(case: Case, _: Profile) -> bool:
    """Whether a step began inside of a recurrent block, passed its end, and that is where the wrong state should be."""
    size, there = settings_of(case).get("block_size", 4), about_of(case)["tokens"]
    chunks = ((one["computed"], one["tokens"]) for step in steps_of(case) for one in step.values())
    return any(
        first % size and first // size * size + size == there < first + tokens for first, tokens in chunks
    )


def _begins_in_its_last_block(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong key has just begun, by a hit, and the key is of the last block of the hit."""
    settings, decided = settings_of(case), decided_of(case)
    size = settings.get("attention_block_size", 0) or settings.get("block_size", 4)
    wrong = about_of(case)["tokens"] - 1
    return bool(decided["begins"]) and 0 <= (decided["computed"] - 1) // size * size <= wrong


def _not_alone(case: Case, _: Profile) -> bool:
    return len(steps_of(case)[-1]) > 1


def _hit_inside(case: Case, _: Profile) -> bool:
    settings = settings_of(case)
    size = settings.get("attention_block_size", 0) or settings.get("block_size", 4)
    return bool(decided_of(case)["computed"] % size)


def _preempts_by_a_reset(case: Case, _: Profile) -> bool:
    return any(call.function.endswith("reset_prefix_cache") and call.named["preempt"] for call in case.calls)


def _channels_first(case: Case, _: Profile) -> bool:
    return any(("VLLM_SSM_CONV_STATE_LAYOUT", "DS") in call.environment for call in case.calls)


def _accepted_onto_a_boundary(case: Case, _: Profile) -> bool:
    """Whether a step with drafts ended on a boundary by accepting some, and it is the temporal state there that is wrong."""
    about, size = about_of(case), settings_of(case).get("block_size", 4)
    there = about["tokens"]
    rows = [one for step in steps_of(case) for one in step.values() if one["drafts"]]
    reached = any(one["computed"] + 1 < there <= one["computed"] + one["tokens"] for one in rows)
    return there > 0 and not there % size and not about["conv"] and reached


def _column_of_a_hit(case: Case, _: Profile) -> bool:
    """Whether the request has just begun, and its hit ends in another column where blocks are as small as attention's."""
    settings, decided = settings_of(case), decided_of(case)
    last = decided["computed"] - 1
    small, size = settings.get("attention_block_size", 0), settings.get("block_size", 4)
    return bool(decided["begins"]) and last >= 0 and last // small != last // size


def _inside_of_a_block(case: Case, _: Profile) -> bool:
    """Whether the block may be hit as a number of tokens that ends inside of a recurrent block."""
    return bool(about_of(case)["tokens"] % settings_of(case).get("block_size", 4))


def _plain_decode(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong state decodes one token, without drafts."""
    decided = decided_of(case)
    said = decided["computed"] >= _prompt_of(case, about_of(case)["request"])
    return bool(said and decided["tokens"] == 1 and not decided["drafts"])


def _unwritten_or_own(about: dict[str, Any]) -> bool:
    """States of the request itself, or what no request has written."""
    return bool(about["found"]) and all(
        owner in (about["request"], "?", "") for owner, _, _ in about["found"]
    )


def _drafted_behind_a_prompt(case: Case, _: Profile) -> bool:
    """Whether the wrong state is of a request that had a row with drafts beside one of no more tokens that is in its prompt."""
    name = about_of(case)["request"]
    return any(
        step[name]["drafts"]
        and other != name
        and one["tokens"] <= step[name]["tokens"]
        and one["computed"] < _prompt_of(case, other)
        for step in steps_of(case)
        if name in step
        for other, one in step.items()
    )


def _chunk_before_the_last(case: Case, _: Profile) -> bool:
    """Whether a chunk of two blocks, neither the first nor the last of its request, ends where the wrong conv rows should be."""
    about, size = about_of(case), settings_of(case).get("block_size", 4)
    chunks = (
        (one["computed"], one["computed"] + one["tokens"])
        for step in steps_of(case)
        for name, one in step.items()
        if not one["begins"] and one["computed"] + one["tokens"] < _prompt_of(case, name)
    )
    return bool(about["conv"]) and any(
        last == about["tokens"] and -(-last // size) + -first // size == 2 for first, last in chunks
    )


def _keeps_every_boundary(settings: dict[str, Any]) -> bool:
    return speculates(settings) and settings.get("mamba_cache_mode") == "all"


def _drafts_passed_there(case: Case, _: Profile) -> bool:
    """Whether a row with drafts passed the block's end that the wrong block may be hit as."""
    there, size = about_of(case)["tokens"], settings_of(case).get("block_size", 4)
    rows = [one for step in steps_of(case) for one in step.values() if one["drafts"]]
    passed = any(one["computed"] < there <= one["computed"] + one["tokens"] for one in rows)
    return bool(there % size == 0 and passed)


def _was_in_a_later_column(case: Case, _: Profile) -> bool:
    """Whether the request that reads wrong conv rows ran a row with drafts whose last one was in a later block than its state is."""
    about, size = about_of(case), settings_of(case).get("block_size", 4)
    rows = [step[about["request"]] for step in steps_of(case)[:-1] if about["request"] in step]
    last = (about["tokens"] - 1) // size
    later = any(one["drafts"] and (one["computed"] + one["tokens"] - 1) // size > last for one in rows)
    return bool(about["conv"] and later)


def _lacks_the_column_before(case: Case, _: Profile) -> bool:
    ended = case.actual[-1] if case.actual else None
    return isinstance(ended, Raised) and "block_idx_last_scheduled_token_prev_step" in ended.message


def _begins_for_ever(case: Case, _: Profile) -> bool:
    """Whether in the end every row is of a request that begins anew, and other steps have none."""
    last = steps_of(case)[-_LAST:]
    begins = [row["begins"] for step in last for row in step.values()]
    return len(begins) >= _LAST // 2 and all(begins) and any(not step for step in last)


LIVE: Mapping[str, Condition] = {
    "accepted_count_of_another_row": Condition(
        of_engine(_moves_counts), all_of(of_wrong_state(own), _rows_moved)
    ),
    "drops_a_frame_for_each_draft": Condition(of_engine(_overlaps_drafts), _preempts_by_a_reset),
    "channel_first_engine": Condition(of_engine(speculates), _channels_first),
    "first_token_of_an_engine": Condition(of_wrong_state(_of_the_first_token)),
    "first_token_of_gdn_in_an_engine": Condition(
        of_engine(lambda settings: "gdn" in settings["kinds"]), of_wrong_state(_of_the_first_token)
    ),
    "took_in_placeholders": Condition(of_engine(speculates), of_wrong_state(_with_placeholders)),
    "padded_prompt": Condition(of_engine(speculates), _padded_prompt),
    "resumed_with_a_short_rest": Condition(
        of_engine(lambda settings: "mamba2" in settings["kinds"]),
        all_of(of_wrong_state(somebodys), _resumed_with_a_short_rest),
    ),
    "unaligned_chunk_of_a_draft": Condition(
        of_engine(_drafts_with_a_model), all_of(of_wrong_state(somebodys), _crossed_there)
    ),
    "recurrent_hit_past_the_drop": Condition(of_engine(_drafts_with_a_model), _begins_in_its_last_block),
    "accepted_count_in_place": Condition(
        of_engine(speculates), all_of(of_wrong_state(somebodys), _accepted_onto_a_boundary)
    ),
    "decode_without_drafts": Condition(
        of_engine(lambda settings: speculates(settings) and "gdn" in settings["kinds"]),
        all_of(of_wrong_state(own), _plain_decode),
    ),
    "drafted_behind_a_prompt": Condition(
        of_engine(lambda settings: speculates(settings) and settings.get("runner", "V2") == "V2"),
        all_of(of_wrong_state(_unwritten_or_own), _drafted_behind_a_prompt),
    ),
    "saves_before_the_last_chunk": Condition(
        of_engine(lambda settings: settings.get("num_spec") == 1 and bool(settings.get("checkpoints"))),
        all_of(of_wrong_state(somebodys), _chunk_before_the_last),
    ),
    "column_of_a_hit": Condition(
        of_engine(
            lambda settings: _smaller_attention_blocks(settings) and settings.get("runner", "V2") == "V2"
        ),
        _column_of_a_hit,
    ),
    "tail_published_again": Condition(
        of_engine(lambda settings: _hits_inside_blocks(settings) and bool(settings.get("async_scheduling"))),
        _inside_of_a_block,
    ),
    "drafts_past_a_boundary": Condition(
        of_engine(_keeps_every_boundary), all_of(of_wrong_state(somebodys), _drafts_passed_there)
    ),
    "conv_rows_in_a_later_column": Condition(of_engine(_keeps_every_boundary), _was_in_a_later_column),
    "decode_without_the_column_before": Condition(of_engine(_keeps_every_boundary), _lacks_the_column_before),
    "smaller_attention_blocks": Condition(of_engine(_smaller_attention_blocks), _crossed_there),
    "hits_inside_blocks": Condition(
        of_engine(_hits_inside_blocks), all_of(_begins_in_its_last_block, _hit_inside, _not_alone)
    ),
    "saves_inside_blocks": Condition(of_engine(_saves_inside_blocks), _crossed_there),
    "begins_for_ever": Condition(
        of_engine(lambda settings: bool(settings.get("async_scheduling"))), _begins_for_ever
    ),
}
