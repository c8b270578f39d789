"""Conditions of entries about align mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from oracle.align.pointers import Entry
from properties.harness.answers.align_buffers import lists_of
from properties.harness.case import Case
from properties.harness.execution.memory import ITEM_SIZES
from properties.harness.execution.run import Follower
from properties.harness.values import Address, Attribute, Call, Fake, Refusal, Tensor, View
from properties.subjects import LAYOUT_VARIABLE, Condition
from properties.subjects.vllm_conditions.calls import Made, calls_of, changed_blocks, everything

SLOTWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess_align"
ROWWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess"
POSTPROCESS = (SLOTWISE, ROWWISE, "postprocess_mamba_align_gpu", "harness.launch")
_INITIALIZE = "MambaSpecDecodeGPUContext.initialize_from_forward_context"
_CHANNEL_FIRST = (LAYOUT_VARIABLE, "DS")
_LISTS = ("do_mamba_copy_block", "batch_memcpy")
_UPPER_HALF = 2**63


def resets_a_count(case: Case) -> bool:
    """V2's postprocess sets an accepted count above 1 back to 1."""
    return any(one.call.function == SLOTWISE and _resets(one) for one in calls_of(case))


def _resets(one: Made) -> bool:
    """Whether the rules set a count of a postprocess back."""
    before: Tensor = one.call.named["num_accepted_tokens_gpu"]
    like = (before.dtype, before.shape)
    after = [value for _, value in one.expected.after if isinstance(value, Tensor)]
    return any((value.dtype, value.shape) == like and value.values() != before.values() for value in after)


def copies_nothing(case: Case) -> bool:
    """Whatever is wrong is what was there before V2's postprocess, in each call that left something wrong."""
    return _only(case, lambda one: one.call.function == SLOTWISE and _kept(one))


def _kept(one: Made) -> bool:
    return all(
        seen == old
        for _, *three in one.wrong_bytes()
        for old, right, seen in zip(*three, strict=True)
        if seen != right
    )


def _only(case: Case, holds: Callable[[Made], bool]) -> bool:
    """Whether some call left wrong bytes, and it holds of each that did."""
    wrong = [one for one in calls_of(case) if one.deviates]
    return bool(wrong) and all(next(one.wrong_bytes(), None) is not None and holds(one) for one in wrong)


def warp_by_warp(case: Case) -> bool:
    """Warps of a program run one after the other, or on a GPU: a load may see what another one has stored."""
    return case.device != "cpu" or any(call.schedule.startswith("warps") for call in case.calls)


def within_moved_blocks(case: Case) -> bool:
    """Whatever a postprocess left wrong lies in blocks that it was to change."""
    return _only(case, lambda one: one.call.function in POSTPROCESS and _in_changed_blocks(case, one))


def _in_changed_blocks(case: Case, one: Made) -> bool:
    pages = _pages(case)
    return all(
        changed_blocks(right, seen, pages.get(name, len(seen)))
        <= changed_blocks(before, right, pages.get(name, len(seen)))
        for name, before, right, seen in one.wrong_bytes()
    )


def _pages(case: Case) -> dict[str, int]:
    """Bytes from one block to the next, by pool."""
    views = (one for one in everything(case.steps) if isinstance(one, View))
    strides = ((one.of, one.strides[0] * ITEM_SIZES[one.dtype]) for one in views if one.strides)
    return {pool: stride for pool, stride in strides if stride}


def channel_first(case: Case) -> bool:
    """A context is bound under the channel-first layout, by which accepted tokens are shifted."""
    bound = [call for call in case.calls if call.function in (*POSTPROCESS, _INITIALIZE)]
    return any(_CHANNEL_FIRST in one.environment for one in bound)


def channel_first_step(case: Case) -> bool:
    """The step that cannot be prepared is one under the channel-first layout."""
    failing = case.failure.call if case.failure is not None else None
    return failing is not None and _CHANNEL_FIRST in case.calls[failing].environment


def rows_first(case: Case) -> bool:
    """Everything that is wrong is what the rules say of the layout in which rows come first.

    They refuse conv states with fewer channels than a step has tokens; what then is wrong lies in blocks that were to change.
    """
    plain = [_without_layout(step) if isinstance(step, Call) else step for step in case.steps]
    others = [asked.expected for _, asked in Follower().follow(plain) if asked is not None]
    if any(isinstance(other, Refusal) for other in others):
        return within_moved_blocks(case)
    wrong = [(one, other) for one, other in zip(calls_of(case), others, strict=True) if one.deviates]
    return bool(wrong) and all(one.is_as(other) for one, other in wrong)


def _without_layout(call: Call) -> Call:
    return replace(call, environment=tuple(pair for pair in call.environment if pair != _CHANNEL_FIRST))


def overlapping_run(case: Case) -> bool:
    """A run of bytes that is moved onto itself, towards lower addresses, warp by warp or on a GPU."""
    return warp_by_warp(case) and any(_overlapping(one.call) for one in calls_of(case))


def _overlapping(call: Call) -> list[Entry]:
    if call.function not in _LISTS:
        return []
    return [entry for entry in listed_by(call) if _overlaps(entry)]


def _overlaps(entry: Entry) -> bool:
    source, target, size = entry
    return source.pool == target.pool and target.offset < source.offset < target.offset + size


def within_overlapping_runs(case: Case) -> bool:
    """Whatever is wrong lies where such a run goes."""
    return _only(case, lambda one: one.call.function in _LISTS and _in_runs(one))


def _in_runs(one: Made) -> bool:
    runs = _overlapping(one.call)
    return all(
        any(name == target.pool and target.offset <= at < target.offset + size for _, target, size in runs)
        for name, _, right, seen in one.wrong_bytes()
        for at in changed_blocks(right, seen, 1)
    )


def listed_by(call: Call) -> tuple[Entry, ...]:
    """The runs that a call of the copy by lists of pointers moves."""
    value = call.named.get("bufs", call.named.get("src_ptrs"))
    return lists_of(value.of if isinstance(value, Attribute) else value).listed


def upper_half(case: Case) -> bool:
    """Some memory is at an address of 2^63 or more."""
    found = everything(case.steps)
    return any(
        (isinstance(one, Fake) and one.address >= _UPPER_HALF)
        or (isinstance(one, Address) and one.offset >= _UPPER_HALF)
        for one in found
    )


ALIGN: Mapping[str, Condition] = {
    "count_in_place": Condition(resets_a_count, copies_nothing),
    "shift_within_a_block": Condition(warp_by_warp, within_moved_blocks),
    "channel_first": Condition(channel_first, rows_first),
    "channel_first_step": Condition(channel_first_step),
    "run_onto_itself": Condition(overlapping_run, within_overlapping_runs),
    "upper_half": Condition(upper_half),
}
