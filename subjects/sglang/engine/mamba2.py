"""Mamba-2 layers: the release's mixer, with projections and kernels that name tokens.

The mixer cuts what is projected, takes the convolution's rows at boundaries and writes states: that is the release's. Its scan goes over chunks of the whole
batch, wherever the rows of the batch begin in them, and leaves the state before each of these chunks.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from oracle.lifecycle.named_states import advanced
from subjects.kit.objects import names_in
from subjects.sglang.engine.kernels import NamedKernels
from subjects.sglang.engine.names import columns_of, fill, filled, token_of

_MIXER = "sglang.srt.layers.attention.mamba.mamba"
_OF_DRAFTS = 4
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
                states[row, at + 1] = passed[at + 1] = advanced(states[row, at], token_of(columns[at]))
        asked = [given.get(name) for name in ("track_seq_idx", "track_end_locs")]
        pairs = zip(*([] if one is None else one.tolist() for one in asked), strict=True)
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
        if x.dim() == _OF_DRAFTS:
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
    return [filled(temporal[slot], layer) if one else 0 for slot, one in zip(slots, continues, strict=False)]


def run_mixer(
    linear: Any, layer: int, mixer: Any, batch: Any, states: Sequence[int], tokens: Sequence[int]
) -> None:
    """Run a layer of the release. What it projects are the states after each token, and the tokens."""
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
