"""Answers about buffers with two sides, and about copies that are written down as addresses (contract 1.8)."""

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
    require_context,
)
from oracle.align.memory import Place, StateTensor
from oracle.align.pointers import Entry, entries, memory_after, require_capacity, require_lists
from oracle.errors import Refused, require, require_int
from oracle.profile import Profile
from oracle.rules import rule
from properties.harness.case.values import Address, Attribute, Call, Record, Tensor, Value, record
from properties.harness.expectations import answers
from properties.harness.expectations.align import Answer, context_record, spec_record, zeros
from properties.harness.expectations.align_values import (
    Known,
    cache_groups,
    context_of,
    kinds_of,
    layout_of,
    memory_of,
    owner_of,
    pools_after,
    state_views,
)

_LISTS = "MambaCopyBuffers"
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
        for one in (name, *others):
            held = known.get(f"{self.path}.{one}")
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
        return Buffer(value.bind, named["dtype"].name, _size(named))
    assert isinstance(value, Attribute), f"{value} is no buffer"
    name = value.path.rpartition(".")[2]
    if name.endswith("_ptrs") or name == "sizes":
        return lists_of(value.of, profile).buffer(name)
    found = context_of(value.of)
    assert found is not None, f"{value.path} is a buffer of a context"
    return Buffer(f"{found.path}.{name}", "int32", (found.max_num_reqs,))


def _size(named: Mapping[str, Value]) -> tuple[int, ...]:
    return tuple(value for name, value in named.items() if name not in _KEYWORDS)


@answers("CpuGpuBuffer")
def made(**arguments: Value) -> Value:
    """A buffer of zeros."""
    rules.require_buffer(_size(arguments), arguments["dtype"].name, arguments.get("with_numpy", True))
    return record("CpuGpuBuffer")


@answers("CpuGpuBuffer.copy_to_gpu", memory=True, profile=True)
def copied_to_gpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The device side's part that was written."""
    return _copied(buffer_of(self, profile), "cpu", "gpu", n, memory)


@answers("CpuGpuBuffer.copy_to_cpu", memory=True, profile=True)
def copied_to_cpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The host side's part that was written."""
    return _copied(buffer_of(self, profile), "gpu", "cpu", n, memory)


def _copied(buffer: Buffer, source: str, target: str, n: int | None, known: Known) -> Answer:
    size = rules.copied_elements(buffer.size, n)
    part = buffer.side(source, known)[:size]
    shape = buffer.size if n is None else (n, *buffer.size[1:])
    written = Tensor(buffer.dtype, shape, part, on="host" if target == "cpu" else "device")
    return written, buffer.holding(target, rules.overwritten(buffer.side(target, known), part))


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
        found: dict[str, Value] = {f"{self.path}.offset": len(self.listed)}
        for name, values in columns.items():
            buffer = self.buffer(name)
            host = rules.overwritten(buffer.side("cpu", known), values)
            found |= buffer.staged(values, known) if uploaded else buffer.holding("cpu", host)
        return found

    def _address(self, number: int) -> int:
        return number if self.profile.pointer_dtype == "uint64" else as_int64(number)


def lists_of(value: Value, profile: Profile) -> Lists:
    """The lists behind an argument, with what has been listed since they were emptied."""
    if isinstance(value, Attribute):
        return lists_of(value.of, profile)
    assert isinstance(value, Call), f"{value} are no bound lists"
    if value.function == f"{_LISTS}.create":
        return Lists(value.bind, value, profile)
    if value.function == "MambaBuffers.create":
        return Lists(f"{value.bind}.preprocess", value, profile)
    change = _CHANGES.get(value.function)
    return lists_of(owner_of(value), profile) if change is None else change(value, profile)


@rule
def collected_lists(call: Call, profile: Profile) -> Lists:
    """The lists after a call of `collect_mamba_copy_meta`."""
    bufs, _, copy_funcs, group_ids, src_col, dst_col, bias, req_state, forward_context = call.named.values()
    before = lists_of(bufs, profile)
    if src_col == dst_col and bias == 0:
        return before
    layout, all_ids = layout_of(dict(call.environment)), mamba_groups(before.groups)[0]
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


_CHANGES: dict[str, _Change] = {"collect_mamba_copy_meta": collected_lists}
"""What becomes of lists in each function that changes them."""


def changes_lists(function: str) -> Callable[[_Change], _Change]:
    """Register the decorated function as what becomes of lists in `function`."""

    def register(change: _Change) -> _Change:
        _CHANGES[function] = change
        return change

    return register


@answers(f"{_LISTS}.create", environment=True)
def lists_created(
    environment: dict[str, str],
    max_num_reqs: Value,
    kv_cache_config: Record,
    copy_funcs: tuple[Value, ...],
    make_buffer: Value,  # noqa: ARG001 - it makes buffers of zeros
) -> Value:
    """Lists with nothing in them."""
    groups = cache_groups(kv_cache_config)
    require_int("max_num_reqs", max_num_reqs, minimum=1)
    require(len(copy_funcs) > 0, "copy_funcs", copy_funcs, "have a function")
    require_context(max_num_reqs, len(copy_funcs), groups, layout_of(environment))
    group_ids, spec = mamba_groups(groups)
    lists = {name: record("CpuGpuBuffer") for name in ("src_ptrs", "dst_ptrs", "sizes")}
    return record(_LISTS, **lists, mamba_group_ids=list(group_ids), mamba_spec=spec_record(spec), offset=0)


