"""The tier of host memory behind the tree: its copies without a GPU."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN
from oracle.lifecycle.observed import SlotPool, Stored
from subjects.kit.objects import names_in
from subjects.sglang.engine.host import COPIES, install_late_copies, places_in
from subjects.sglang.engine.pools import filled, filled_rows, side_states, window_of
from subjects.sglang.engine.settings import ATTENTION, ATTENTION_LAYERS, RECURRENT_LAYERS, STATES
from subjects.sglang.engine.tree import Prefix, tree_lists_nodes

_POOLS = "sglang.srt.mem_cache.pool_host"
_EARLIER_POOLS = "sglang.srt.mem_cache.memory_pool_host"
_RESERVE = "HICACHE_HOST_MEMORY_RESERVE_BYTES"
"""Memory that the release leaves free, 10 GiB: a machine that has less would be refused some kilobytes of host memory."""

HOST = 1000
"""Offset of the numbers of slots in host memory, to tell them from those of the device."""


def host_arguments(policy: str) -> dict[str, Any]:
    """The arguments of an engine whose tree writes to host memory by this policy, "" for one without host memory."""
    if not policy:
        return {}
    names_in(f"{_POOLS}.common")["_cuda_host_register"] = lambda *_, **__: None
    for module in (f"{_POOLS}.base", *(f"{_POOLS}.{kind}" for kind in ("mha", "mamba")), _EARLIER_POOLS):
        names = names_in(module)
        names.update({name: 0 for name in names if name == _RESERVE})
    install_late_copies()
    for module in ("mha", "mamba"):
        names = names_in(f"{_POOLS}.{module}")
        names["transfer_kv_all_layer_direct_lf_pf"] = copy_to_host
        names["transfer_kv_per_layer_direct_pf_lf"] = copy_from_host
    return {
        "enable_hierarchical_cache": True,
        "hicache_ratio": 2.0,
        "hicache_write_policy": policy,
        "hicache_io_backend": "direct",
        "hicache_mem_layout": "page_first_direct",
    }


def copy_to_host(
    *, src_ptrs: Sequence[Any], dst_ptrs: Sequence[Any], src_indices: Any, dst_indices: Any, page_size: int
) -> None:
    """Copy pages of all layers: `src_ptrs` are layers of (slots, ...), for each host buffer of (pages, layers, slots of a page, ...)."""
    layers = len(src_ptrs) // len(dst_ptrs)
    pages = _pages(src_indices, dst_indices, page_size)

    def copy() -> None:
        for source, target in pages:
            for at, layer in enumerate(src_ptrs):
                dst_ptrs[at // layers][target // page_size, at % layers] = layer[source : source + page_size]

    written = places_in(dst_ptrs, [target // page_size for _, target in pages])
    COPIES.add(COPIES.to_host, copy, written, places_in(src_ptrs, [source for source, _ in pages]))


def copy_from_host(
    *,
    src_ptrs: Sequence[Any],
    dst_ptrs: Sequence[Any],
    src_indices: Any,
    dst_indices: Any,
    layer_id: int,
    page_size: int,
) -> None:
    """Copy pages of a layer back, from each host buffer to its layer."""
    pages = _pages(src_indices, dst_indices, page_size)

    def copy() -> None:
        for source, target in pages:
            for host, layer in zip(src_ptrs, dst_ptrs, strict=True):
                layer[target : target + page_size] = host[source // page_size, layer_id]

    places = [slot for _, target in pages for slot in range(target, target + page_size)]
    # What a copy reads is asked for in the pools of the device alone.
    COPIES.add(COPIES.from_host, copy, places_in(dst_ptrs, places), frozenset())


def _pages(sources: Any, targets: Any, page: int) -> list[tuple[int, int]]:
    return list(zip(sources.tolist()[::page], targets.tolist()[::page], strict=True))


def keys_in_page(keys: Any, values: Any) -> list[tuple[str, Any]]:
    """The states that a page's (layers, slots, ...) of keys and of values name."""
    return [
        ("keys", filled_rows(buffer[at], layer, kind))
        for kind, buffer in (("keys", keys), ("values", values))
        for at, layer in enumerate(ATTENTION_LAYERS)
    ]


