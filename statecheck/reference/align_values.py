"""Arguments of align mode in the oracle's terms: caches, contexts, buffers with two sides and lists of copies with their history, and memory.

A bound object stands for the call that made it or changed it last, so what it has become is found by following the calls back. Contents that no
call has changed are what they were made with, zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import Any

from oracle import layout
from oracle.align import buffers as rules
from oracle.align.context import (
    CacheGroup,
    StateSpec,
    StateView,
    TableView,
    as_int64,
    bound_states,
    copy_capacity,
    mamba_groups,
)
from oracle.align.memory import Kind, Memory, Place, Pool, StateTensor
from oracle.align.pointers import Entry, entries, require_capacity
from oracle.layout import conv_state_layout
from oracle.rules import Refused, rule
from statecheck.case.values import (
    ITEM_SIZES,
    Attribute,
    Call,
    Fake,
    Function,
    Record,
    Rows,
    Tensor,
    Value,
    View,
    as_bytes,
    as_elements,
    dense_strides,
)
from statecheck.subject.profile import Profile

Known = dict[str, Value]
"""Contents by name or dotted path, as an answer is handed them; None where nothing is known."""

CONTEXT = "MambaSpecDecodeGPUContext"
STAGING = (
    "mamba_state_idx_buf",
    "num_scheduled_tokens_buf",
    "num_computed_tokens_buf",
    "num_draft_tokens_buf",
)
_KINDS: dict[str, Kind] = {"get_conv_copy_spec": "conv", "get_temporal_copy_spec": "temporal"}


def cache_groups(config: Record) -> tuple[CacheGroup, ...]:
    """The groups of a cache configuration."""
    return tuple(
        CacheGroup(tuple(group["layer_names"]), _spec(group["kv_cache_spec"]))
        for group in config["kv_cache_groups"]
    )


def _spec(spec: Record) -> StateSpec | None:
    if spec.type != "MambaSpec":
        return None
    fields: dict[str, Any] = dict(spec.fields)
    return StateSpec(
        fields["block_size"],
        tuple(fields["shapes"]),
        fields.get("num_speculative_blocks", 0),
        fields.get("mamba_cache_mode", "none"),
    )


def kinds_of(copy_funcs: Sequence[Function]) -> list[Kind | None]:
    """What each copy function copies, None for a function that is none."""
    return [_KINDS.get(function.name) for function in copy_funcs]


def state_views(forward_context: Mapping[str, Record]) -> dict[str, tuple[StateView, ...]]:
    """The states of each layer."""
    return {
        name: tuple(_state_view(state) for state in layer["kv_cache"])
        for name, layer in forward_context.items()
    }


def _state_view(state: View | Fake | Tensor) -> StateView:
    strides = state.strides or dense_strides(state.shape)
    form = (state.shape, strides, ITEM_SIZES[state.dtype])
    if isinstance(state, Fake):
        return StateView(*form, "", state.address)
    pool = state.of if isinstance(state, View) else "a tensor without a name"
    return StateView(*form, pool, state.offset * form[2])


def table_views(tables: Sequence[Tensor | Fake]) -> list[TableView]:
    """Block tables as the rules look at them."""
    return [
        TableView(table.dtype, table.shape, table.strides or dense_strides(table.shape)) for table in tables
    ]


@dataclass(frozen=True)
class Context:
    """A context: the path under which its contents are known, and the calls that created and initialised it."""

    path: str
    created: Call
    bound: Call | None = None

    @property
    def groups(self) -> tuple[CacheGroup, ...]:
        return cache_groups(self.created.named["kv_cache_config"])

    @property
    def max_num_reqs(self) -> int:
        return int(self.created.named["max_num_reqs"])

    @property
    def num_state_types(self) -> int:
        named = self.created.named
        return int(named["num_state_types"]) if "num_state_types" in named else len(named["copy_funcs"])

    @property
    def block_size(self) -> int:
        return mamba_groups(self.groups)[1].block_size

    @property
    def layout(self) -> layout.Layout:
        return layout.conv_state_layout(dict((self.bound or self.created).environment))

    def states(self) -> tuple[StateTensor, ...]:
        """The states that it was initialised with."""
        assert self.bound is not None, "states are known of an initialised context only"
        return states_of(self, self.bound)

    def tables(self, known: Known) -> list[tuple[tuple[int, ...], ...]]:
        """The rows of its block tables, with what the tables hold now."""
        assert self.bound is not None, "tables are known of an initialised context only"
        return [current_table(table, index, known) for index, table in enumerate(tables_of(self.bound))]


_OWNERS = {
    f"{CONTEXT}.initialize_from_forward_context": "self",
    "postprocess_mamba_align_gpu": "bufs",
    "preprocess_mamba": "copy_bufs",
    "collect_mamba_copy_meta": "bufs",
    "do_mamba_copy_block": "bufs",
}
"""Which argument a function changes. Lists and context of the same buffers have one history."""


def owner_of(call: Call) -> Value:
    """What a call changed, as it was before."""
    return call.named[_OWNERS[call.function]]


def context_of(value: Value) -> Context | None:
    """The context behind an argument, None for buffers that were made without one."""
    if isinstance(value, Attribute):
        return context_of(value.of)
    assert isinstance(value, Call), f"{value} is no bound context"
    if value.function == f"{CONTEXT}.create":
        return Context(value.bind, value)
    if value.function == "MambaBuffers.create":
        path = f"{value.bind}.postprocess_align"
        return Context(path, value) if value.named["with_postprocess_align"] else None
    if value.function == "MambaCopyBuffers.create":
        return None
    context = context_of(owner_of(value))
    # A batch without rows has no table that could be bound.
    binds = value.function in _BINDING and value.named.get("num_reqs") != 0
    return replace(context, bound=value) if context and binds and context.bound is None else context


_BINDING = (f"{CONTEXT}.initialize_from_forward_context", "postprocess_mamba_align_gpu")


def states_of(context: Context, call: Call) -> tuple[StateTensor, ...]:
    """The states that the layers of a call's arguments have."""
    named = call.named
    return bound_states(
        context.groups,
        state_views(named["forward_context"]),
        kinds_of(named["mamba_state_copy_funcs"]),
        context.num_state_types,
        layout.conv_state_layout(dict(call.environment)),
    )


