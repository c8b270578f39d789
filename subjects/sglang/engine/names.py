"""States that name tokens, layers and kinds, as the bytes of slots of the release's pools.

A temporal state, a key and a value are words of 64 bits, each of which names the state, its layer, its kind and its own place among the
words. A row of a convolution has 4 channels for a word: its two halves, the token, and nothing. See `oracle.lifecycle.named_states`.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch

from oracle.lifecycle.named_states import UNKNOWN, named, place_name, state_in

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
