"""Kernels of a recurrent layer that name tokens: they read and write where the release's layers send them.

`forward_extend` and `forward_decode` of the release's own backend call them, in the place of the convolution and the gated delta rule.
What they read is noted by row, for the laws.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from oracle.lifecycle.named_states import advanced, states_before
from subjects.kit.drafts import parents_of
from subjects.sglang.engine.names import fill, filled, token_of, window_of

_OF_DRAFTS = 3
"""Dimensions of what the convolution gets where drafts are verified."""


class NamedKernels:
    """The kernels of all layers.

    Args:
        chunk: tokens between two states that a prefill keeps.
        padding: the slot of rows to skip.
    """

    supports_packed_decode = False
    supports_strided_target_verify_qkv = False
    supports_track_state_snapshot = False
    uses_state_checkpoints = False

    def __init__(self, chunk: int, padding: int) -> None:
        self.chunk, self.padding = chunk, padding
        self.windows: list[tuple[int, tuple[int, ...]]] = []
        """By row, the slot and what its convolution held, of the layer that ran last."""
        self.read: list[tuple[int, int]] = []
        """By row, the slot and the state that it held."""
        self.tokens: list[list[int]] = []
        self.layer = 0
        """The number of the layer that runs, which the states name that it writes and reads."""

    def install(self) -> None:
        """Layers of Gated DeltaNet are given them one by one."""

    def convolve(self, x: Any, weights: Any, bias: Any, **given: Any) -> Any:  # noqa: ARG002 - the release's names
        """The convolution of a prefill. `x` is (channels, tokens)."""
        starts = given["query_start_loc"].tolist()
        slots, initial = given["cache_indices"].tolist(), given["has_initial_state"].tolist()
        states = given["conv_states"]
        self.windows = []
        for slot, has, first, end in zip(slots, initial, starts, starts[1:], strict=False):
            before = states[slot] if has else torch.zeros_like(states[slot])
            self.windows.append((slot, window_of(before, self.layer)))
            if slot != self.padding:
                states[slot] = torch.cat([before, x[:, first:end]], dim=1)[:, -before.shape[1] :]
        return x

    def convolve_token(self, x: Any, states: Any, *_: Any, conv_state_indices: Any, **given: Any) -> Any:
        """The convolution of a decode. `x` is (rows, channels), and (rows, channels, tokens) where drafts are verified."""
        self.windows = []
        if x.dim() == _OF_DRAFTS:
            return self._convolve_drafts(x, states, conv_state_indices.tolist(), **given)
        for row, slot in enumerate(conv_state_indices.tolist()):
            before = states[slot]
            self.windows.append((slot, window_of(before, self.layer)))
            if slot != self.padding:
                states[slot] = torch.cat([before[:, 1:], x[row][:, None]], dim=1)
        return x

    def _convolve_drafts(
        self, x: Any, states: Any, slots: Sequence[int], *, intermediate_conv_window: Any, **given: Any
    ) -> Any:
        """What the convolution keeps after each token; the slots stay as they are. In a tree, the kernel finds the node above each."""
        kept = given["intermediate_state_indices"].tolist()
        above = given.get("retrieve_parent_token")
        for row, slot in enumerate(slots):
            parents = list(range(-1, x.shape[2] - 1))
            if above is not None:
                links = (given[f"retrieve_next_{name}"][row].tolist() for name in ("token", "sibling"))
                parents = parents_of(*links)
                above[row] = torch.tensor(parents, dtype=above.dtype)
            self.windows.append((slot, window_of(states[slot], self.layer)))
            after: list[Any] = []
            for at, parent in enumerate(parents):
                before = after[parent] if parent >= 0 else states[slot]
                after.append(torch.cat([before[:, 1:], x[row, :, at : at + 1]], dim=1))
                intermediate_conv_window[kept[row], at] = after[at]
        return x

    def extend(self, q: Any, k: Any, v: Any, g: Any, beta: Any, **given: Any) -> Any:  # noqa: ARG002
        """The delta rule of a prefill: the output, nothing, and the states at the chunks' beginnings."""
        states, slots = given["ssm_states"], given["cache_indices"].tolist()
        kept = []
        for row, at, state in self._rows(v, states, slots, given["query_start_loc"].tolist()):
            if at % self.chunk == 0:
                kept.append(state)
            if at == len(self.tokens[row]) - 1:
                fill(states[slots[row]], advanced(state, self.tokens[row][at]), self.layer)
        chunks = torch.zeros(1, len(kept), *states.shape[1:], dtype=states.dtype)
        for at, state in enumerate(kept):
            fill(chunks[0, at], state, self.layer)
        return torch.zeros_like(v), None, chunks

    def decode(self, q: Any, k: Any, v: Any, a: Any, b: Any, **given: Any) -> Any:  # noqa: ARG002
        """The delta rule of a decode."""
        states, slots = given["ssm_states"], given["cache_indices"].tolist()
        for row, at, state in self._rows(v, states, slots, list(range(len(slots) + 1))):
            fill(states[slots[row]], advanced(state, self.tokens[row][at]), self.layer)
        return torch.zeros_like(v)

    def target_verify(self, *, v: Any, **given: Any) -> Any:
        """The delta rule of a step that verifies drafts: the state after each token is kept beside the slots, which stay as they are."""
        states, slots = given["ssm_states"], given["cache_indices"].tolist()
        kept, after = given["intermediate_state_indices"].tolist(), given["intermediate_states_buffer"]
        above = given.get("retrieve_parent_token")
        parents = [] if above is None else above.tolist()
        for row, at, state in self._rows(v, states, slots, given["query_start_loc"].tolist(), parents):
            fill(after[kept[row], at], advanced(state, self.tokens[row][at]), self.layer)
        return torch.zeros_like(v)

    def _rows(
        self,
        v: Any,
        states: Any,
        slots: Sequence[int],
        starts: Sequence[int],
        parents: Sequence[Sequence[int]] = (),
    ) -> Iterator[tuple[int, int, int]]:
        """Row, place of a token in it, and the state before that token. All rows are read before one is given.

        `parents` are, by row, the place of the token before each, where that is another one than the last.
        """
        self.read = [(slot, filled(states[slot], self.layer)) for slot in slots]
        columns = v.reshape(-1, v.shape[-2] * v.shape[-1])
        self.tokens = [[token_of(columns[at]) for at in range(first, end)] for first, end in pairwise(starts)]
        for row, (slot, first) in enumerate(self.read):
            if slot == self.padding:
                continue
            above = parents[row] if parents else range(-1, len(self.tokens[row]) - 1)
            for at, state in enumerate(states_before(first, self.tokens[row], above)):
                yield row, at, state
