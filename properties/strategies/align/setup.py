"""The caches that align mode copies in: what layers keep per block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from properties.strategies.align.kept import DTYPES, Group, rounded_up
from properties.strategies.layout import environment
from properties.strategies.situations import NamedSituations
from statecheck.case.values import (
    BufferMaker,
    Call,
    Device,
    DType,
    Function,
    Name,
    Record,
    Value,
    View,
    record,
)

CONTEXT = "MambaSpecDecodeGPUContext"


KINDS = (
    ("temporal",),
    ("conv",),
    ("conv", "temporal"),
    ("conv", "conv", "conv", "temporal"),
)


COPY_FUNCTIONS = {"conv": "get_conv_copy_spec", "temporal": "get_temporal_copy_spec"}


LARGE = 1025
"""Bytes of a state that no more than one state of a model has, since a CPU copies them in many small steps: one more than the
documented tile of a copy."""


MOST_BYTES, MOST_COPIES = 2400, 24
"""What a launch copies, where it is for more than one request; a model with more has one group of one layer."""


def column_of(num_tokens: int, block_size: int) -> int:
    """The block-table column of the last of `num_tokens` tokens, -1 where there is none."""
    return -(-num_tokens // block_size) - 1


@dataclass(frozen=True)
class Setup(NamedSituations):
    """A model in align mode. `kinds` has a copy function each; a group's layers keep all of these states or the first.

    With `shared`, the n-th layers of all groups use one pool. With `attention`, a group of another kind comes first.
    """

    groups: tuple[Group, ...]
    kinds: tuple[str, ...] = ("temporal",)
    block_size: int = 1
    num_spec: int = 0
    layout: str = "SD"
    shared: bool = False
    attention: bool = False

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.layout)

    @property
    def group_ids(self) -> tuple[int, ...]:
        """Where the groups stand among all groups of the cache."""
        return tuple(range(self.attention, self.attention + len(self.groups)))

    @property
    def copy_functions(self) -> tuple[Function, ...]:
        return tuple(Function(COPY_FUNCTIONS[kind]) for kind in self.kinds)

    @cached_property
    def pool_names(self) -> tuple[tuple[str, ...], ...]:
        """The pool of each layer, by group."""
        first, found = 0, []
        for group in self.groups:
            found.append(tuple(f"pool{first + layer}" for layer in range(group.layers)))
            first += 0 if self.shared else group.layers
        return tuple(found)

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of all pools."""
        return tuple(dict.fromkeys(name for names in self.pool_names for name in names))

    def pages(self) -> dict[str, int]:
        """Bytes from one block to the next, by pool: room for whichever group needs most."""
        return self._pages

    @cached_property
    def _pages(self) -> dict[str, int]:
        unit = max(group.itemsize for group in self.groups)
        pages: dict[str, int] = {}
        for group, names in zip(self.groups, self.pool_names, strict=True):
            own = rounded_up(group.end + group.padding, unit if self.shared else group.itemsize)
            pages.update({name: max(pages.get(name, 0), own) for name in names})
        return pages

    def named_layers(self) -> Iterator[tuple[str, int, str]]:
        """Layer name, group and pool of every layer, in the order of the flat metadata."""
        number = 0
        for group, names in enumerate(self.pool_names):
            for pool in names:
                yield f"layer{number}", group, pool
                number += 1

    def views(self, group: int, pool: str, num_blocks: int) -> list[View]:
        """The states of a layer of `group` that uses `pool`."""
        page = self.pages()[pool]
        kept = self.groups[group]
        return [
            View(
                pool,
                state.dtype,
                (num_blocks, *state.shape),
                (page // state.itemsize, *_dense(state.shape)),
                offset // state.itemsize,
            )
            for state, offset in zip(kept.states, kept.offsets, strict=True)
        ]

    def config(self, num_blocks: int) -> Record:
        specs = [self._spec(group) for group in range(len(self.groups))]
        if self.attention:
            other = record("FullAttentionSpec", block_size=16)
            specs.insert(0, record("KVCacheGroupSpec", layer_names=["attention"], kv_cache_spec=other))
        return record("KVCacheConfig", num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=specs)

    def _spec(self, group: int) -> Record:
        kept, pages = self.groups[group], self.pages()
        names = [name for name, owner, _ in self.named_layers() if owner == group]
        page, own = pages[self.pool_names[group][0]], sum(state.nbytes for state in kept.states)
        spec = record(
            "MambaSpec",
            block_size=self.block_size,
            shapes=tuple(state.shape for state in kept.states),
            dtypes=tuple(DType(state.dtype) for state in kept.states),
            page_size_padded=page if page > own else None,
            mamba_type="mamba2",
            mamba_cache_mode="align",
            num_speculative_blocks=self.num_spec,
        )
        return record("KVCacheGroupSpec", layer_names=names, kv_cache_spec=spec)

    def forward_context(self, num_blocks: int) -> dict[str, Value]:
        return {
            name: record("Layer", kv_cache=self.views(group, pool, num_blocks))
            for name, group, pool in self.named_layers()
        }

    def call(self, function: str, /, **keywords: Value) -> Call:
        """A call with keywords under the setup's layout."""
        return Call(function, (), tuple(keywords.items()), tuple(self.environment.items()))

    def create(self, max_num_reqs: int) -> Call:
        created = self.call(
            f"{CONTEXT}.create",
            max_num_reqs=max_num_reqs,
            kv_cache_config=Name("config"),
            num_state_types=len(self.kinds),
            device=Device(),
            make_buffer=BufferMaker(),
        )
        return replace(created, bind="ctx")

    def initialize(self, **changes: Value) -> Call:
        """Bind the context `ctx` to the layers and tables that are named already."""
        arguments: dict[str, Value] = {
            "self": Name("ctx"),
            "kv_cache_config": Name("config"),
            "forward_context": Name("layers"),
            "mamba_state_copy_funcs": self.copy_functions,
            "block_tables": [Name(f"table{group}") for group in range(len(self.groups))],
        }
        bound = self.call(f"{CONTEXT}.initialize_from_forward_context", **arguments | changes)
        return replace(bound, updates="ctx")

    @property
    def is_large(self) -> bool:
        return any(state.nbytes > LARGE for group in self.groups for state in group.states)

    @property
    def num_copies(self) -> int:
        """States of all layers, each of which a request may have copied by a launch."""
        return sum(group.layers * len(group.states) for group in self.groups)

    @property
    def num_bytes(self) -> int:
        """Bytes of these states."""
        return sum(group.layers * state.nbytes for group in self.groups for state in group.states)

    @property
    def is_costly(self) -> bool:
        """Whether to copy the states of one request takes more than a moment on a CPU."""
        return self.num_bytes > MOST_BYTES

    def most_requests(self, most: int) -> int:
        """How many requests, up to `most`, a launch may copy the states of in a moment on a CPU."""
        return max(1, min(most, MOST_BYTES // self.num_bytes, MOST_COPIES // self.num_copies))

    def conditions(self) -> dict[str, bool]:
        states = [state for group in self.groups for state in group.states]
        widths = [max(state.shape) for state in states if state.kind == "conv"]
        sizes = [state.nbytes for state in states]
        return {
            "channel-first layout": self.layout == "DS",
            "conv states": bool(widths),
            "temporal states": any(state.kind == "temporal" for state in states),
            "two conv states in a layer": any(_count(group, "conv") > 1 for group in self.groups),
            "several layers in a group": any(group.layers > 1 for group in self.groups),
            "two groups": len(self.groups) > 1,
            "shared pool": self.shared and len(self.groups) > 1,
            "a group of another kind before": self.attention,
            "fewer states than copy functions": any(
                len(group.states) < len(self.kinds) for group in self.groups
            ),
            "page padding": any(group.padding for group in self.groups),
            "state behind another one": any(len(group.states) > 1 for group in self.groups),
            "unaligned": any(_unaligned(group) for group in self.groups),
            "several channels": max(widths, default=0) > 4,
            "several lanes": max(widths, default=0) > 40 or max(sizes) > 200,
            "several tiles": max(sizes) > 16384,
            "speculation": self.num_spec > 0,
            "block as long as the drafts allow": self.num_spec > 0 and self.block_size == 1 + self.num_spec,
            "five drafts or more": self.num_spec >= 5,
            "blocks of millions of tokens": self.block_size > 2**20,
            **{f"dtype {name}": any(state.dtype == name for state in states) for name in DTYPES},
        }


def _count(group: Group, kind: str) -> int:
    return sum(state.kind == kind for state in group.states)


def _unaligned(group: Group) -> bool:
    return any(offset % 4 for offset in group.offsets)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
