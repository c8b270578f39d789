"""Conditions about the lives of a whole engine: what it is like, and what a broken step says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
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


LIVE: Mapping[str, Condition] = {
    # A prompt of one token and then placeholders.
    "took_in_placeholders": Condition(
        _engine(lambda settings: settings.get("num_spec", 0) > 0),
        _says(r"the state after 1 token of (\w+) and then \[0(, 0)*\]|the forward of \w+ reads conv rows"),
    ),
    "smaller_attention_blocks": Condition(_engine(_smaller_attention_blocks)),
    "hits_inside_blocks": Condition(_engine(_hits_inside_blocks)),
    "saves_inside_blocks": Condition(_engine(_saves_inside_blocks)),
}
