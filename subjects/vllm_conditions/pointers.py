"""Conditions of entries about addresses, and about copies by lists of pointers."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.align.pointers import Entry
from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Address, Attribute, Call, Fake, Record
from statecheck.expectations.align_buffers import lists_of
from subjects import Condition
from subjects.vllm_conditions.calls import (
    Made,
    calls_of,
    changed_blocks,
    everything,
    only_wrong,
    warp_by_warp,
)

_PRECOPY = "MambaSpecDecodeGPUContext.run_fused_precopy"
_INITIALIZE = "MambaSpecDecodeGPUContext.initialize_from_forward_context"
_LISTS = ("do_mamba_copy_block", "batch_memcpy")
_UPPER_HALF = 2**63 - 2**41
"""What lies behind such an address, too: pools have up to some gigabytes."""


def overlapping_run(case: Case, profile: Profile) -> bool:
    """A run of bytes that is moved onto itself, towards lower addresses, warp by warp or on a GPU."""
    return warp_by_warp(case) and any(_overlapping(one) for one in calls_of(case, profile))


def _overlapping(one: Made) -> list[Entry]:
    if one.call.function not in _LISTS:
        return []
    return [entry for entry in listed_by(one.call, one.profile) if _overlaps(entry)]


def _overlaps(entry: Entry) -> bool:
    source, target, size = entry
    return source.pool == target.pool and target.offset < source.offset < target.offset + size


def within_overlapping_runs(case: Case, profile: Profile) -> bool:
    """Whatever is wrong lies where such a run goes."""
    return only_wrong(case, profile, lambda one: one.call.function in _LISTS and _in_runs(one))


def _in_runs(one: Made) -> bool:
    runs = _overlapping(one)
    return all(
        any(name == target.pool and target.offset <= at < target.offset + size for _, target, size in runs)
        for name, _, right, seen in one.wrong_bytes()
        for at in changed_blocks(right, seen, 1)
    )


def listed_by(call: Call, profile: Profile) -> tuple[Entry, ...]:
    """The runs that a call of the copy by lists of pointers moves."""
    value = call.named.get("bufs", call.named.get("src_ptrs"))
    return lists_of(value.of if isinstance(value, Attribute) else value, profile).listed


def upper_half(case: Case, _: Profile) -> bool:
    """Some memory is at, or reaches to, an address of 2^63 or more."""
    found = everything(case.steps)
    return any(
        (isinstance(one, Fake) and one.address >= _UPPER_HALF)
        or (isinstance(one, Address) and one.offset >= _UPPER_HALF)
        for one in found
    )


def reads_for_unused_slots(case: Case, profile: Profile) -> bool:
    """A precopy looks up an accepted state behind the table, and some layer has fewer states than there are copy functions."""
    calls = [one.call for one in calls_of(case, profile)]
    bound = next((call.named for call in calls if call.function == _INITIALIZE), None)
    if bound is None:
        return False
    layers = [one for one in everything([bound["forward_context"]]) if isinstance(one, Record)]
    functions = len(bound["mamba_state_copy_funcs"])
    unused = any(
        len(dict(one.fields).get("kv_cache", ())) < functions for one in layers if one.type == "Layer"
    )
    width = min(table.shape[1] for table in bound["block_tables"])
    return unused and any(_behind(call, width) for call in calls if call.function == _PRECOPY)


def _behind(call: Call, width: int) -> bool:
    columns, biases = (call.named[name].values() for name in ("src_col_gpu", "token_bias_gpu"))
    return any(column + bias >= width for column, bias in zip(columns, biases, strict=True) if column >= 0)


POINTERS: Mapping[str, Condition] = {
    "run_onto_itself": Condition(overlapping_run, within_overlapping_runs),
    "unused_slot": Condition(reads_for_unused_slots),
    "upper_half": Condition(upper_half),
}
