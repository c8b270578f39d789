"""Conditions that entries of `vllm_known.toml` about align mode name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from oracle.align.pointers import Entry
from properties.harness.answers.align_buffers import lists_of
from properties.harness.case import Case
from properties.harness.execution.run import Follower, recorded
from properties.harness.sanitizer.findings import FINDINGS
from properties.harness.values import Attribute, Call, Expected, Tensor, Value
from properties.subjects import LAYOUT_VARIABLE

_SLOTWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess_align"
_ROWWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess"
_POSTPROCESS = (_SLOTWISE, _ROWWISE, "postprocess_mamba_align_gpu")
_INITIALIZE = "MambaSpecDecodeGPUContext.initialize_from_forward_context"
_CHANNEL_FIRST = (LAYOUT_VARIABLE, "DS")
_GDN = "GDNAttentionMetadataBuilder.build"
_LISTS = ("do_mamba_copy_block", "batch_memcpy")
_OTHER_FINDING = re.compile("|".join(FINDINGS))


def resolved_calls(case: Case) -> Iterator[tuple[Call, Expected]]:
    """The calls of the case with their names resolved, and what the rules expect of them."""
    for _, asked in Follower(recorded(case.expected)).follow(case.steps):
        if asked is not None:
            yield asked.call, asked.expected


def count_in_place(case: Case) -> bool:
    """A race for V2's accepted counts; or wrong bytes after a postprocess that resets one above 1."""
    if _OTHER_FINDING.search(case.message):
        return re.search("RaceBetweenPrograms.*num_accepted_tokens_gpu", case.message) is not None
    calls = [pair for pair in resolved_calls(case) if pair[0].function == _SLOTWISE]
    return any(_resets(call, expected) for call, expected in calls)


def _resets(call: Call, expected: Expected) -> bool:
    named = call.named
    before: Tensor = named["num_accepted_tokens_gpu"]
    after = [value for value in _after(expected).values() if _is_like(value, before)]
    return any(value.values() != before.values() for value in after)


def _after(expected: Expected) -> Mapping[str, Value]:
    return dict(expected.after)


def _is_like(value: Value, before: Tensor) -> bool:
    return isinstance(value, Tensor) and (value.dtype, value.shape) == (before.dtype, before.shape)


def shift_within_a_block(case: Case) -> bool:
    """A race between lanes of the postprocess, for a conv state; or wrong bytes after a shift, warp by warp or on a GPU."""
    if _OTHER_FINDING.search(case.message):
        return (
            re.search("RaceWithinProgram.*postprocess_mamba_fused_kernel.*kv_cache", case.message) is not None
        )
    return any(
        (case.device != "cpu" or call.schedule.startswith("warps")) and _resets(call, expected)
        for call, expected in resolved_calls(case)
        if call.function in _POSTPROCESS
    )


def channel_first(case: Case) -> bool:
    """Wrong bytes or a wrong description after a context was bound under the channel-first layout."""
    bound = [call for call in case.calls if call.function in (*_POSTPROCESS, _INITIALIZE)]
    return not _OTHER_FINDING.search(case.message) and any(_CHANNEL_FIRST in one.environment for one in bound)


def with_gdn(case: Case) -> bool:
    """An engine with a group of GDN layers."""
    return any(call.function == _GDN for call in case.calls)


def dropped_count(case: Case) -> bool:
    """An engine in which GDN drops the accepted count above 1 of a decode that drafted nothing."""
    return any(_drops(call) for call in case.calls if call.function == _GDN)


def _drops(call: Call) -> bool:
    counts, marks = call.named.get("num_accepted_tokens"), call.named.get("num_decode_draft_tokens_cpu")
    if counts is None or marks is None:
        return False
    nobody = all(mark <= 0 for mark in marks.values())
    pairs = zip(counts.values(), marks.values(), strict=True)
    return any(count > 1 and (nobody or mark < 0) for count, mark in pairs)


def run_onto_itself(case: Case) -> bool:
    """A race between lanes of the copy by lists of pointers; or wrong bytes after one, warp by warp or on a GPU."""
    if case.calls[-1].function not in _LISTS:
        return False
    if _OTHER_FINDING.search(case.message):
        return re.search("RaceWithinProgram.*batch_memcpy_kernel", case.message) is not None
    *_, (call, _) = resolved_calls(case)
    warps = case.device != "cpu" or call.schedule.startswith("warps")
    return warps and any(
        source.pool == target.pool and target.offset < source.offset < target.offset + size
        for source, target, size in listed_by(call)
    )


def listed_by(call: Call) -> tuple[Entry, ...]:
    """The runs that a call of the copy by lists of pointers moves."""
    value = call.named.get("bufs", call.named.get("src_ptrs"))
    return lists_of(value.of if isinstance(value, Attribute) else value).listed


ALIGN: Mapping[str, Callable[[Case], bool]] = {
    "channel_first": channel_first,
    "count_in_place": count_in_place,
    "dropped_count": dropped_count,
    "run_onto_itself": run_onto_itself,
    "shift_within_a_block": shift_within_a_block,
    "with_gdn": with_gdn,
}
