"""What is known of a cache before any step: its mamba groups, their states, and where everything lies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Final

from oracle.align.memory import Kind, StateTensor, conv_rows
from oracle.layout import StateGeometry
from oracle.rules import Refused, require, require_int, rule
from oracle.variants import Variants

_CONV_RANK: Final = 3
_LEAST_RANK: Final = 2


@dataclass(frozen=True)
class StateSpec:
    """What the layers of a mamba group store: tokens per block, the shapes of a block's states, drafts, and mode."""

    block_size: int
    shapes: tuple[tuple[int, ...], ...]
    num_speculative_blocks: int = 0
    mode: str = "align"


@dataclass(frozen=True)
class CacheGroup:
    """Layers that share a block table; `spec` is None where they keep no recurrent state."""

    layer_names: tuple[str, ...]
    spec: StateSpec | None = None


@rule
def mamba_groups(groups: Sequence[CacheGroup]) -> tuple[tuple[int, ...], StateSpec]:
    """Indices of the groups with recurrent state, and the first such group's specification.

    Refused as `kv_cache_config`: no such group, and groups that differ in block size, drafts or cache
    mode. Their states may differ. Source: contract 1.7, `get_mamba_groups`.
    """
    specs = {index: group.spec for index, group in enumerate(groups) if group.spec is not None}
    require(bool(specs), "kv_cache_config", tuple(groups), "have a group with mamba layers")
    alike = {(spec.block_size, spec.num_speculative_blocks, spec.mode) for spec in specs.values()}
    rule = "have one block size, number of speculative blocks and cache mode in all mamba groups"
    require(len(alike) == 1, "kv_cache_config", tuple(groups), rule)
    return tuple(specs), next(iter(specs.values()))


def num_mamba_layers(groups: Sequence[CacheGroup]) -> int:
    """Layers of all mamba groups together."""
    return sum(len(group.layer_names) for group in groups if group.spec is not None)


def num_slots(groups: Sequence[CacheGroup], num_state_types: int, profile: Variants) -> int:
    """Entries of a context's vectors: one per mamba layer and copy function.

    Where a layer's own states alone are counted, the profile says so. Source: contract 1.13.
    """
    if profile.spare_state_slots:
        return num_mamba_layers(groups) * num_state_types
    kept = ((group, group.spec) for group in groups if group.spec is not None)
    return sum(len(group.layer_names) * min(len(spec.shapes), num_state_types) for group, spec in kept)


def require_geometry(groups: Sequence[CacheGroup], layout: str) -> None:
    """Refuse a cache whose steps can pass two boundaries, or whose conv rows do not hold a step's tokens.

    Conv states have shapes of two dimensions; of several states the last is the temporal one, whatever
    its shape. Source: contract 2.1, one boundary (I8) and the slot law (I4).
    """
    _, first = mamba_groups(groups)
    tokens = 1 + first.num_speculative_blocks
    require_one_boundary(tokens, first.block_size)
    for group in groups:
        shapes = group.spec.shapes if group.spec is not None else ()
        convs = shapes[:-1] if len(shapes) > 1 else shapes
        for index, shape in enumerate(convs):
            if len(shape) == _CONV_RANK - 1:
                rows = shape[0] if layout == "SD" else shape[1]
                require_conv_shape(f"shapes[{index}]", shape, rows, tokens)


@rule
def require_one_boundary(tokens: int, block_size: int) -> None:
    """Refuse a step of more tokens than a block has. Source: contract 2.1, one boundary (I8)."""
    limit = f"be < {block_size}, the block size"
    require(tokens <= block_size, "num_speculative_blocks", tokens - 1, limit)


@rule
def require_conv_shape(argument: str, shape: tuple[int, ...], rows: int, tokens: int) -> None:
    """Refuse a conv state without a row for each token of a step. Source: contract 2.1, the slot law (I4)."""
    require(rows >= tokens, argument, shape, f"have at least {tokens} conv rows")


def require_context(
    max_num_reqs: int, num_state_types: int, groups: Sequence[CacheGroup], layout: str
) -> None:
    """Refuse what no context can be created for. Source: document 4, `MambaSpecDecodeGPUContext.create`."""
    require_int("max_num_reqs", max_num_reqs, minimum=1)
    require_int("num_state_types", num_state_types, minimum=1)
    require_geometry(groups, layout)


def copy_capacity(
    max_num_reqs: int, groups: Sequence[CacheGroup], num_copy_funcs: int, profile: Variants
) -> int:
    """Entries of the pointer lists: one per request, layer and copy function.

    Source: contract 1.8, `MambaCopyBuffers`.
    """
    return max_num_reqs * num_slots(groups, num_copy_funcs, profile)


@dataclass(frozen=True)
class StateView:
    """A state as a layer exposes it: shape and strides in elements, bytes per element, and where it starts.

    `pool` and `offset_bytes` say in which pool; a view of memory outside all pools has no pool, and its
    offset is its address.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    pool: str = ""
    offset_bytes: int = 0

    def state(self, kind: Kind, group: int) -> StateTensor:
        """The state behind this view."""
        stride = self.strides[0] * self.itemsize
        geometry = StateGeometry(self.shape[0], self.shape[1:], self.itemsize, stride, self.offset_bytes)
        return StateTensor(self.pool, geometry, kind, group)


@dataclass(frozen=True)
class TableView:
    """A block table as it is handed over: its dtype, and shape and strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@rule
