"""Conditions of entries about align mode: states that move within their block, runs of bytes, and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oracle.align.pointers import Entry
from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Address, Attribute, Call, Fake, Record, Tensor, as_elements
from statecheck.reference.align_buffers import lists_of
from subjects import Condition
from subjects.vllm_conditions.calls import (
    Made,
    asked_again,
    calls_of,
    changed_blocks,
    everything,
    only_wrong,
    pages_of,
    raw,
    warp_by_warp,
)

_CONTEXT = "MambaSpecDecodeGPUContext"
_INITIALIZE = f"{_CONTEXT}.initialize_from_forward_context"
_PRECOPY = f"{_CONTEXT}.run_fused_precopy"
_POSTPROCESS = (
    f"{_CONTEXT}.run_fused_postprocess_align",
    f"{_CONTEXT}.run_fused_postprocess",
    "postprocess_mamba_align_gpu",
    "harness.launch",
)
_LISTS = ("do_mamba_copy_block", "batch_memcpy")
_UPPER_HALF = 2**63 - 2**41
"""What lies behind such an address, too: pools have up to some gigabytes."""


# Rows that move within their block.


def shifted_too_far(case: Case, profile: Profile) -> bool:
    """Each wrong block is one in which a postprocess was to move something, and something was moved there."""
    return only_wrong(case, profile, _shifts_too_far)


def _shifts_too_far(one: Made) -> bool:
    unmoved = all(
        seen == old
        for _, *three in one.wrong_bytes()
        for old, right, seen in zip(*three, strict=True)
        if seen != right
    )
    return one.call.function in _POSTPROCESS and not unmoved and _moves_within_blocks(one)


def _moves_within_blocks(one: Made) -> bool:
    """Whether everything that is wrong should be what the rules move there from elsewhere in the same block."""
    pages = pages_of(one.call)
    return all(
        _depends_on_block(one, name, block)
        for name, _, right, seen in one.wrong_bytes()
        for block in [
            {at for at in changed_blocks(right, seen, 1) if at // page == number}
            for page in [pages.get(name, len(seen))]
            for number in changed_blocks(right, seen, page)
        ]
    )


def _depends_on_block(one: Made, name: str, wrong: set[int]) -> bool:
    """Whether each of these bytes of a block is one that a late load finds where the rules take it from.

    That is the byte that was there, or what the rules bring to that place in turn, and so on.
    """
    held, right = raw(one.known[name]), raw(dict(one.expected.after)[name])
    seen = next(seen for wrong_name, _, _, seen in one.wrong_bytes() if wrong_name == name)
    page = pages_of(one.call).get(name, len(right))
    first = min(wrong) // page * page
    source = _sources(one, name, range(first, min(first + page, len(held))))
    for at in wrong:
        found, before = set[int](), at
        while (place := source[before - first]) is not None and place != before:
            found.add(held[place])
            before = place
        if seen[at] not in found:
            return False
    return True


def _sources(one: Made, name: str, places: range) -> list[int | None]:
    """For each of these bytes the one of them that the rules bring there, itself if it stays; None if it comes from elsewhere.

    Every byte is given its number to carry, digit by digit.
    """
    tensor = one.known[name]
    assert isinstance(tensor, Tensor)

    def carried(digits: list[int]) -> bytes:
        before = bytearray(raw(tensor))
        before[places.start : places.stop] = bytes(digits)
        known = {**one.known, name: replace(tensor, elements=as_elements(bytes(before), tensor.dtype))}
        return raw(dict(asked_again(one.call, one.profile, known).after)[name])[places.start : places.stop]

    low = [number & 255 for number in range(len(places))]
    arrived = [carried([number >> 8 * digit & 255 for number in range(len(places))]) for digit in range(3)]
    others = carried([255 - digit for digit in low])
    return [
        places[sum(digits[at] << 8 * digit for digit, digits in enumerate(arrived))]
        if arrived[0][at] + others[at] == 255
        else None
        for at in range(len(places))
    ]


# Copies by lists of pointers, and addresses.


def overlapping_run(case: Case, profile: Profile) -> bool:
    """A run of bytes that is moved onto itself, towards lower addresses, warp by warp or on a GPU."""
    return warp_by_warp(case) and any(_overlapping(one) for one in calls_of(case, profile))


def _overlapping(one: Made) -> list[Entry]:
    if one.call.function not in _LISTS:
        return []
    value = one.call.named.get("bufs", one.call.named.get("src_ptrs"))
    listed = lists_of(value.of if isinstance(value, Attribute) else value, one.profile).listed
    return [entry for entry in listed if _overlaps(entry)]


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


ALIGN: Mapping[str, Condition] = {
    "shift_within_a_block": Condition(lambda case, _: warp_by_warp(case), shifted_too_far),
    "run_onto_itself": Condition(overlapping_run, within_overlapping_runs),
    "unused_slot": Condition(reads_for_unused_slots),
    "upper_half": Condition(upper_half),
}
