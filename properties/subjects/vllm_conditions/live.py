"""Conditions about the lives of a whole engine: what it is like, and the wrong state that a broken step tells of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
from properties.harness.case.values import Raised, Record, Returned
from properties.harness.subject.deviation import Condition

_LATEST = 4
"""Steps within which rows that moved may read by their old places."""


def settings_of(case: Case) -> dict[str, Any]:
    """What the engine of the case is like, where that is not as usual."""
    return dict(case.calls[0].named["settings"].fields)


def _engine(asked: Callable[[dict[str, Any]], bool]) -> Callable[[Case, Profile], bool]:
    return lambda case, _: asked(settings_of(case))


def _about(case: Case) -> dict[str, Any]:
    """What `LiveLaws` tells of the wrong state that breaks the law of the failure; nothing where there is none."""
    law = case.failure.part.rpartition(".")[2] if case.failure is not None else ""
    ended = case.actual[-1] if case.actual else None
    step = ended.value if isinstance(ended, Returned) else None
    findings = step["findings"] if isinstance(step, Record) and step.type == "LiveStep" else ()
    told = next((dict(about) for broken, *_, about in findings if broken == law), {})
    return {"request": "", "tokens": -1, "found": (), "conv": False} | told


def _loads_at_once(settings: dict[str, Any]) -> bool:
    return settings.get("connector") == "sync" and bool(settings.get("prefix_caching", True))


def _steps(case: Case) -> list[dict[str, Mapping[str, Any]]]:
    """What the scheduler decided, step by step, for each request of the step."""
    ended = (one.value for one in case.actual if isinstance(one, Returned))
    steps = [one for one in ended if isinstance(one, Record) and one.type == "LiveStep"]
    return [{name: dict(decided) for name, decided in dict(one["scheduled"]).items()} for one in steps]


def _decided(case: Case) -> Mapping[str, Any]:
    """As `_steps`, of the last step for the request whose state is wrong; nothing of it where it had no part."""
    steps = _steps(case)
    nothing = {"computed": -1, "tokens": 0, "drafts": 0, "begins": False}
    return steps[-1].get(_about(case)["request"], nothing) if steps else nothing


def _wrong(so: Callable[[dict[str, Any]], bool]) -> Callable[[Case, Profile], bool]:
    """Whether the wrong state is such a one."""
    return lambda case, _: so(_about(case))


def _own(about: dict[str, Any]) -> bool:
    """States of the request itself, after another count of tokens or after drafts."""
    found = about["found"]
    return bool(found) and all(owner == about["request"] for owner, _, _ in found)


def _somebodys(about: dict[str, Any]) -> bool:
    """States of requests, or zeros. A block may be named after another request than the one that wrote it."""
    return bool(about["found"]) and all(owner != "?" for owner, _, _ in about["found"])


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


def _speculates(settings: dict[str, Any]) -> bool:
    return bool(settings.get("num_spec", 0) > 0)


def _drafts_with_a_model(settings: dict[str, Any]) -> bool:
    return _speculates(settings) and settings.get("method") == "eagle"


def _overlaps_drafts(settings: dict[str, Any]) -> bool:
    return _speculates(settings) and bool(settings.get("async_scheduling"))


def _moves_counts(settings: dict[str, Any]) -> bool:
    return (
        _overlaps_drafts(settings) and settings.get("runner") == "V1" and settings.get("prefix_caching", True)
    )


def _prompt_of(case: Case, name: str) -> int:
    """Tokens of the request's prompt."""
    adds = (call.named for call in case.calls if call.function.endswith("add_request"))
    return next((len(one["prompt"]) for one in adds if one["id"] == name), 0)


