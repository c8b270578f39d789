"""The memory of the release's engine, and states in it that name their tokens exactly.

The state after tokens t0..tn is a number that is made of the state after t0..tn-1 and tn. Every element of a state, a conv row
or an attention page holds that number plus one of its own, so that what is read says after which tokens it is the state.
"""

from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN
from subjects.vllm.engine.settings import (
    CONV_CHANNELS,
    CONV_WIDTH,
    TEMPORAL,
    LiveSettings,
    layer_names,
    page_size,
    states_of,
)

_STATES = 1 << 33
"""States are numbers below it."""


def _own(layer: int, element: int) -> int:
    return (layer % 7 * 8 + element + 1) << 57


class LiveLayer:
    """One layer's part of the memory: pages of `page` bytes that it shares with the layers of other groups."""

    def __init__(
        self, number: int, memory: torch.Tensor, settings: LiveSettings, kind: str, dim_first: bool
    ) -> None:
        self.number, self.kind, self.dim_first = number, kind, dim_first
        blocks, elements = memory.shape
        self.length = states_of(settings, dim_first)[1]
        conv = self.length * CONV_CHANNELS
        self._elements = [_own(number, at) for at in range(CONV_CHANNELS + TEMPORAL)]
        if kind == "attention":
            self.states = [memory[:, : settings.kv_block_size]]
            self._arrays = [self.states[0].numpy()]
            return
        shape, strides = (self.length, CONV_CHANNELS), (CONV_CHANNELS, 1)
        if dim_first:
            shape, strides = (CONV_CHANNELS, self.length), (self.length, 1)
        self.states = [memory.as_strided((blocks, *shape), (elements, *strides))]
        if kind != "short_conv":
            self.states.append(memory.as_strided((blocks, TEMPORAL), (elements, 1), conv))
        # The same memory, which NumPy reads and writes in a fraction of the time; conv states as [blocks, rows, channels].
        self._arrays = [state.numpy() for state in self.states]
        if dim_first:
            self._arrays[0] = self._arrays[0].swapaxes(1, 2)

    def window(self, block: int, first: int) -> list[int]:
        """The tokens' states of the conv rows from `first` on that a forward reads."""
        rows = self._arrays[0][block, first : first + CONV_WIDTH - 1].tolist()
        return [self._state(row, 0) for row in rows]

    def temporal(self, block: int) -> int:
        return self._state(self._arrays[1][block].tolist(), CONV_CHANNELS)

    def keys(self, block: int) -> list[int]:
        """Of an attention page, the state after each of its tokens."""
        own = self._elements[0]
        found = (value and value ^ own for value in self._arrays[0][block].tolist())
        return [state if 0 <= state < _STATES else UNKNOWN for state in found]

    def write_window(self, block: int, states: list[int]) -> None:
        own = self._elements[:CONV_CHANNELS]
        rows = [[state and state ^ element for element in own] for state in states]
        self._arrays[0][block, : len(rows)] = rows

    def write_temporal(self, block: int, state: int) -> None:
        self._arrays[1][block] = [state and state ^ element for element in self._elements[CONV_CHANNELS:]]

    def write_key(self, block: int, offset: int, state: int) -> None:
        self._arrays[0][block, offset] = state and state ^ self._elements[0]

    def _state(self, elements: list[int], first: int) -> int:
        found = {value and value ^ own for value, own in zip(elements, self._elements[first:], strict=False)}
        state = found.pop()
        return UNKNOWN if found or not 0 <= state < _STATES else state


class LiveMemory:
    """All layers of an engine, group by group; group 0 is attention. New memory holds no request's state."""

    def __init__(self, settings: LiveSettings, dim_first: bool) -> None:
        self.settings, self.dim_first = settings, dim_first
        page = page_size(settings, dim_first) // 8
        self.pools = [
            torch.full((settings.num_blocks, page), 0x5A5A5A5A5A5A5A5, dtype=torch.int64)
            for _ in range(settings.layers)
        ]
        # The null block is zeros in a release, too, which makes new memory of zeros.
        for pool in self.pools:
            pool[0] = 0
        self.groups: list[list[LiveLayer]] = []
        self.layers: dict[str, LiveLayer] = {}
        for group, kind in enumerate(("attention", *settings.kinds)):
            names = layer_names(settings, group)
            made = [
                LiveLayer(group * settings.layers + at, self.pools[at], settings, kind, dim_first)
                for at in range(len(names))
            ]
            self.groups.append(made)
            self.layers.update(zip(names, made, strict=True))

    @property
    def caches(self) -> dict[str, Any]:
        """What a layer keeps, by name, as the release has it: a tensor, or one for each kind of state."""
        return {
            name: layer.states[0] if layer.kind == "attention" else list(layer.states)
            for name, layer in self.layers.items()
        }

    def zero(self, blocks: list[int]) -> None:
        for pool in self.pools:
            pool[blocks] = 0

    def contents(self, group: int, block: int) -> list[Any]:
        """What stands in a block that may be hit, layer by layer."""
        found: list[Any] = []
        for layer in self.groups[group]:
            if layer.kind == "attention":
                found.append(("keys", tuple(layer.keys(block))))
            else:
                found.append(("conv", tuple(layer.window(block, 0))))
                if layer.kind != "short_conv":
                    found.append(("temporal", layer.temporal(block)))
        return found
