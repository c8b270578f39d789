"""Slots of the release's pools, free and held, and the states in them, whose bytes name tokens, layers and kinds.

A temporal state, a key and a value are words of 64 bits, each of which names the state, its layer, its kind and its own place among the
words. A row of a convolution has 4 channels for a word: its two halves, the token, and nothing. See `oracle.lifecycle.named_states`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN, named, place_name, state_in
from oracle.lifecycle.observed import Owner, SlotPool
from subjects.sglang.engine.checkpoints import CHECKPOINT, Checkpoints
from subjects.sglang.engine.host import COPIES
from subjects.sglang.engine.settings import ATTENTION, ATTENTION_LAYERS, LAYERS, RECURRENT_LAYERS, STATES

CHANNELS = 4
"""A word's low and high half, a token, and nothing."""


@lru_cache(1 << 10)
def places_of(layer: int, kind: str, words: int) -> list[int]:
    """The names of the words of a state."""
    return [place_name(layer, kind, element) for element in range(words)]


def _words(states: Sequence[int], layer: int, kind: str, count: int) -> torch.Tensor:
    """A row of so many words for each state."""
    places = places_of(layer, kind, count)
    return torch.tensor([[named(state, place) for place in places] for state in states], dtype=torch.int64)


def columns_of(states: Sequence[int], tokens: Sequence[int], width: int, layer: int) -> torch.Tensor:
    """A row for each token, as a layer's projection would make it, of `width` channels in float32."""
    words = width // CHANNELS
    names = _words(states, layer, "conv", words)
    rows = torch.zeros(len(states), words, CHANNELS, dtype=torch.int32)
    rows[:, :, :2] = names[:, :, None].contiguous().view(torch.int32).reshape(len(states), words, 2)
    rows[:, :, 2] = torch.tensor(tokens, dtype=torch.int32)[:, None]
    return rows.reshape(len(states), -1).view(torch.float32)


def token_of(column: torch.Tensor) -> int:
    return int(column.contiguous().view(torch.int32)[2])


def window_of(conv: torch.Tensor, layer: int) -> tuple[int, ...]:
    """The states in a slot's convolution, whose shape is (channels, tokens), the oldest first."""
    rows = conv.t().contiguous().view(torch.int32).reshape(conv.shape[1], -1, CHANNELS)
    words = rows[:, :, :2].contiguous().view(torch.int64).reshape(conv.shape[1], -1)
    own = places_of(layer, "conv", words.shape[1])
    # A row of a state has the same token in all of its words.
    alike = (rows[:, :, 2:] == rows[:, :1, 2:]).all(dim=2).all(dim=1).tolist()
    return tuple(
        state_in(row, own) if whole else UNKNOWN for row, whole in zip(words.tolist(), alike, strict=True)
    )


def fill(slot: torch.Tensor, state: int, layer: int, kind: str = "temporal") -> None:
    """Write a state to all bytes of a slot."""
    words = slot.view(torch.int64)
    words.copy_(_words([state], layer, kind, words.numel()).reshape(words.shape))


def filled(slot: torch.Tensor, layer: int, kind: str = "temporal") -> int:
    """The state that a slot holds in all of its bytes."""
    words = slot.contiguous().view(torch.int64).reshape(-1)
    return state_in(words.tolist(), places_of(layer, kind, len(words)))


def filled_rows(slots: torch.Tensor, layer: int, kind: str) -> tuple[int, ...]:
    """The state that each slot along the first dimension holds in all of its bytes."""
    words = slots.contiguous().view(torch.int64).flatten(1)
    own = places_of(layer, kind, words.shape[1])
    return tuple(state_in(row, own) for row in words.tolist())


def fill_rows(slots: torch.Tensor, at: torch.Tensor, states: Sequence[int], layer: int, kind: str) -> None:
    """Write a state to all bytes of each slot `at` along the first dimension."""
    words = slots.view(torch.int64)
    words[at] = _words(states, layer, kind, words[0].numel()).reshape(len(states), *words.shape[1:])


def side_states(slots: Sequence[torch.Tensor]) -> list[tuple[str, Any]]:
    """The states that a slot's side states name."""
    return [("temporal", filled(slot, LAYERS + at)) for at, slot in enumerate(slots)]


