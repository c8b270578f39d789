"""Conditions about the lives of a whole engine: what it is like, and the wrong state that a broken step tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
from properties.harness.case.values import Record, Returned
from properties.harness.subject.deviation import Condition


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


def _wrong(so: Callable[[dict[str, Any]], bool]) -> Callable[[Case, Profile], bool]:
    """Whether the wrong state is such a one."""
    return lambda case, _: so(_about(case))


def _own(about: dict[str, Any]) -> bool:
    """States of the request itself, after another count of tokens or after drafts."""
    found = about["found"]
    return bool(found) and all(owner == about["request"] for owner, _, _ in found)


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


def _resumed(case: Case, _: Profile) -> bool:
    """Whether the request that read a wrong state has been preempted before."""
    name = _about(case)["request"]
    steps = [one.value for one in case.actual if isinstance(one, Returned) and isinstance(one.value, Record)]
    scheduled = [dict(step["scheduled"]) for step in steps if step.type == "LiveStep"]
    return sum(bool(decided[name]["begins"]) for decided in scheduled if name in decided) > 1


def _preempts_by_a_reset(case: Case, _: Profile) -> bool:
    return any(call.function.endswith("reset_prefix_cache") and call.named["preempt"] for call in case.calls)


def _channels_first(case: Case, _: Profile) -> bool:
    return any(("VLLM_SSM_CONV_STATE_LAYOUT", "DS") in call.environment for call in case.calls)


LIVE: Mapping[str, Condition] = {
    "accepted_count_of_another_row": Condition(_engine(_moves_counts), _wrong(_own)),
    "drops_a_frame_for_each_draft": Condition(_engine(_overlaps_drafts), _preempts_by_a_reset),
    "channel_first_engine": Condition(_engine(_speculates), _channels_first),
    "first_token_of_an_engine": Condition(_wrong(_of_the_first_token)),
    "first_token_of_gdn_in_an_engine": Condition(
        _engine(lambda settings: "gdn" in settings["kinds"]), _wrong(_of_the_first_token)
    ),
    "took_in_placeholders": Condition(_engine(_speculates), _wrong(_with_placeholders)),
    "resumed_with_a_short_rest": Condition(_engine(_speculates), _resumed),
    "unaligned_chunk_of_a_draft": Condition(_engine(_drafts_with_a_model), _wrong(_own)),
    "recurrent_hit_past_the_drop": Condition(_engine(_drafts_with_a_model)),
    "smaller_attention_blocks": Condition(_engine(_smaller_attention_blocks)),
    "hits_inside_blocks": Condition(_engine(_hits_inside_blocks)),
    "saves_inside_blocks": Condition(_engine(_saves_inside_blocks)),
}
