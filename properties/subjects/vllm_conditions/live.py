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
    """The law that the case's last step breaks, and what `LiveLaws` tells of a wrong state; nothing where there is none."""
    ended = case.actual[-1] if case.actual else None
    step = ended.value if isinstance(ended, Returned) else None
    findings = step["findings"] if isinstance(step, Record) and step.type == "LiveStep" else ()
    about = {"law": "", "request": "", "tokens": -1, "found": (), "conv": False}
    return about | ({"law": findings[0][0]} | dict(findings[0][-1]) if findings else {})


def _any(_: dict[str, Any]) -> bool:
    return True


def _breaks(*laws: str, so: Callable[[dict[str, Any]], bool] = _any) -> Callable[[Case, Profile], bool]:
    """Whether one of these laws is broken, and the wrong state is such a one."""
    return lambda case, _: (about := _about(case))["law"] in laws and so(about)


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
    about = _about(case)
    name = about["request"]
    steps = [one.value for one in case.actual if isinstance(one, Returned) and isinstance(one.value, Record)]
    scheduled = [dict(step["scheduled"]) for step in steps if step.type == "LiveStep"]
    begun = sum(bool(decided[name]["begins"]) for decided in scheduled if name in decided)
    return about["law"] == "read" and begun > 1


def _preempts_by_a_reset(case: Case, _: Profile) -> bool:
    return _about(case)["law"] in ("", "output", "tokens", "computed", "read") and any(
        call.function.endswith("reset_prefix_cache") and call.named["preempt"] for call in case.calls
    )


def _channels_first(case: Case, _: Profile) -> bool:
    return any(("VLLM_SSM_CONV_STATE_LAYOUT", "DS") in call.environment for call in case.calls)


LIVE: Mapping[str, Condition] = {
    "accepted_count_of_another_row": Condition(_engine(_moves_counts), _breaks("read", so=_own)),
    "drops_a_frame_for_each_draft": Condition(_engine(_overlaps_drafts), _preempts_by_a_reset),
    "channel_first_engine": Condition(_engine(_speculates), _channels_first),
    "first_token_of_an_engine": Condition(_breaks("read", so=_of_the_first_token)),
    "first_token_of_gdn_in_an_engine": Condition(
        _engine(lambda settings: "gdn" in settings["kinds"]), _breaks("read", so=_of_the_first_token)
    ),
    "last_prompt_token_with_placeholders": Condition(
        _engine(_speculates), _breaks("read", so=_with_placeholders)
    ),
    "resumed_with_a_short_rest": Condition(_engine(_speculates), _resumed),
    "unaligned_chunk_of_a_draft": Condition(_engine(_drafts_with_a_model), _breaks("published", so=_own)),
    "recurrent_hit_past_the_drop": Condition(_engine(_drafts_with_a_model), _breaks("attention")),
    # A prompt of one token and then placeholders.
    "took_in_placeholders": Condition(_engine(_speculates), _breaks("read", so=_with_placeholders)),
    "smaller_attention_blocks": Condition(_engine(_smaller_attention_blocks), _breaks("published", "read")),
    "hits_inside_blocks": Condition(_engine(_hits_inside_blocks), _breaks("attention")),
    "saves_inside_blocks": Condition(_engine(_saves_inside_blocks), _breaks("published", "read")),
}
