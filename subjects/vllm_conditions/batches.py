"""Conditions of entries about batches that are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Call, Expected, Returned
from subjects import Condition
from subjects.vllm_conditions.calls import Made, explained, some_call

_SPLIT = "split_decodes_and_prefills"
_COMMON = "common_attn_metadata"


def _is_padded(call: Call) -> bool:
    """Rows in their prompt are to be prefills in a uniform batch with padding."""
    if call.function != _SPLIT:
        return False
    options = call.named
    asks_for_both = options["require_uniform"] and not options["treat_short_extends_as_decodes"]
    return bool(asks_for_both and 0 in _lens(call))


def _lens(call: Call) -> tuple[int, ...]:
    starts = call.named[_COMMON]["query_start_loc_cpu"].values()
    return tuple(end - start for start, end in pairwise(starts))


def padding_is_prefill(case: Case, profile: Profile) -> bool:
    """Every wrong split has its first prefill at the first row of padding."""

    def rules(one: Made) -> Iterator[Expected]:
        if _is_padded(one.call):
            lens, tokens = _lens(one.call), one.call.named[_COMMON]["num_actual_tokens"]
            first = lens.index(0)
            before = sum(lens[:first])
            yield Returned((first, len(lens) - first, before, tokens - before))

    return explained(case, profile, rules)


BATCHES: Mapping[str, Condition] = {
    "uniform_padding": Condition(some_call(lambda call, _: _is_padded(call)), padding_is_prefill),
}