def _loaded_in_its_step(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong state has just begun, behind tokens that a connector loaded in the same step."""
    about, decided, ended = _about(case), _decided(case), case.actual[-1]
    step = ended.value if isinstance(ended, Returned) else None
    loaded = step["loaded"] if isinstance(step, Record) else ()
    found = any(
        name == about["request"] and group and tokens == about["tokens"] for group, _, name, tokens in loaded
    )
    return bool(decided["begins"]) and decided["computed"] == about["tokens"] and found


def _has_work(case: Case) -> bool:
    """Whether the last step before the call had rows."""
    steps = _steps(case)
    return bool(steps and steps[-1])


def _stuck_after_a_failed_load(case: Case, _: Profile) -> bool:
    """Whether nothing runs any more since a load failed."""
    ended = (one.value for one in case.actual if isinstance(one, Returned))
    steps = [one for one in ended if isinstance(one, Record) and one.type == "LiveStep"]
    failed = [at for at, step in enumerate(steps) if step["unloaded"]]
    return bool(failed) and not steps[-1]["scheduled"] and not steps[-1]["loaded"]


def _sat_a_step_out(case: Case, _: Profile) -> bool:
    """Whether the request ran with drafts, had no part in the step before its last one, and was not preempted for that."""
    name, steps = _about(case)["request"], _steps(case)
    drafted = any(step[name]["drafts"] for step in steps[:-2] if name in step)
    return drafted and name in steps[-1] and name not in steps[-2] and not _decided(case)["begins"]


def _short_rests(case: Case, name: str) -> Iterator[tuple[int, int]]:
    """Tokens before and after each row in which a request that was preempted computes again what it had said, in a
    row no longer than a decode with drafts.
    """
    longest = 1 + settings_of(case).get("num_spec", 0)
    prompt, lives = _prompt_of(case, name), 0
    for step in _steps(case):
        one = step.get(name)
        if one is None:
            continue
        lives += bool(one["begins"])
        if lives > 1 and not one["drafts"] and one["computed"] >= prompt and 1 < one["tokens"] <= longest:
            yield one["computed"], one["computed"] + one["tokens"]


def _resumed_with_a_short_rest(case: Case, _: Profile) -> bool:
    """Whether such a row is of the request, or, since a block is named after its first owner, ended where the state should be."""
    about = _about(case)
    if _own(about) and any(_short_rests(case, about["request"])):
        return True
    names = {name for step in _steps(case) for name in step}
    rests = (rest for name in names for rest in _short_rests(case, name))
    return _is_published(case) and any(first < about["tokens"] <= last for first, last in rests)


def _is_published(case: Case) -> bool:
    return case.failure is not None and case.failure.part.endswith(".published")


def _rows_moved(case: Case, _: Profile) -> bool:
    """Whether other requests than before were in one of the latest steps, so that rows could move."""
    latest = [tuple(step) for step in _steps(case)[-_LATEST:]]
    return len(set(latest)) > 1


def _padded_prompt(case: Case, _: Profile) -> bool:
    """Whether the request that read a wrong state had computed nothing, and was filled up with placeholders."""
    decided = _decided(case)
    return bool(decided["computed"] == 0 and decided["drafts"] > 0)


def _crossed_there(case: Case, _: Profile) -> bool:
    """Whether a step began inside of a recurrent block, passed its end, and that is where the wrong state should be."""
    size, there = settings_of(case).get("block_size", 4), _about(case)["tokens"]
    chunks = ((one["computed"], one["tokens"]) for step in _steps(case) for one in step.values())
    return any(
        first % size and first // size * size + size == there < first + tokens for first, tokens in chunks
    )


def _begins_in_its_last_block(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong key has just begun, by a hit, and the key is of the last block of the hit."""
    settings, decided = settings_of(case), _decided(case)
    size = settings.get("attention_block_size", 0) or settings.get("block_size", 4)
    wrong = _about(case)["tokens"] - 1
    return bool(decided["begins"]) and 0 <= (decided["computed"] - 1) // size * size <= wrong


def _not_alone(case: Case, _: Profile) -> bool:
    return len(_steps(case)[-1]) > 1


def _hit_inside(case: Case, _: Profile) -> bool:
    settings = settings_of(case)
    size = settings.get("attention_block_size", 0) or settings.get("block_size", 4)
    return bool(_decided(case)["computed"] % size)


def _preempts_by_a_reset(case: Case, _: Profile) -> bool:
    return any(call.function.endswith("reset_prefix_cache") and call.named["preempt"] for call in case.calls)


def _channels_first(case: Case, _: Profile) -> bool:
    return any(("VLLM_SSM_CONV_STATE_LAYOUT", "DS") in call.environment for call in case.calls)


def _accepted_onto_a_boundary(case: Case, _: Profile) -> bool:
    """Whether a step with drafts ended on a boundary by accepting some, and it is the temporal state there that is wrong."""
    about, size = _about(case), settings_of(case).get("block_size", 4)
    there = about["tokens"]
    rows = [one for step in _steps(case) for one in step.values() if one["drafts"]]
    reached = any(one["computed"] + 1 < there <= one["computed"] + one["tokens"] for one in rows)
    return there > 0 and not there % size and not about["conv"] and reached


def _column_of_a_hit(case: Case, _: Profile) -> bool:
    """Whether the request has just begun, and its hit ends in another column where blocks are as small as attention's."""
    settings, decided = settings_of(case), _decided(case)
    last = decided["computed"] - 1
    small, size = settings.get("attention_block_size", 0), settings.get("block_size", 4)
    return bool(decided["begins"]) and last >= 0 and last // small != last // size


def _inside_of_a_block(case: Case, _: Profile) -> bool:
    """Whether the block may be hit as a number of tokens that ends inside of a recurrent block."""
    return bool(_about(case)["tokens"] % settings_of(case).get("block_size", 4))


def _plain_decode(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong state decodes one token, without drafts."""
    decided = _decided(case)
    said = decided["computed"] >= _prompt_of(case, _about(case)["request"])
    return bool(said and decided["tokens"] == 1 and not decided["drafts"])


def _chunk_before_the_last(case: Case, _: Profile) -> bool:
    """Whether a chunk of more than a block that is not its prompt's last one ends where the wrong conv rows should be."""
    about, size = _about(case), settings_of(case).get("block_size", 4)
    chunks = (
        (one["computed"] + one["tokens"], one["tokens"], _prompt_of(case, name))
        for step in _steps(case)
        for name, one in step.items()
    )
    return bool(about["conv"]) and any(
        last == about["tokens"] < prompt and tokens > size for last, tokens, prompt in chunks
    )


def _keeps_every_boundary(settings: dict[str, Any]) -> bool:
    return _speculates(settings) and settings.get("mamba_cache_mode") == "all"


def _drafts_passed_there(case: Case, _: Profile) -> bool:
    """Whether a row with drafts passed the block's end that the wrong block may be hit as."""
    there, size = _about(case)["tokens"], settings_of(case).get("block_size", 4)
    rows = [one for step in _steps(case) for one in step.values() if one["drafts"]]
    passed = any(one["computed"] < there <= one["computed"] + one["tokens"] for one in rows)
    return bool(there % size == 0 and passed)


def _was_in_a_later_column(case: Case, _: Profile) -> bool:
    """Whether the request that reads wrong conv rows ran a row with drafts whose last one was in a later block than its state is."""
    about, size = _about(case), settings_of(case).get("block_size", 4)
    rows = [step[about["request"]] for step in _steps(case)[:-1] if about["request"] in step]
    last = (about["tokens"] - 1) // size
    later = any(one["drafts"] and (one["computed"] + one["tokens"] - 1) // size > last for one in rows)
    return bool(about["conv"] and later)


def _lacks_the_column_before(case: Case, _: Profile) -> bool:
    ended = case.actual[-1] if case.actual else None
    return isinstance(ended, Raised) and "block_idx_last_scheduled_token_prev_step" in ended.message


def _all(*conditions: Callable[[Case, Profile], bool]) -> Callable[[Case, Profile], bool]:
    return lambda case, profile: all(one(case, profile) for one in conditions)


LIVE: Mapping[str, Condition] = {
    "accepted_count_of_another_row": Condition(_engine(_moves_counts), _all(_wrong(_own), _rows_moved)),
    "drops_a_frame_for_each_draft": Condition(_engine(_overlaps_drafts), _preempts_by_a_reset),
    "channel_first_engine": Condition(_engine(_speculates), _channels_first),
    "first_token_of_an_engine": Condition(_wrong(_of_the_first_token)),
    "first_token_of_gdn_in_an_engine": Condition(
        _engine(lambda settings: "gdn" in settings["kinds"]), _wrong(_of_the_first_token)
    ),
    "took_in_placeholders": Condition(_engine(_speculates), _wrong(_with_placeholders)),
    "padded_prompt": Condition(_engine(_speculates), _padded_prompt),
    "resumed_with_a_short_rest": Condition(
        _engine(lambda settings: "mamba2" in settings["kinds"]),
        _all(_wrong(_somebodys), _resumed_with_a_short_rest),
    ),
    "unaligned_chunk_of_a_draft": Condition(
        _engine(_drafts_with_a_model), _all(_wrong(_somebodys), _crossed_there)
    ),
    "recurrent_hit_past_the_drop": Condition(_engine(_drafts_with_a_model), _begins_in_its_last_block),
    "accepted_count_in_place": Condition(
        _engine(_speculates), _all(_wrong(_somebodys), _accepted_onto_a_boundary)
    ),
    "decode_without_drafts": Condition(
        _engine(lambda settings: _speculates(settings) and "gdn" in settings["kinds"]),
        _all(_wrong(_own), _plain_decode),
    ),
    "saves_before_the_last_chunk": Condition(
        _engine(lambda settings: _speculates(settings) and bool(settings.get("checkpoints"))),
        _all(_wrong(_somebodys), _chunk_before_the_last),
    ),
    "column_of_a_hit": Condition(
        _engine(
            lambda settings: _smaller_attention_blocks(settings) and settings.get("runner", "V2") == "V2"
        ),
        _column_of_a_hit,
    ),
    "tail_published_again": Condition(
        _engine(lambda settings: _hits_inside_blocks(settings) and bool(settings.get("async_scheduling"))),
        _inside_of_a_block,
    ),
    "loads_at_once": Condition(_engine(_loads_at_once)),
    "loaded_in_its_step": Condition(_engine(_loads_at_once), _loaded_in_its_step),
    "sat_a_step_out": Condition(
        _engine(lambda settings: _speculates(settings) and settings.get("runner") == "V1"),
        _all(_wrong(_own), _sat_a_step_out),
    ),
    "stuck_after_a_failed_load": Condition(
        _engine(lambda settings: bool(settings.get("failing_loads"))), _stuck_after_a_failed_load
    ),
    "connected_and_overlapped": Condition(
        _engine(lambda settings: bool(settings.get("connector")) and bool(settings.get("async_scheduling"))),
        lambda case, _: _has_work(case),
    ),
    "drafts_past_a_boundary": Condition(
        _engine(_keeps_every_boundary), _all(_wrong(_somebodys), _drafts_passed_there)
    ),
    "conv_rows_in_a_later_column": Condition(_engine(_keeps_every_boundary), _was_in_a_later_column),
    "decode_without_the_column_before": Condition(_engine(_keeps_every_boundary), _lacks_the_column_before),
    "smaller_attention_blocks": Condition(_engine(_smaller_attention_blocks), _crossed_there),
    "hits_inside_blocks": Condition(
        _engine(_hits_inside_blocks), _all(_begins_in_its_last_block, _hit_inside, _not_alone)
    ),
    "saves_inside_blocks": Condition(_engine(_saves_inside_blocks), _crossed_there),
}
