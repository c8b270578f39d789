"""Conditions of entries about builders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from oracle.builders.base import kept_width
from oracle.builders.batch import is_prefill
from oracle.profile import DOCUMENTS, Profile
from statecheck.case import Case
from statecheck.case.values import Call, Expected, Record, Tensor
from statecheck.reference.builders import config_of, step_of
from subjects import Condition
from subjects.vllm_conditions.calls import (
    Made,
    asked_again,
    explained,
    some_call,
    with_argument,
)

_GDN = "GDNAttentionMetadataBuilder"
_COMMON = "common_attn_metadata"
_COUNTS = "num_accepted_tokens"
_OWNED = "harness.owned_fields"
_HOST_KNOWS = ("is_prefilling", "seq_lens_cpu_upper_bound")


def _builds(call: Call, gdn: bool) -> bool:
    return ".build" in call.function and call.function.startswith(_GDN) is gdn


def _dropped(call: Call) -> tuple[int, ...]:
    """The rows whose accepted tokens GDN forgets: decodes that drafted nothing, where they are marked so, or none drafted."""
    if not _builds(call, gdn=True) or call.named.get(_COUNTS) is None:
        return ()
    # The number of drafts is configured alike in every release.
    step, num_spec = step_of(call), config_of(call.named["self"], DOCUMENTS).num_spec
    undrafted = all((row.drafts or 0) <= 0 for row in step.rows)
    return tuple(
        number
        for number, row in enumerate(step.rows)
        if num_spec and row.query_len and not is_prefill(step, row) and (undrafted or row.drafts == -1)
    )


def _drops(call: Call) -> bool:
    return bool(_dropped(call))


def _as_accepted_one(call: Call) -> Call:
    """The rows that GDN forgets have accepted one token."""
    counts: Tensor = call.named[_COUNTS]
    forgotten = _dropped(call)
    values = tuple(1 if row in forgotten else count for row, count in enumerate(counts.values()))
    return with_argument(call, _COUNTS, replace(counts.dense(), elements=values))


def _has_first_token(call: Call) -> bool:
    """A prompt's first token comes, alone, before any longer row."""
    if not _builds(call, gdn=True):
        return False
    step = step_of(call)
    short = next((r for r, row in enumerate(step.rows) if row.query_len > 1), len(step.rows))
    return any(row.query_len == 1 and row.num_computed == 0 for row in step.rows[:short])


def _by_length(call: Call) -> Call:
    """The host does not know which rows are in their prompt."""
    common: Record = call.named[_COMMON]
    fields = tuple((name, None if name in _HOST_KNOWS else value) for name, value in common.fields)
    return with_argument(call, _COMMON, replace(common, fields=fields))


_CHANGES: Mapping[Callable[[Call], bool], Callable[[Call], Call]] = {
    _drops: _as_accepted_one,
    _has_first_token: _by_length,
}
"""By when GDN goes wrong, the call whose rules it follows then."""


def _gdn_answers(one: Made, defect: Callable[[Call], bool]) -> Iterator[Expected]:
    """What GDN gives with the defect, alone and with others of its own, or what then lies in its buffers."""
    build = one.call.named["result"] if one.call.function == _OWNED else one.call
    if not defect(build):
        return
    others = [other for other in _CHANGES if other is not defect and other(build)]
    for together in _subsets(others):
        changed = build
        for each in (*together, defect):
            changed = _CHANGES[each](changed)
        asked = with_argument(one.call, "result", changed) if build is not one.call else changed
        yield asked_again(asked, replace(one.profile, gdn_plain_decodes=True))


def _gdn_explains(case: Case, profile: Profile, defect: Callable[[Call], bool]) -> bool:
    """Whether all that is wrong is what GDN gives with the defect."""
    return explained(case, profile, lambda one: _gdn_answers(one, defect))


def _subsets(
    others: list[Callable[[Call], bool]],
) -> Iterator[tuple[Callable[[Call], bool], ...]]:
    return (some for size in range(len(others) + 1) for some in combinations(others, size))


def accepts_one(case: Case, profile: Profile) -> bool:
    """All that is wrong is what GDN gives if the decodes that drafted nothing had accepted one token."""
    return _gdn_explains(case, profile, _drops)


def goes_by_length(case: Case, profile: Profile) -> bool:
    """All that is wrong is what GDN gives if it goes by the lengths of rows alone."""
    return _gdn_explains(case, profile, _has_first_token)


def _table_is_wider(call: Call, profile: Profile) -> bool:
    """Mode "all" has to copy a table into the buffers of full graphs that is wider than these."""
    if not _builds(call, gdn=False):
        return False
    step, config = step_of(call), config_of(call.named["self"], profile)
    wide = bool(step.rows) and len(step.rows[0].blocks) > kept_width(config)
    return config.mode == "all" and config.full_cudagraphs and wide


BUILDERS: Mapping[str, Condition] = {
    "drafted_nothing": Condition(some_call(lambda call, _: _drops(call)), accepts_one),
    "first_token": Condition(some_call(lambda call, _: _has_first_token(call)), goes_by_length),
    "kept_table": Condition(some_call(_table_is_wider)),
}
