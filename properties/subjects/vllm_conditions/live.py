"""Conditions about the lives of a whole engine: what it is like, and what a broken step says."""

from __future__ import annotations

import re
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


def _says(pattern: str) -> Callable[[Case, Profile], bool]:
    """Whether the failure's sentence matches."""
    return lambda case, _: case.failure is not None and re.search(pattern, case.failure.sentence) is not None


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
    read = (
        re.search(r"the forward of (\w+) reads", case.failure.sentence) if case.failure is not None else None
    )
    if read is None:
        return False
    steps = [one.value for one in case.actual if isinstance(one, Returned) and isinstance(one.value, Record)]
    begins = [
        decided[read[1]]["begins"]
        for step in steps
        if "scheduled" in dict(step.fields) and read[1] in (decided := dict(step["scheduled"]))
    ]
    return sum(begins) > 1


def _preempts_by_a_reset(case: Case, _: Profile) -> bool:
    return any(call.function.endswith("reset_prefix_cache") and call.named["preempt"] for call in case.calls)


_FIRST = r"its 0 computed tokens|computed tokens, of 0$"

_ANOTHER_COUNT = r"as \d+ tokens of (\w+), holds (conv rows )?the state after \d+ tokens? of \1\b"

LIVE: Mapping[str, Condition] = {
    "accepted_count_of_another_row": Condition(
        _engine(_moves_counts), _says(r"the forward of \w+ reads (the state|conv rows)")
    ),
    "drops_a_frame_for_each_draft": Condition(_engine(_overlaps_drafts), _preempts_by_a_reset),
    "channel_first_engine": Condition(_engine(_speculates), _says("DS conv state")),
    "first_token_of_an_engine": Condition(_says(_FIRST)),
    "first_token_of_gdn_in_an_engine": Condition(
        _engine(lambda settings: "gdn" in settings["kinds"]), _says(_FIRST)
    ),
    "last_prompt_token_with_placeholders": Condition(
        _engine(_speculates), _says(r"and then \[0(, 0)*\]|the forward of \w+ reads conv rows")
    ),
    "resumed_with_a_short_rest": Condition(_engine(_speculates), _resumed),
    "unaligned_chunk_of_a_draft": Condition(_engine(_drafts_with_a_model), _says(_ANOTHER_COUNT)),
    "recurrent_hit_past_the_drop": Condition(
        _engine(_drafts_with_a_model), _says(r"^attention layer \d+ of \w+ reads .* at token")
    ),
    # A prompt of one token and then placeholders.
    "took_in_placeholders": Condition(
        _engine(lambda settings: settings.get("num_spec", 0) > 0),
        _says(r"the state after 1 token of (\w+) and then \[0(, 0)*\]|the forward of \w+ reads conv rows"),
    ),
    "smaller_attention_blocks": Condition(_engine(_smaller_attention_blocks)),
    "hits_inside_blocks": Condition(_engine(_hits_inside_blocks)),
    "saves_inside_blocks": Condition(_engine(_saves_inside_blocks)),
}
