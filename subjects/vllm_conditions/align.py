"""Conditions of entries about align mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from oracle.align.decisions import after_v2_steps
from oracle.align.memory import Copy, Place, state_copy
from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.tensor import as_elements
from statecheck.case.values import (
    Call,
    Fake,
    Let,
    Record,
    Tensor,
    View,
)
from statecheck.execution.run import Follower, rules_of
from statecheck.expectations.align import working
from statecheck.expectations.align_values import context_of, windows
from subjects import LAYOUT_VARIABLE, Condition
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
    wrong_calls,
)

SLOTWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess_align"
ROWWISE = "MambaSpecDecodeGPUContext.run_fused_postprocess"
POSTPROCESS = (SLOTWISE, ROWWISE, "postprocess_mamba_align_gpu", "harness.launch")
_INITIALIZE = "MambaSpecDecodeGPUContext.initialize_from_forward_context"
_CHANNEL_FIRST = (LAYOUT_VARIABLE, "DS")


def resets_a_count(case: Case, profile: Profile) -> bool:
    """V2's postprocess sets an accepted count above 1 back to 1."""
    return any(one.call.function == SLOTWISE and _resets(one) for one in calls_of(case, profile))


def _resets(one: Made) -> bool:
    """Whether the rules set a count of a postprocess back."""
    before: Tensor = one.call.named["num_accepted_tokens_gpu"]
    like = (before.dtype, before.shape)
    after = [value for _, value in one.expected.after if isinstance(value, Tensor)]
    return any((value.dtype, value.shape) == like and value.values() != before.values() for value in after)


def copies_nothing(case: Case, profile: Profile) -> bool:
    """Whatever V2's postprocess left wrong is what was there before, where it was to copy something and did not."""
    in_warps = warp_by_warp(case)
    return only_wrong(
        case, profile, lambda one: one.call.function == SLOTWISE and _kept(one) and _undone(one, in_warps)
    )


def _undone(one: Made, in_warps: bool) -> bool:
    """Whether all that is wrong lies where programs were to copy that read a count after it was set back.

    Such a program copies nothing. The first state's sets the count back once it has read it; where it runs in warps, all but
    the first of them may read it later.
    """
    due, wrong, found = _places(one, right=True), _places(one), set[Place]()
    for is_first, copy in _copies_of_reset(one):
        copied = due & _written(copy)
        missed = copied & wrong
        if missed and (is_first if missed == copied else not in_warps):
            return False
        found |= missed
    return found == wrong


def _copies_of_reset(one: Made) -> Iterator[tuple[bool, Copy]]:
    """What V2's postprocess is to copy for requests whose count it sets back, and whether that is of the first state."""
    named = one.call.named
    found = working(context_of(named["self"]), named["num_reqs"])
    if found is None:
        return
    names = ("idx_mapping", "num_accepted_tokens_gpu", "state_idx_gpu", "new_num_computed_tokens_gpu")
    mapping, counts, columns, computed = (named[name].values() for name in names)
    decided = after_v2_steps(
        mapping[: named["num_reqs"]], counts, columns, computed, found.block_size, one.profile
    )
    states, tables = found.states(), found.tables(dict(one.known))
    for slot, (accepted, move) in decided.items():
        if move is not None and accepted != counts[slot]:
            for number, state in enumerate(states):
                row = tables[state.group][move.row]
                yield number == 0, state_copy(state, found.layout, row, move, one.profile)


def _written(copy: Copy) -> set[Place]:
    return {Place(pool, at + byte) for _, (pool, at), length in copy for byte in range(length)}


def _places(one: Made, *, right: bool = False) -> set[Place]:
    """Where wrong bytes are; or, of what has some, where the rules change bytes."""
    origins = _origins(one)
    return {
        Place(pool, start + at)
        for name, held, wanted, seen in one.wrong_bytes()
        for pool, start in [origins.get(name, Place(name, 0))]
        for at in changed_blocks(wanted, held if right else seen, 1)
    }


def _origins(one: Made) -> dict[str, Place]:
    """Where the views of pages begin by which a large pool is observed."""
    pages = pages_of(one.call)
    return {
        name: Place(pool, start)
        for pool, page in pages.items()
        for name, start in windows(pool, page, dict(one.known)).items()
    }


def _kept(one: Made) -> bool:
    """Whether all that is wrong is what was there before."""
    return all(
        seen == old
        for _, *three in one.wrong_bytes()
        for old, right, seen in zip(*three, strict=True)
        if seen != right
    )


