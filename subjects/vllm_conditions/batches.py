"""Conditions of entries about batches that are split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Call, Expected, Returned, Tensor
from subjects import Condition
from subjects.vllm_conditions.calls import Made, asked_again, explained, some_call, with_argument

_SPLIT = "split_decodes_and_prefills"
_COMMON = "common_attn_metadata"


def _is_uniform(call: Call) -> bool:
    """Rows in their prompt are to be prefills in a uniform batch whose rows differ in padding alone."""
    return _asks_for_both(call) and any(_marks(call)) and len({*_lens(call)} - {0}) <= 1


def _is_padded(call: Call) -> bool:
    """Rows in their prompt are to be prefills in a uniform batch with padding."""
    return _asks_for_both(call) and 0 in _lens(call)


def _asks_for_both(call: Call) -> bool:
    if call.function != _SPLIT:
        return False
    options = call.named
    return bool(options["require_uniform"] and not options["treat_short_extends_as_decodes"])


def _lens(call: Call) -> tuple[int, ...]:
    starts = call.named[_COMMON]["query_start_loc_cpu"].values()
    return tuple(end - start for start, end in pairwise(starts))


def _marks(call: Call) -> tuple[int, ...]:
    marks: Tensor = call.named[_COMMON]["is_prefilling"]
    return marks.values()


def all_decodes(case: Case, profile: Profile) -> bool:
    """Every wrong split is the one that looks at no prompt."""

    def rules(one: Made) -> Iterator[Expected]:
        if _is_uniform(one.call):
            yield asked_again(with_argument(one.call, "treat_short_extends_as_decodes", True), profile)

    return explained(case, profile, rules)


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
    "uniform_prompts": Condition(some_call(lambda call, _: _is_uniform(call)), all_decodes),
    "uniform_padding": Condition(some_call(lambda call, _: _is_padded(call)), padding_is_prefill),
}
