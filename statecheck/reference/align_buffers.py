"""Buffers with two sides, and lists of copies as addresses: what is known of them from the calls that changed them (contract 1.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oracle.align import buffers as rules
from oracle.align.context import (
    CacheGroup,
    as_int64,
    bound_states,
    copy_capacity,
    mamba_groups,
)
from oracle.align.memory import Place, StateTensor
from oracle.align.pointers import Entry, entries, require_capacity
from oracle.layout import conv_state_layout
from oracle.rules import rule
from statecheck.case.values import Attribute, Call, Record, Tensor, Value
from statecheck.reference.align_values import (
    Known,
    cache_groups,
    context_of,
    kinds_of,
    owner_of,
    state_views,
)
from statecheck.subject.profile import Profile

LISTS = "MambaCopyBuffers"
_Change = Callable[[Call, Profile], "Lists"]
_KEYWORDS = ("dtype", "device", "pin_memory", "with_numpy")


@dataclass(frozen=True)
class Buffer:
    """A buffer: the path under which its sides are known, its dtype and its size."""

    path: str
    dtype: str
    size: tuple[int, ...]

    def side(self, name: str, known: Known) -> tuple[int, ...]:
        """The elements of `cpu` or `gpu`, zeros where nothing has changed them."""
        others = ("np",) if name == "cpu" else ()
        for side in (name, *others):
            held = known.get(f"{self.path}.{side}")
            if held is not None:
                return tuple(held.elements)
        return (0,) * rules.num_elements(self.size)

    def holding(self, name: str, elements: Sequence[int]) -> dict[str, Value]:
        """Contents by path: the host side is a tensor and an array in one."""
        if name == "gpu":
            return {f"{self.path}.gpu": Tensor(self.dtype, self.size, tuple(elements))}
        host = Tensor(self.dtype, self.size, tuple(elements), on="host")
        return {f"{self.path}.cpu": host, f"{self.path}.np": host}

    def staged(self, values: Sequence[int], known: Known) -> dict[str, Value]:
        """Contents after values were written to the front of the host side, and as many copied to the device."""
        host = rules.overwritten(self.side("cpu", known), values)
        device = rules.overwritten(self.side("gpu", known), values)
        return self.holding("cpu", host) | self.holding("gpu", device)


def buffer_of(value: Value, profile: Profile) -> Buffer:
    """The buffer behind an argument: one made by itself, or one of a context or of lists."""
    if isinstance(value, Call):
        named = value.named
        return Buffer(value.bind, named["dtype"].name, size_of(named))
    assert isinstance(value, Attribute), f"{value} is no buffer"
    name = value.path.rpartition(".")[2]
    if name.endswith("_ptrs") or name == "sizes":
        return lists_of(value.of, profile).buffer(name)
    context = context_of(value.of)
    assert context is not None, f"{value.path} is a buffer of a context"
    return Buffer(f"{context.path}.{name}", "int32", (context.max_num_reqs,))


def size_of(named: Mapping[str, Value]) -> tuple[int, ...]:
    return tuple(value for name, value in named.items() if name not in _KEYWORDS)


@dataclass(frozen=True)
class Lists:
    """Pointer lists of a release: the path under which they are known, the call that made them, and what is listed.

    `states` are those of all layers whose copies were listed.
    """

    path: str
    created: Call
    profile: Profile
    listed: tuple[Entry, ...] = ()
    states: tuple[StateTensor, ...] = ()

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return cache_groups(self.created.named["kv_cache_config"])

    @property
    def max_num_reqs(self) -> int:
        return int(self.created.named["max_num_reqs"])

    @property
    def num_copy_funcs(self) -> int:
        return len(self.created.named["copy_funcs"])

    @property
    def capacity(self) -> int:
        return copy_capacity(self.max_num_reqs, self.groups, self.num_copy_funcs, self.profile)

    def buffer(self, name: str) -> Buffer:
        """One of the three lists."""
        dtype = self.profile.copy_size_dtype if name == "sizes" else self.profile.pointer_dtype
        return Buffer(f"{self.path}.{name}", dtype, (self.capacity,))

    def contents(self, known: Known, *, uploaded: bool) -> dict[str, Value]:
        """Contents by path: sizes, and addresses where they are known."""
        columns = {"sizes": [entry.size for entry in self.listed]}
        if all(not place.pool for entry in self.listed for place in entry[:2]):
            columns["src_ptrs"] = [self._address(entry.source.offset) for entry in self.listed]
            columns["dst_ptrs"] = [self._address(entry.target.offset) for entry in self.listed]
        contents: dict[str, Value] = {f"{self.path}.offset": len(self.listed)}
        for name, values in columns.items():
            buffer = self.buffer(name)
            host = rules.overwritten(buffer.side("cpu", known), values)
            contents |= buffer.staged(values, known) if uploaded else buffer.holding("cpu", host)
        return contents

    def _address(self, number: int) -> int:
        return number if self.profile.pointer_dtype == "uint64" else as_int64(number)


def lists_of(value: Value, profile: Profile) -> Lists:
    """The lists behind an argument, with what has been listed since they were emptied."""
    if isinstance(value, Attribute):
        return lists_of(value.of, profile)
    assert isinstance(value, Call), f"{value} are no bound lists"
    if value.function == f"{LISTS}.create":
        return Lists(value.bind, value, profile)
    if value.function == "MambaBuffers.create":
        return Lists(f"{value.bind}.preprocess", value, profile)
    change = CHANGES.get(value.function)
    return lists_of(owner_of(value), profile) if change is None else change(value, profile)


@rule
def collected_lists(call: Call, profile: Profile) -> Lists:
    """The lists after a call of `collect_mamba_copy_meta`."""
    bufs, _, copy_funcs, group_ids, src_col, dst_col, bias, req_state, forward_context = call.named.values()
    before = lists_of(bufs, profile)
    if src_col == dst_col and bias == 0:
        return before
    layout, all_ids = conv_state_layout(dict(call.environment)), mamba_groups(before.groups)[0]
    groups = tuple(
        group if index in group_ids else replace(group, layer_names=())
        for index, group in enumerate(before.groups)
    )
    states = states_by_list(groups, forward_context, copy_funcs, layout)
    block_ids = [req_state["block_ids"][group_id] for group_id in all_ids]
    new = entries(states, layout, block_ids, src_col, dst_col, bias)
    require_capacity(len(before.listed), len(new), before.capacity)
    return replace(before, listed=(*before.listed, *new), states=(*before.states, *states))


def states_by_list(
    groups: Sequence[CacheGroup],
    forward_context: Mapping[str, Record],
    copy_funcs: Sequence[Any],
    layout: str,
) -> tuple[StateTensor, ...]:
    """The states that are copied by address."""
    kinds = kinds_of(copy_funcs)
    assert None not in kinds, f"{copy_funcs}: there is a rule for the documents' copy functions only"
    return bound_states(groups, state_views(forward_context), kinds, len(kinds), layout)


CHANGES: dict[str, _Change] = {"collect_mamba_copy_meta": collected_lists}
"""What becomes of lists in each function that changes them; `align_runner` adds its own."""


@rule
def used_entries(
    sources: Mapping[int, Place], targets: Mapping[int, Place], sizes: Sequence[int]
) -> list[Entry]:
    """The entries that have bytes to copy."""
    return [Entry(sources[i], targets[i], size) for i, size in enumerate(sizes) if size > 0]