def state_in_slot(temporal: Any, windows: Any) -> list[tuple[str, Any]]:
    """Of each layer, what a slot's temporal states and convolutions name."""
    kept: list[tuple[str, Any]] = []
    for at, layer in enumerate(RECURRENT_LAYERS):
        kept.append(("temporal", filled(temporal[at], layer)))
        kept.append(("conv", window_of(windows[at][0], layer)))
    return kept


class HostMemory:
    """Pages of keys and slots of states in host memory.

    Args:
        tree: the release's cache, which has some.
        page: tokens of a page.
    """

    def __init__(self, tree: Any, page: int) -> None:
        self.keys, self.states, self.page = tree.full_kv_pool_host, tree.mamba_pool_host, page
        self.lists = tree_lists_nodes(tree)
        # Prefixes of scenarios are short.
        tree.load_back_threshold = 0
        self._poison_allocated(self.keys, (self.keys.k_buffer, self.keys.v_buffer), page)
        sides = getattr(self.states, "slot_state_buffers", ())
        self._poison_allocated(
            self.states, (self.states.temporal_buffer, *self.states.conv_buffer, *sides), 1
        )

    @staticmethod
    def _poison_allocated(pool: Any, buffers: Sequence[Any], page: int) -> None:
        """Fill each slot that the release takes with no request's state, so that what is not copied to it is seen, whatever stood there before."""
        allocate = pool.alloc

        def alloc(*given: Any, **named: Any) -> Any:
            slots = allocate(*given, **named)
            for slot in [] if slots is None else slots.tolist()[::page]:
                for buffer in buffers:
                    buffer[slot // page].view(torch.int32).fill_(UNKNOWN)
            return slots

        pool.alloc = alloc

    def published(self, name: str, count: int, prefix: Prefix) -> Iterator[Stored]:
        """The data that a hit of a prefix loads, as its end is the end of `count` tokens of a request."""
        first = count - len(prefix.host_keys)
        late_pages = COPIES.written_in([self.keys.k_buffer, self.keys.v_buffer])
        late_states = COPIES.written_in([self.states.temporal_buffer, *self.states.conv_buffer])
        for at in range(0, len(prefix.host_keys), self.page):
            page = prefix.host_keys[at] // self.page
            if page in late_pages:
                continue
            contents = keys_in_page(self.keys.k_buffer[page], self.keys.v_buffer[page])
            yield ATTENTION, HOST + page, name, first + at + self.page, contents
        if prefix.host_state is not None and prefix.host_state not in late_states:
            temporal = self.states.temporal_buffer[prefix.host_state]
            windows = self.states.conv_buffer[0][prefix.host_state]
            sides = [buffer[prefix.host_state] for buffer in getattr(self.states, "slot_state_buffers", ())]
            found = [*state_in_slot(temporal, windows), *side_states(sides)]
            yield STATES, HOST + prefix.host_state, name, count, found

    def observed(
        self, cached: Sequence[Prefix], held: tuple[Collection[int], Collection[int]] = ((), ())
    ) -> list[SlotPool]:
        """Both pools: what is not free belongs to the tree, or is held by a storage. None of a core that does not list what is in them."""
        if not self.lists:
            return []
        pages = [slot // self.page for prefix in cached for slot in prefix.host_keys[:: self.page]]
        slots = [prefix.host_state for prefix in cached if prefix.host_state is not None]
        free = [slot // self.page for slot in _free(self.keys)[:: self.page]]
        pages_held = {slot // self.page for slot in held[0]}
        found = (
            (ATTENTION, self.keys.size // self.page, free, pages, pages_held),
            (STATES, self.states.size, _free(self.states), slots, held[1]),
        )
        return [
            SlotPool(
                group,
                range(HOST, HOST + size),
                [HOST + slot for slot in unused],
                [HOST + slot for slot in used],
                {"storage": sorted(HOST + slot for slot in kept)} if kept else {},
                shared=False,
            )
            for group, size, unused, used, kept in found
        ]


def _free(pool: Any) -> list[int]:
    return [slot for listed in (pool.free_slots, *pool.release_slots) for slot in listed.tolist()]
