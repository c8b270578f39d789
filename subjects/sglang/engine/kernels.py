"""Kernels of a recurrent layer that name tokens: they read and write where the release's layers send them.

Mamba-2's mixer is the release's, with projections and kernels that name tokens. It cuts what is projected, takes the convolution's rows at boundaries
and writes states. Its scan goes over chunks of the whole batch, wherever the rows of the batch begin in them, and leaves the state before each of
these chunks.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from oracle.lifecycle.named_states import advanced, states_before
from subjects.kit.drafts import parents_of
from subjects.kit.objects import names_in
from subjects.sglang.engine.pools import columns_of, fill, filled, token_of, window_of

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
        self.weights = 0
        """The number of the model's weights."""
        self.layer = 0
        """The number of the layer that runs, which the states name that it writes and reads."""

    def after(self, state: int, token: int) -> int:
        """The state after one token more."""
        return advanced(state, token, self.weights)

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
        """The convolution's windows after each token; the slots stay as they are. In a tree, the kernel finds the node above each."""
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
                fill(states[slots[row]], self.after(state, self.tokens[row][at]), self.layer)
        chunks = torch.zeros(1, len(kept), *states.shape[1:], dtype=states.dtype)
        for at, state in enumerate(kept):
            fill(chunks[0, at], state, self.layer)
        return torch.zeros_like(v), None, chunks

    def decode(self, q: Any, k: Any, v: Any, a: Any, b: Any, **given: Any) -> Any:  # noqa: ARG002
        """The delta rule of a decode."""
        states, slots = given["ssm_states"], given["cache_indices"].tolist()
        for row, at, state in self._rows(v, states, slots, list(range(len(slots) + 1))):
            fill(states[slots[row]], self.after(state, self.tokens[row][at]), self.layer)
        return torch.zeros_like(v)

    def target_verify(self, *, v: Any, **given: Any) -> Any:
        """The delta rule of a step that verifies drafts: the state after each token is kept beside the slots, which stay as they are."""
        states, slots = given["ssm_states"], given["cache_indices"].tolist()
        kept, after = given["intermediate_state_indices"].tolist(), given["intermediate_states_buffer"]
        above = given.get("retrieve_parent_token")
        parents = [] if above is None else above.tolist()
        for row, at, state in self._rows(v, states, slots, given["query_start_loc"].tolist(), parents):
            fill(after[kept[row], at], self.after(state, self.tokens[row][at]), self.layer)
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
            for at, state in enumerate(states_before(first, self.tokens[row], above, self.weights)):
                yield row, at, state


_MIXER = "sglang.srt.layers.attention.mamba.mamba"
_MAMBA2_OF_DRAFTS = 4
"""Dimensions of what a step gets where drafts are verified."""


