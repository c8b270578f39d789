"""Answers about buffers with two sides, and about copies that are written down as addresses (contract 1.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oracle.align import buffers as rules
from oracle.align.context import copy_capacity, mamba_groups, require_context
from oracle.align.memory import Place, StateTensor
from oracle.align.pointers import Entry, entries, memory_after, require_lists
from oracle.errors import Refused, require, require_int
from oracle.layout import conv_state_layout
from statecheck.case.values import Address, Attribute, Call, Record, Tensor, Value, record
from statecheck.reference import answers
from statecheck.reference.align import Answer, context_record, spec_record, zeros
from statecheck.reference.align_buffers import (
    LISTS,
    Buffer,
    Lists,
    buffer_of,
    collected_lists,
    lists_of,
    size_of,
    used_entries,
)
from statecheck.reference.align_values import (
    Known,
    cache_groups,
    memory_of,
    pools_after,
)
from statecheck.subject.profile import Profile


@answers("CpuGpuBuffer")
def made(**arguments: Value) -> Value:
    """A buffer of zeros."""
    rules.require_buffer(size_of(arguments), arguments["dtype"].name, arguments.get("with_numpy", True))
    return record("CpuGpuBuffer")


@answers("CpuGpuBuffer.copy_to_gpu", rule=rules.copied_elements)
def copied_to_gpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The device side's part that was written."""
    return _copied(buffer_of(self, profile), "cpu", "gpu", n, memory)


@answers("CpuGpuBuffer.copy_to_cpu", rule=rules.copied_elements)
def copied_to_cpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The host side's part that was written."""
    return _copied(buffer_of(self, profile), "gpu", "cpu", n, memory)


def _copied(buffer: Buffer, source: str, target: str, n: int | None, known: Known) -> Answer:
    size = rules.copied_elements(buffer.size, n)
    part = buffer.side(source, known)[:size]
    shape = buffer.size if n is None else (n, *buffer.size[1:])
    written = Tensor(buffer.dtype, shape, part, on="host" if target == "cpu" else "device")
    return written, buffer.holding(target, rules.overwritten(buffer.side(target, known), part))


@answers(f"{LISTS}.create", rule=copy_capacity)
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
    require_context(max_num_reqs, len(copy_funcs), groups, conv_state_layout(environment))
    group_ids, spec = mamba_groups(groups)
    lists = {name: record("CpuGpuBuffer") for name in ("src_ptrs", "dst_ptrs", "sizes")}
    return record(LISTS, **lists, mamba_group_ids=list(group_ids), mamba_spec=spec_record(spec), offset=0)


@answers("MambaBuffers.create", rule=require_context)
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
    return Record(context.type, tuple(field for field in context.fields if not isinstance(field[1], Tensor)))


@answers("collect_mamba_copy_meta", rule=entries)
def collected(call: Call, memory: Known, profile: Profile, **_: Value) -> Answer:
    """One entry more for every state of the request, or none where it stays."""
    return None, collected_lists(call, profile).contents(memory, uploaded=False)


@answers("do_mamba_copy_block", rule=memory_after)
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


@answers("batch_memcpy", rule=memory_after)
def memcpy(memory: Known, profile: Profile, src_ptrs: Value, dst_ptrs: Value, sizes: Value) -> Answer:
    """The memory after every copy.

    Addresses are those of lists (`src_ptrs.gpu` and `dst_ptrs.gpu`, uploaded), or elements that say where they are.
    """
    sources = _addresses(src_ptrs, "src_ptrs", "source", profile)
    targets = _addresses(dst_ptrs, "dst_ptrs", "target", profile)
    size_vector = _sizes(sizes, profile)
    require_lists([sources.length, targets.length, len(size_vector)])
    listed = used_entries(sources.places, targets.places, size_vector)
    before = memory_of(sources.states + targets.states, memory) | _whole_pools(listed, memory)
    return None, pools_after(sources.states + targets.states, before, memory_after(before, listed), memory)


class _Addresses(NamedTuple):
    """A vector of addresses: where those that are known lie, by entry, and the states that they may lie in."""

    length: int
    places: dict[int, Place]
    states: tuple[StateTensor, ...] = ()


def _addresses(vector: Value, name: str, side: str, profile: Profile) -> _Addresses:
    if isinstance(vector, Attribute):
        lists = lists_of(vector.of, profile)
        listed = {index: getattr(entry, side) for index, entry in enumerate(lists.listed)}
        return _Addresses(lists.capacity, listed, lists.states)
    if vector.dtype not in {"int64", "uint64"} or len(vector.shape) != 1:
        raise Refused(name, vector, "be a vector of int64 or uint64")
    known = ((index, one) for index, one in enumerate(vector.values()) if isinstance(one, Address))
    places = {index: Place(address.argument, address.offset) for index, address in known}
    return _Addresses(vector.shape[0], places)


def _sizes(vector: Value, profile: Profile) -> tuple[int, ...]:
    if isinstance(vector, Attribute):
        return zeros(lists_of(vector.of, profile).capacity, "int64").values()
    if vector.dtype not in {"int32", "int64"} or len(vector.shape) != 1:
        raise Refused("sizes", vector, "be a vector of int32 or int64")
    values: tuple[int, ...] = vector.values()
    return values


def _whole_pools(listed: Sequence[Entry], known: Known) -> dict[str, bytes]:
    pools = {place.pool for entry in listed for place in entry[:2]}
    return {pool: bytes(known[pool].elements) for pool in pools if known.get(pool) is not None}