class Pools:
    """The two pools of a hybrid model: pages of keys, and slots of recurrent states.

    Args:
        scheduler: the release's.
    """

    def __init__(self, scheduler: Any) -> None:
        self.pool, self.allocator = scheduler.req_to_token_pool, scheduler.token_to_kv_pool_allocator
        self.page = scheduler.page_size
        self.keys = scheduler.tp_worker.model_runner.token_to_kv_pool
        self.states = self.pool.mamba_pool.mamba_cache
        checkpoints = getattr(self.pool, "mamba_ckpt_pool", None)
        self.checkpoints = None if checkpoints is None else Checkpoints(checkpoints)
        """In which the tree keeps its states, if the engine has some."""
        registered = getattr(self.pool.mamba_pool, "_slot_siblings", ())
        self.sides = [entry[1] for one in registered for entry in one.iter_transfer_state_entries()]
        """Tensors whose slots have a side state, each of which is named as the temporal state of a layer behind those of the model."""

    def poison(self) -> None:
        """Fill all slots with what is no request's state."""
        kept = [] if self.checkpoints is None else [*self.checkpoints.conv, self.checkpoints.temporal]
        for tensor in (*self.states.conv, self.states.temporal, *kept, *self.sides, *self._buffers()):
            tensor.view(torch.int32).fill_(UNKNOWN)

    def _buffers(self) -> list[Any]:
        return [*self.keys.full_kv_pool.k_buffer, *self.keys.full_kv_pool.v_buffer]

    def _layers(self) -> list[Any]:
        return [
            memory[layer]
            for memory in (*self.states.conv, self.states.temporal)
            for layer in range(len(memory))
        ]

    def pages_of(self, request: Any) -> list[int]:
        """Pages of keys that a request uses, those of a prefix that it shares among them."""
        held = request.kv
        if held.req_pool_idx is None:
            return []
        used = self.pool.req_to_token[held.req_pool_idx, : held.kv_allocated_len].tolist()
        return list(dict.fromkeys(slot // self.page for slot in used))

    def slots_of(self, request: Any) -> list[int]:
        """Slots of states that a request has: the one that it computes in, and those that keep a state at a boundary."""
        slots = request.kv
        held = [] if slots.mamba_pool_idx is None else [int(slots.mamba_pool_idx)]
        tracked = slots.mamba_ping_pong_track_buffer
        return held + [slot for slot in ([] if tracked is None else tracked.tolist()) if slot >= 0]

    def owners(self, requests: Mapping[str, Any]) -> list[Owner]:
        """(request, group, column, block) of each page and slot."""
        found: list[Owner] = []
        for name, request in requests.items():
            found += [(name, ATTENTION, at, page) for at, page in enumerate(self.pages_of(request))]
            found += [(name, STATES, at, slot) for at, slot in enumerate(self.slots_of(request))]
        return found

    def observed(
        self, requests: Mapping[str, Any], pages: Sequence[int], slots: Sequence[int]
    ) -> list[SlotPool]:
        """All pools; `pages` and `slots` are cached."""
        lists = (self.allocator.free_pages, self.allocator.release_pages)
        free = [page for listed in lists if listed is not None for page in listed.tolist()]
        states = self.pool.mamba_allocator
        all_pages = range(1, self.allocator.size // self.page + 1)
        kept = {name: self.pages_of(request) for name, request in requests.items()}
        held = {name: self.slots_of(request) for name, request in requests.items()}
        copied_pages = {slot // self.page for slot in COPIES.read_in(self._buffers())}
        kept_apart = []
        if self.checkpoints is not None:
            kept_apart = [
                SlotPool(STATES, self.checkpoints.slots, self.checkpoints.free, slots, {}, shared=False)
            ]
            slots = []
        return [
            SlotPool(ATTENTION, all_pages, free, pages, kept, shared=True, copied=copied_pages),
            SlotPool(
                STATES,
                range(1, states.size + 1),
                states.free_slots.tolist(),
                slots,
                held,
                shared=False,
                copied=COPIES.read_in(self._layers()),
            ),
            *kept_apart,
        ]

    def late_slots(self) -> tuple[set[int], set[int]]:
        """Slots of keys, and of states, to which a copy from host memory is not done yet."""
        return COPIES.written_in(self._buffers()), COPIES.written_in(self._layers())

    def keys_at(self, slots: Sequence[int], layer: int | None = None) -> list[tuple[int, ...]]:
        """Of each layer's keys, and of each layer's values, the states that slots name; of one layer, if it has a number."""
        index = torch.tensor(slots, dtype=torch.int64)
        pool = self.keys.full_kv_pool
        return [
            filled_rows(buffers[at][index], ATTENTION_LAYERS[at], kind)
            for kind, buffers in (("keys", pool.k_buffer), ("values", pool.v_buffer))
            for at in (range(len(buffers)) if layer is None else [layer])
        ]

    def state_at(self, slot: int) -> list[tuple[str, Any]]:
        """Of each layer, what a slot's convolution and its temporal state name; of a checkpoint, if the number is that of one."""
        pool: Any = self.states
        if self.checkpoints is not None and slot > CHECKPOINT:
            pool, slot = self.checkpoints, slot - CHECKPOINT
        found: list[tuple[str, Any]] = []
        for at, layer in enumerate(RECURRENT_LAYERS):
            found.append(("temporal", filled(pool.temporal[at, slot], layer)))
            found.append(("conv", window_of(pool.conv[0][at, slot], layer)))
        return [*found, *side_states([side[slot] for side in self.sides])]