class Mamba2Kernels(NamedKernels):
    """The kernels of all Mamba-2 layers, in the place of those that the release's mixer calls."""

    def install(self) -> None:
        mixer = names_in(_MIXER)
        for suffix in ("", "_triton"):
            mixer[f"causal_conv1d_fn{suffix}"] = self.convolve
            mixer[f"causal_conv1d_update{suffix}"] = self.convolve_token
        mixer["mamba_chunk_scan_combined"] = self.scan
        mixer["selective_state_update"] = self.update

    def scan(self, x: Any, dt: Any, a: Any, b: Any, c: Any, *, chunk_size: int, **given: Any) -> Any:  # noqa: ARG002
        """The scan of a prefill; `x` is (1, tokens, heads, channels), `b` (1, tokens, groups, state size).

        Returns what the release asks for: the states before each chunk of the batch, those after each row, and those of rows `track_seq_idx` before
        the tokens `track_end_locs` of the batch.
        """
        starts, initial = given["cu_seqlens"].tolist(), given["initial_states"]
        columns, shape = x.reshape(x.shape[1], -1), (*x.shape[2:], b.shape[-1])
        begun = [0 if initial is None else filled(initial[row], self.layer) for row in range(len(starts) - 1)]
        self.read = [(slot, state) for (slot, _), state in zip(self.windows, begun, strict=True)]
        # The state before each token of a row, and behind its last one; by the token of the batch, that of the row of the token before.
        states: dict[tuple[int, int], int] = {}
        passed = {0: begun[0]}
        for row, (first, end) in enumerate(pairwise(starts)):
            states[row, first] = begun[row]
            for at in range(first, end):
                states[row, at + 1] = passed[at + 1] = self.after(states[row, at], token_of(columns[at]))
        asked = [given.get(name) for name in ("track_seq_idx", "track_end_locs")]
        pairs = zip(*([] if indices is None else indices.tolist() for indices in asked), strict=True)
        chunks, ends, tracked = (
            _slots(found, shape, self.layer)
            for found in (
                [passed[at] for at in range(0, starts[-1], chunk_size)],
                [states[row, end] for row, end in enumerate(starts[1:])],
                [states[pair] for pair in pairs],
            )
        )
        if given.get("return_track_states"):
            return chunks[None], ends, tracked[None] if len(tracked) else None
        return (chunks[None], ends) if given.get("return_intermediate_states") else ends

    def update(self, states: Any, x: Any, *_: Any, state_batch_indices: Any, **given: Any) -> Any:
        """The step of a decode; `x` is (rows, heads, channels), and (rows, tokens, heads, channels) where drafts are verified."""
        if x.dim() == _MAMBA2_OF_DRAFTS:
            kept = {
                "intermediate_states_buffer": given["intermediate_states_buffer"],
                "intermediate_state_indices": given["intermediate_state_indices"],
                "retrieve_parent_token": given.get("retrieve_parent_token"),
            }
            starts = torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1])
            self.target_verify(
                v=x.flatten(0, 1),
                ssm_states=states,
                cache_indices=state_batch_indices,
                query_start_loc=starts,
                **kept,
            )
            return
        self.decode(None, None, x, None, None, ssm_states=states, cache_indices=state_batch_indices)


def begun_states(metadata: Any, temporal: Any, layer: int) -> list[int]:
    """By row of the batch, the state that this layer of the release begins with; 0 where metadata of Mamba-2 call the slot a new one."""
    slots = metadata.mamba_cache_indices.tolist()
    mixed = getattr(metadata, "mixed_metadata", None)
    continues = [True] * len(slots) if mixed is None else mixed.has_initial_states.tolist()
    return [
        filled(temporal[slot], layer) if has_state else 0
        for slot, has_state in zip(slots, continues, strict=False)
    ]


def run_mixer(
    linear: Any, layer: int, mixer: Any, batch: Any, states: Sequence[int], tokens: Sequence[int]
) -> None:
    """Run a layer of the release. Its projections are the states after each token, and the tokens."""
    columns = columns_of(states, tokens, mixer.conv_dim, layer)
    gates = torch.zeros(len(tokens), mixer.intermediate_size)
    steps = torch.zeros(len(tokens), mixer.num_heads)
    hidden = torch.zeros(len(tokens), 1)
    parts: Mapping[str, Any] = {
        "in_proj": lambda _: (torch.cat([gates, columns, steps], dim=1), None),
        "norm": lambda x, _: x,
        "out_proj": lambda _: (hidden, None),
    }
    for name, part in parts.items():
        mixer._modules.pop(name, None)
        setattr(mixer, name, part)
    linear.forward(
        mixer=mixer,
        hidden_states=hidden,
        output=torch.zeros(len(tokens), 1),
        layer_id=layer,
        forward_batch=batch,
        use_triton_causal_conv=True,
    )


def _slots(states: Sequence[int], shape: Sequence[int], layer: int) -> Any:
    found = torch.zeros(len(states), *shape)
    for slot, state in zip(found, states, strict=True):
        fill(slot, state, layer)
    return found