def require_tables(tables: Sequence[TableView], num_groups: int) -> None:
    """Refuse tables that one base address per group and one row stride cannot describe.

    Source: document 4, `initialize_from_forward_context`; contract 1.13.
    """
    require(len(tables) == num_groups, "block_tables", len(tables), f"be {num_groups} tables, one per group")
    for index, table in enumerate(tables):
        argument = f"block_tables[{index}]"
        require(table.dtype == "int32" and len(table.shape) == _LEAST_RANK, argument, table, "be 2-D int32")
        gapless = table.shape[1] <= 1 or table.strides[1] == 1
        require(gapless, argument, table, "have rows without gaps")
        form, first = (table.shape[1], table.strides[0]), (tables[0].shape[1], tables[0].strides[0])
        require(form == first, argument, form, f"have width and row stride {first}, as block_tables[0]")


Layers = Mapping[str, Sequence[StateView]]
"""The views of each layer's states, by the layer's name."""


def bound_states(
    groups: Sequence[CacheGroup],
    layers: Layers,
    kinds: Sequence[Kind | None],
    num_state_types: int,
    layout: str,
) -> tuple[StateTensor, ...]:
    """The states of all mamba layers, by group, layer and state: the order of a context's vectors.

    `kinds` has what each copy function copies, None for one that is neither of the documents' two. A
    layer may have fewer states than that. Source: contract 1.13.
    """
    for index, kind in enumerate(kinds):
        argument = f"mamba_state_copy_funcs[{index}]"
        require(kind is not None, argument, kind, "be get_conv_copy_spec or get_temporal_copy_spec")
    _, first = mamba_groups(groups)
    states_read: list[StateTensor] = []
    for group, names in enumerate(group.layer_names for group in groups if group.spec is not None):
        for name in names:
            require(name in layers, "forward_context", tuple(layers), f"have the layer {name!r}")
            views = layers[name]
            most = min(len(kinds), num_state_types)
            place = f"forward_context[{name!r}].kv_cache"
            require_states(place, views, most)
            for index, (view, kind) in enumerate(zip(views, kinds, strict=False)):
                assert kind is not None, "copy functions were looked at above"
                _require_view(view, kind, f"{place}[{index}]")
                state = view.state(kind, group)
                _require_rows(state, layout, 1 + first.num_speculative_blocks, f"{place}[{index}]")
                states_read.append(state)
    return tuple(states_read)


@rule
def require_states(argument: str, views: Sequence[StateView], most: int) -> None:
    """Refuse a layer with more states than there are copy functions."""
    require(len(views) <= most, argument, len(views), f"be at most {most} states")


def _require_view(view: StateView, kind: Kind, argument: str) -> None:
    rank = len(view.shape)
    fits = rank == _CONV_RANK if kind == "conv" else rank >= _LEAST_RANK
    require(fits, argument, view.shape, "be 3-D" if kind == "conv" else "be at least 2-D")
    dense = 1
    for size, stride in zip(reversed(view.shape[1:]), reversed(view.strides[1:]), strict=True):
        require(size == 1 or stride == dense, argument, view.strides, "have blocks without gaps")
        dense *= size


def _require_rows(state: StateTensor, layout: str, tokens: int, argument: str) -> None:
    if state.kind == "conv":
        rows = conv_rows(state, layout)
        require(rows >= tokens, argument, rows, f"have at least {tokens} conv rows")


@dataclass(frozen=True)
class StateMetadata:
    """One state's entry in each of a context's vectors, apart from the base address, which is the view's own.

    Bytes from block to block and bytes per element; elements per conv row (1 for DS) or of a temporal
    block; conv rows, 0 for temporal; the group; channels of a DS conv block and the bytes between them.
    """

    block_stride: int = 0
    elem_size: int = 0
    inner_size: int = 0
    conv_width: int = 0
    group: int = 0
    dim_row_count: int = 0
    dim_row_stride: int = 0


def metadata_of(state: StateTensor, layout: str) -> StateMetadata:
    """How a context describes a state. Source: contract 1.13."""
    geometry, shape = state.geometry, state.geometry.block_shape
    common = (geometry.block_stride_bytes, geometry.itemsize)
    if state.kind == "temporal":
        return StateMetadata(*common, prod(shape), 0, state.group)
    width = conv_rows(state, layout)
    if layout == "SD":
        return StateMetadata(*common, shape[1], width, state.group)
    return StateMetadata(*common, 1, width, state.group, shape[0], width * geometry.itemsize)


@rule
def metadata(states: Sequence[StateTensor], layout: str, num_slots: int) -> tuple[StateMetadata, ...]:
    """An entry per state, then zeros for the slots that no layer uses."""
    assert len(states) <= num_slots, f"{len(states)} states, but only {num_slots} slots"
    unused = [StateMetadata()] * (num_slots - len(states))
    return tuple(chain((metadata_of(state, layout) for state in states), unused))


@rule
def as_int64(address: int) -> int:
    """The signed number with the 64 bits of an address."""
    if not 0 <= address < 2**64:
        raise Refused("address", address, "have 64 bits")
    return address if address < 2**63 else address - 2**64