def tables_of(call: Call) -> list[Tensor | Fake]:
    """The block tables that a call hands over, one per mamba group."""
    named = call.named
    if "block_tables" in named:
        return list(named["block_tables"])
    return batch_tables(named["input_batch"], cache_groups(named["kv_cache_config"]))


def batch_tables(input_batch: Record, groups: Sequence[CacheGroup]) -> list[Tensor | Fake]:
    """The whole block tables of a batch, one per mamba group."""
    group_ids, _ = mamba_groups(groups)
    tables = []
    for group_id in group_ids:
        rows = input_batch["block_table"][group_id]["get_device_tensor"]
        assert isinstance(rows, Rows), f"{rows} does not say which tensor's rows it gives"
        tables.append(rows.of)
    return tables


def current_table(table: Tensor | Fake, index: int, known: Known) -> tuple[tuple[int, ...], ...]:
    """The rows of the table of the mamba group `index`, whose contents go by the name `table<index>`."""
    assert isinstance(table, Tensor), f"{table} has no contents"
    held = known.get(f"table{index}")
    if held is not None:
        assert len(held.elements) == table.storage_size, f"table{index} is not the table of group {index}"
        table = replace(table, elements=held.elements)
    return table.rows()


def memory_of(states: Sequence[StateTensor], known: Known) -> dict[str, Pool]:
    """The pools that the states lie in."""
    strides = {state.pool: state.geometry.block_stride_bytes for state in states}
    return {pool: _pool(pool, stride, known) for pool, stride in strides.items()}


def _pool(pool: str, page: int, known: Known) -> Pool:
    held = known.get(pool)
    if held is not None:
        assert held.dtype == "uint8", f"{pool} is of {held.dtype}, but pools are of bytes"
        return bytes(held.elements)
    held_bytes: dict[int, int] = {}
    for name, start in windows(pool, page, known).items():
        held_bytes.update(zip(count(start), as_bytes(known[name].elements, known[name].dtype), strict=False))
    assert held_bytes, f"nothing is known of what {pool} holds: name its bytes, or views of its pages"
    return held_bytes


def windows(pool: str, page: int, known: Known) -> dict[str, int]:
    """Where the views of single pages begin in a pool without contents: `<pool>_block<n>` is the page of block n."""
    matches = ((name, re.fullmatch(rf"{re.escape(pool)}_block(\d+)", name)) for name in known)
    return {
        name: int(match[1]) * page for name, match in matches if match is not None and known[name] is not None
    }


def pools_after(
    states: Sequence[StateTensor], before: Memory, after: Memory, known: Known
) -> dict[str, Value]:
    """The pools, or the views of their pages, that hold something else than before, as they are observed."""
    strides = {state.pool: state.geometry.block_stride_bytes for state in states}
    changed: dict[str, Value] = {}
    for pool, held in after.items():
        if held == before[pool]:
            continue
        if isinstance(held, bytes):
            changed[pool] = Tensor("uint8", (len(held),), held)
            continue
        for name, start in windows(pool, strides[pool], known).items():
            view: Tensor = known[name]
            size = prod(view.shape) * ITEM_SIZES[view.dtype]
            page = bytes(held[start + byte] for byte in range(size))
            changed[name] = replace(view, elements=as_elements(page, view.dtype))
    return changed


def launch_vector(value: Value, name: str, least: int) -> Tensor:
    """An argument of a launch: a contiguous int32 vector with at least `least` entries.

    An attribute whose contents have not changed holds zeros, `least` of which are as good as any number.
    """
    if isinstance(value, Attribute):
        return Tensor("int32", (least,), (0,) * least)
    rule = f"be a contiguous int32 vector of at least {least} entries"
    if not isinstance(value, Tensor) or value.dtype != "int32" or len(value.shape) != 1:
        raise Refused(name, value, rule)
    if value.shape[0] < least or (value.shape[0] > 1 and value.strides not in (None, (1,))):
        raise Refused(name, value.shape, rule)
    return value


def rewritten(tensor: Tensor, values: Mapping[int, int]) -> Tensor:
    """The storage of a vector after some of its entries changed, as it is observed."""
    assert tensor.elements is not None, "the contents of a vector that changes are known"
    positions, elements = list(tensor.positions()), list(tensor.elements)
    for entry, value in values.items():
        elements[positions[entry]] = value
    return replace(tensor, elements=tuple(elements)).storage()


def named_as(name: str, value: Value, known: Known) -> str:
    """The name under which an argument's contents are known: `name` by convention, or else the only one that fits."""

    def fits(held: Value) -> bool:
        if isinstance(value, Tensor):
            return isinstance(held, Tensor) and value.elements is not None and held == value.storage()
        return type(held) is type(value) and bool(held == value)

    if name in known and fits(known[name]):
        return name
    others = [other for other, held in known.items() if fits(held)]
    assert len(others) == 1, f"which name changes with {name}? It should be called so, or be one of its kind"
    return others[0]


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
