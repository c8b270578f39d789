"""The memory of the release's engine, and states in it that name their tokens, their layer and their kind.

The state after tokens t0..tn is a number that is made of the state after t0..tn-1 and tn. Every element of a state, a conv row
or an attention page holds that number under the name of its place (`named_states.py`), so that what is read says after which tokens it is
the state, and of which layer, kind and element. A number that was written for another place is no state of this one.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from oracle.lifecycle.named_states import UNKNOWN, named, place_name, state_in
from oracle.recurrences.layer import Prefix
from subjects.vllm.engine.settings import (
    CONV_CHANNELS,
    CONV_WIDTH,
    TEMPORAL,
    LiveSettings,
    layer_names,
    page_size,
    states_of,
    types_of,
)

_UNWRITTEN = 0x5A5A5A5A5A5A5A5
"""The content of memory that no request has written."""
_UNWRITTEN_NUMBERS = 0x5A5A5A5A5A5A5A5A
"""The same where states are real numbers: 1.5e16 in each type."""


class LiveLayer:
    """A layer's part of the memory: pages of `page` bytes that it shares with the layers of other groups.

    `number` is the layer's among all layers of the model, those of other groups and stages among them.
    """

    def __init__(
        self, number: int, memory: torch.Tensor, settings: LiveSettings, kind: str, dim_first: bool
    ) -> None:
        self.number, self.kind, self.dim_first = number, kind, dim_first
        blocks, elements = memory.shape
        self.length = states_of(settings, dim_first)[1]
        conv = self.length * CONV_CHANNELS
        self._key = place_name(number, "keys")
        self._channels = [place_name(number, "conv", at) for at in range(CONV_CHANNELS)]
        self._elements = [place_name(number, "temporal", at) for at in range(TEMPORAL)]
        if kind == "attention":
            self.states = [memory[:, : settings.kv_block_size]]
            self._arrays = [self.states[0].numpy()]
            return
        shape, strides = (self.length, CONV_CHANNELS), (CONV_CHANNELS, 1)
        if dim_first:
            shape, strides = (CONV_CHANNELS, self.length), (self.length, 1)
        self.states = [memory.as_strided((blocks, *shape), (elements, *strides))]
        if kind != "short_conv":
            first = memory.storage_offset() + conv
            self.states.append(memory.as_strided((blocks, TEMPORAL), (elements, 1), first))
        # The same memory, which NumPy reads and writes in a fraction of the time; conv states as [blocks, rows, channels].
        self._arrays = [state.numpy() for state in self.states]
        if dim_first:
            self._arrays[0] = self._arrays[0].swapaxes(1, 2)

    def window(self, block: int, first: int) -> list[int]:
        """The tokens' states of the conv rows from `first` on that a forward reads."""
        rows = self._arrays[0][block, first : first + CONV_WIDTH - 1].tolist()
        return [state_in(row, self._channels) for row in rows]

    def temporal(self, block: int) -> int:
        return state_in(self._arrays[1][block].tolist(), self._elements)

    def keys(self, block: int) -> list[int]:
        """Of an attention page, the state after each of its tokens."""
        own = (self._key,)
        return [value and state_in((value,), own) for value in self._arrays[0][block].tolist()]

    def write_window(self, block: int, states: list[int]) -> None:
        rows = [[named(state, place) for place in self._channels] for state in states]
        self._arrays[0][block, : len(rows)] = rows

    def write_temporal(self, block: int, state: int) -> None:
        self._arrays[1][block] = [named(state, place) for place in self._elements]

    def write_key(self, block: int, offset: int, state: int) -> None:
        self._arrays[0][block, offset] = named(state, self._key)


class KernelLayer(LiveLayer):
    """A layer whose states are real numbers."""

    def __init__(
        self, number: int, memory: torch.Tensor, settings: LiveSettings, kind: str, dim_first: bool
    ) -> None:
        super().__init__(number, memory, settings, "attention", dim_first)
        self.kind, self.states, first = kind, [], 0
        for shape, name in zip(states_of(settings, dim_first)[0], types_of(settings), strict=True):
            numbers = memory.view(getattr(torch, name))
            size = math.prod(shape)
            at = first // numbers.element_size()
            self.states.append(numbers[:, at : at + size].unflatten(1, shape))
            first += size * numbers.element_size()

    def window(self, block: int, first: int) -> list[int]:  # noqa: ARG002 - no number names a state
        return [UNKNOWN]

    def temporal(self, block: int) -> int:  # noqa: ARG002 - no number names a state
        return UNKNOWN