def _moves_within_blocks(one: Made) -> bool:
    """Whether everything that is wrong should be what the rules move there from elsewhere in the same block."""
    pages, late = pages_of(one.call), _late(one)
    return all(
        _depends_on_block(one, name, block, late)
        for name, _, right, seen in one.wrong_bytes()
        for block in [
            {at for at in changed_blocks(right, seen, 1) if at // page == number}
            for page in [pages.get(name, len(seen))]
            for number in changed_blocks(right, seen, page)
        ]
    )


def _late(one: Made) -> set[Place]:
    """Where warps of V2's postprocess leave what was there, since they read a count that another one has set back."""
    if one.call.function != SLOTWISE:
        return set()
    return {place for _, copy in _copies_of_reset(one) for place in _written(copy)}


def _depends_on_block(one: Made, name: str, wrong: set[int], late: set[Place]) -> bool:
    """Whether each of these bytes of a block is one that a late load finds where the rules take it from.

    That is the byte that was there, or what the rules bring to that place in turn, and so on; or one that was not copied at
    all, where that may be.
    """
    pool, start = _origins(one).get(name, Place(name, 0))
    held, right = raw(one.known[name]), raw(dict(one.expected.after)[name])
    seen = next(seen for wrong_name, _, _, seen in one.wrong_bytes() if wrong_name == name)
    page = pages_of(one.call).get(name, len(right))
    first = min(wrong) // page * page
    places = range(first, min(first + page, len(held)))
    source = _sources(one, name, places)
    for at in wrong:
        found, before = {held[at]} if Place(pool, start + at) in late else set[int](), at
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


def shifted_too_far(case: Case, profile: Profile) -> bool:
    """Each wrong block is one in which a postprocess was to move something, and something was moved there."""
    return only_wrong(case, profile, _shifts_too_far)


def _shifts_too_far(one: Made) -> bool:
    if next(one.wrong_bytes(), None) is None or one.call.function not in POSTPROCESS:
        return False
    return not _kept(one) and _moves_within_blocks(one)


def channel_first(case: Case, _: Profile) -> bool:
    """A context is bound under the channel-first layout, by which accepted tokens are shifted."""
    bound = [call for call in case.calls if call.function in (*POSTPROCESS, _INITIALIZE)]
    return any(_CHANNEL_FIRST in one.environment for one in bound)


def channel_first_step(case: Case, _: Profile) -> bool:
    """The step that cannot be prepared is one under the channel-first layout; in a scenario it is the last call."""
    if case.failure is None:
        return False
    failing = -1 if case.failure.call is None else case.failure.call
    return _CHANNEL_FIRST in case.calls[failing].environment


def rows_first(case: Case, profile: Profile) -> bool:
    """Everything that is wrong is what the rules say of the layout in which rows come first, or moved too far by these."""
    plain = [_as_rows(step) for step in case.steps]
    others = [asked for _, asked in Follower(rules_of(profile)).follow(plain) if asked is not None]
    wrong = {one.number for one in wrong_calls(case, profile)}
    found = [
        replace(one, call=other.call, expected=other.expected)
        for one, other in zip(calls_of(case, profile), others, strict=True)
        if one.number in wrong
    ]
    return bool(found) and all(not one.deviates or _shifts_too_far(one) for one in found)


def described_as_rows(case: Case, profile: Profile) -> bool:
    """Every wrong entry of a context's vectors is the one of a state whose channels are its rows."""
    wrong = [one for one in calls_of(case, profile) if one.deviates]
    return bool(wrong) and all(one.call.function == _INITIALIZE and _described(one) for one in wrong)


def _described(one: Made) -> bool:
    views = [found for found in everything(one.call.named.values()) if isinstance(found, (View, Fake))]
    shapes = {found.shape for found in views if len(found.shape) > 1}
    as_rows = {
        "state_conv_widths": {shape[1] for shape in shapes},
        "state_inner_sizes": {prod(shape[2:]) for shape in shapes},
        "state_dim_row_count": {0},
        "state_dim_row_stride": {0},
    }
    wanted = dict(one.expected.after)
    return all(
        number in as_rows.get(name.rpartition(".")[2], ())
        for name, seen in one.actual.after
        if name in wanted and isinstance(seen, Tensor)
        for number, right in zip(seen.values(), wanted[name].values(), strict=True)
        if number != right
    )


def _as_rows(value: Any) -> Any:
    """The same where rows come first, and where the rules do not mind that a window has fewer of them than a step has tokens."""
    if isinstance(value, Record):
        changed = (
            (name, 0 if name == "num_speculative_blocks" else _as_rows(one)) for name, one in value.fields
        )
        return replace(value, fields=tuple(changed))
    if isinstance(value, Call):
        variables = tuple(pair for pair in value.environment if pair != _CHANNEL_FIRST)
        return replace(
            value,
            arguments=_as_rows(value.arguments),
            keywords=_as_rows(value.keywords),
            environment=variables,
        )
    if isinstance(value, Let):
        return replace(value, value=_as_rows(value.value))
    if isinstance(value, dict):
        return {name: _as_rows(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_rows, value))
    return value


ALIGN: Mapping[str, Condition] = {
    "count_in_place": Condition(resets_a_count, copies_nothing),
    "shift_within_a_block": Condition(lambda case, _: warp_by_warp(case), shifted_too_far),
    "channel_first": Condition(channel_first, rows_first),
    "channel_first_described": Condition(channel_first, described_as_rows),
    "channel_first_step": Condition(channel_first_step),
}
