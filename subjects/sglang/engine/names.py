"""States that name tokens, as the bytes of a slot: 32 bits in each of two channels, the rest as a copy of them."""

from collections.abc import Sequence

import torch

from oracle.lifecycle.named_states import UNKNOWN

CHANNELS = 4
"""A state's low and high half, a token, and nothing."""


def columns_of(states: Sequence[int], tokens: Sequence[int], width: int) -> torch.Tensor:
    """A row for each token, as a layer's projection would make it, of `width` channels in float32."""
    rows = [(state & 0xFFFFFFFF, state >> 32, token, 0) for state, token in zip(states, tokens, strict=True)]
    words = torch.tensor(rows, dtype=torch.int64).reshape(-1, CHANNELS).to(torch.int32)
    return words.repeat(1, width // CHANNELS).view(torch.float32)


def state_of(column: torch.Tensor) -> int:
    """The state that channels name, `UNKNOWN` where they do not agree."""
    words = column.contiguous().view(torch.int32).reshape(-1, CHANNELS)
    if not bool((words == words[0]).all()):
        return UNKNOWN
    low, high = words[0, :2].tolist()
    return (low & 0xFFFFFFFF) | (high << 32)


def token_of(column: torch.Tensor) -> int:
    return int(column.contiguous().view(torch.int32)[2])


def window_of(conv: torch.Tensor) -> tuple[int, ...]:
    """The states in a slot's convolution, whose shape is (channels, tokens), the oldest first."""
    return tuple(state_of(conv[:, at]) for at in range(conv.shape[1]))


def fill(slot: torch.Tensor, state: int) -> None:
    """Write a state to every byte of a slot."""
    slot.view(torch.int64).fill_(state)


def filled(slot: torch.Tensor) -> int:
    """The state that a slot holds in all of its bytes, `UNKNOWN` where they do not agree."""
    words = slot.contiguous().view(torch.int64).reshape(-1)
    first = int(words[0])
    return first if bool((words == first).all()) else UNKNOWN