class LiveMemory:
    """All layers of an engine, or of a stage of it, group by group; group 0 is attention. New memory holds no request's state.

    Args:
        stage: its number; the layers of each stage have numbers of their own.
        pools: of each layer of a group, blocks that stand elsewhere, as in host memory; new memory where there are none.
    """

    def __init__(
        self,
        settings: LiveSettings,
        dim_first: bool,
        stage: int = 0,
        pools: Sequence[torch.Tensor] = (),
    ) -> None:
        self.settings, self.dim_first = settings, dim_first
        self._unwritten = _UNWRITTEN_NUMBERS if settings.kernels else _UNWRITTEN
        self._first = stage * settings.layers * len(settings.groups)
        self.pools = list(pools) or self._new_pools()
        self.former: list[torch.Tensor] = []
        """Earlier pools, kept so that their addresses are not used again."""
        self.weights = 0
        """The number of the model's weights."""
        self.prefixes: dict[int, dict[int, Prefix]] = {}
        """Of a layer of real numbers, by weights and named state, what it has gone through."""
        self.groups: list[list[LiveLayer]] = []
        self.layers: dict[str, LiveLayer] = {}
        self._names = [layer_names(settings, group) for group in range(len(settings.groups))]
        self._divide()

    def _new_pools(self) -> list[torch.Tensor]:
        # One allocation, as in a release.
        settings = self.settings
        shape = (settings.layers, settings.num_blocks, page_size(settings, self.dim_first) // 8)
        pools = list(torch.full(shape, self._unwritten, dtype=torch.int64))
        # The null block is zeros in a release, too, which makes new memory of zeros.
        for pool in pools:
            pool[0] = 0
        return pools

    def _divide(self) -> None:
        """Make the layers of each group, which share the pools."""
        settings, self.groups = self.settings, []
        for group, kind in enumerate(settings.groups):
            Made = KernelLayer if settings.kernels and group else LiveLayer
            first, names = self._first + group * settings.layers, self._names[group]
            made = [
                Made(first + at, self.pools[at], settings, kind, self.dim_first) for at in range(len(names))
            ]
            self.groups.append(made)
            self.layers.update(zip(names, made, strict=True))

    def renew(self) -> None:
        """Take other pools, in which nothing was written; those of before stay as they are."""
        self.former += self.pools
        self.pools = self._new_pools()
        self._divide()

    @property
    def caches(self) -> dict[str, Any]:
        """A layer's memory, by name, as the release has it: a tensor, or one for each kind of state."""
        return {
            name: layer.states[0] if layer.kind == "attention" else list(layer.states)
            for name, layer in self.layers.items()
        }

    @property
    def pages(self) -> dict[str, torch.Tensor]:
        """The blocks of each layer by name, as the release's own connectors have them."""
        return {name: pool for names in self._names for name, pool in zip(names, self.pools, strict=True)}

    def lose(self) -> None:
        """Clear all blocks; the null block, which no request reads, is as it was."""
        for pool in self.pools:
            pool[1:] = self._unwritten

    def zero(self, blocks: list[int]) -> None:
        for pool in self.pools:
            pool[blocks] = 0

    def contents(self, group: int, block: int) -> list[Any]:
        """The content of a block that may be hit, layer by layer."""
        found: list[Any] = []
        for layer in self.groups[group]:
            if isinstance(layer, KernelLayer):
                # Numbers tell nothing of the tokens; what is wrong shows in the outputs behind a hit.
                continue
            if layer.kind == "attention":
                found.append(("keys", tuple(layer.keys(block))))
            else:
                found.append(("conv", tuple(layer.window(block, 0))))
                if layer.kind != "short_conv":
                    found.append(("temporal", layer.temporal(block)))
        return found