@answers("MambaBuffers.create", environment=True, profile=True)
def buffers_created(
    environment: dict[str, str],
    profile: Profile,
    device: Value,  # noqa: ARG001 - there is one
    with_postprocess_align: bool,
    **arguments: Value,
) -> Value:
    """Lists, and a context where it is asked for."""
    lists = lists_created(environment, **arguments)
    groups = cache_groups(arguments["kv_cache_config"])
    size = (arguments["max_num_reqs"], len(arguments["copy_funcs"]))
    context = plain_fields(context_record(groups, *size, profile)) if with_postprocess_align else None
    return record("MambaBuffers", preprocess=lists, postprocess_align=context)


def plain_fields(context: Record) -> Record:
    """A context's fields but its vectors, which it may well share with the lists' own context."""
    return Record(context.type, tuple(one for one in context.fields if not isinstance(one[1], Tensor)))


@answers("collect_mamba_copy_meta", environment=True, memory=True, profile=True)
def collected(environment: dict[str, str], memory: Known, profile: Profile, **arguments: Value) -> Answer:
    """One entry more for every state of the request, or none where it stays."""
    call = Call("collect_mamba_copy_meta", tuple(arguments.items()), environment=tuple(environment.items()))
    return None, collected_lists(call, profile).contents(memory, uploaded=False)


@answers("do_mamba_copy_block", memory=True, profile=True)
def copied_block(memory: Known, profile: Profile, bufs: Value) -> Answer:
    """The memory after every listed copy."""
    lists = lists_of(bufs, profile)
    return None, executed(lists, memory)


def executed(lists: Lists, known: Known) -> dict[str, Value]:
    """Contents by name after the listed copies: pools, and what was uploaded."""
    if not lists.listed:
        return lists.contents(known, uploaded=False)
    before = memory_of(lists.states, known)
    after = memory_after(before, lists.listed)
    return pools_after(lists.states, before, after, known) | lists.contents(known, uploaded=True)


@answers("batch_memcpy", memory=True, profile=True)
def memcpy(memory: Known, profile: Profile, src_ptrs: Value, dst_ptrs: Value, sizes: Value) -> Answer:
    """The memory after every copy.

    Addresses are those of lists (`src_ptrs.gpu` and `dst_ptrs.gpu`, uploaded), or elements that say where they are.
    """
    lengths = [
        _length(vector, name, profile) for name, vector in (("src_ptrs", src_ptrs), ("dst_ptrs", dst_ptrs))
    ]
    size_vector = _sizes(sizes, profile)
    require_lists([*lengths, len(size_vector)])
    sources, targets = (
        _places(vector, name, profile) for name, vector in (("source", src_ptrs), ("target", dst_ptrs))
    )
    listed = used_entries(sources, targets, size_vector)
    states = _states_behind(src_ptrs, profile) + _states_behind(dst_ptrs, profile)
    before = memory_of(states, memory) | _whole_pools(listed, memory)
    return None, pools_after(states, before, memory_after(before, listed), memory)


@rule
def used_entries(
    sources: Mapping[int, Place], targets: Mapping[int, Place], sizes: Sequence[int]
) -> list[Entry]:
    """The entries that have bytes to copy."""
    return [Entry(sources[i], targets[i], size) for i, size in enumerate(sizes) if size > 0]


def _length(vector: Value, name: str, profile: Profile) -> int:
    if isinstance(vector, Attribute):
        return lists_of(vector.of, profile).capacity
    if vector.dtype not in {"int64", "uint64"} or len(vector.shape) != 1:
        raise Refused(name, vector, "be a vector of int64 or uint64")
    return int(vector.shape[0])


def _sizes(vector: Value, profile: Profile) -> tuple[int, ...]:
    if isinstance(vector, Attribute):
        return zeros(lists_of(vector.of, profile).capacity, "int64").values()
    if vector.dtype not in {"int32", "int64"} or len(vector.shape) != 1:
        raise Refused("sizes", vector, "be a vector of int32 or int64")
    values: tuple[int, ...] = vector.values()
    return values


def _places(vector: Value, side: str, profile: Profile) -> dict[int, Place]:
    """Where the addresses that are known lie, by entry."""
    if isinstance(vector, Attribute):
        listed = lists_of(vector.of, profile).listed
        return {index: getattr(entry, side) for index, entry in enumerate(listed)}
    return {
        index: Place(address.argument, address.offset)
        for index, address in enumerate(vector.values())
        if isinstance(address, Address)
    }


def _states_behind(vector: Value, profile: Profile) -> tuple[StateTensor, ...]:
    return lists_of(vector.of, profile).states if isinstance(vector, Attribute) else ()


def _whole_pools(listed: Sequence[Entry], known: Known) -> dict[str, bytes]:
    pools = {place.pool for entry in listed for place in entry[:2]}
    return {pool: bytes(known[pool].elements) for pool in pools if known.get(pool) is not None}
