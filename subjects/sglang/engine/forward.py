"""The model's forward: its layers are the release's, with kernels and keys that name tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from oracle.lifecycle.named_states import next_token, states_before
from oracle.lifecycle.observed import ForwardRow, GroupAccess
from subjects.kit.drafts import parents_of
from subjects.kit.objects import names_in
from subjects.sglang.engine.host import install_host_parts
from subjects.sglang.engine.kernels import Mamba2Kernels, NamedKernels, begun_states, run_mixer
from subjects.sglang.engine.pools import Pools, columns_of, fill, fill_rows, side_states
from subjects.sglang.engine.settings import INTERVAL, LAYERS, STATES, VOCABULARY
from subjects.sglang.release import find


class NamedForward:
    """Runs batches in the place of a model.

    Args:
        runner: the release's ModelRunner. Its model's `forward` is replaced, and the kernels of its recurrent layers.
        pools: of the same engine.
        chunk: tokens between two states that a prefill keeps.
    """

    def __init__(self, runner: Any, pools: Pools, chunk: int) -> None:
        self.runner, self.pools = runner, pools
        self.linear = runner.attn_backend.linear_attn_backend
        self.is_mamba2 = type(self.linear).__name__.startswith("Mamba2")
        self.kernels = (Mamba2Kernels if self.is_mamba2 else NamedKernels)(chunk, self.linear.pad_slot_id)
        self.rows: list[ForwardRow] = []
        """Of the forward that ran last."""
        self.names: Sequence[str] = ()
        """The requests of the batch that is run."""
        self.drafts = 0
        """Drafts of each row of the forward that ran last."""
        dispatcher = getattr(self.linear, "kernel_dispatcher", None)
        if dispatcher is not None:
            for name in ("extend", "decode", "verify", "tree_verify"):
                setattr(dispatcher, f"{name}_kernel", self.kernels)
            dispatcher.supports_packed_decode = False
        runner.model.forward = self.run
        install_kernels(self.kernels)
        self.kernels.install()

    def run(self, input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        """A batch: what each row reads is kept in `rows`; the logits say each row's next token."""
        tokens = input_ids.tolist()
        verifies = forward_batch.forward_mode.is_target_verify()
        self.drafts = forward_batch.spec_info.draft_token_num - 1 if verifies else 0
        lengths = [1 + self.drafts] * len(self.names) if verifies else _lengths(forward_batch)
        starts = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        self.rows = [
            ForwardRow(name, tuple(tokens[first : first + length]))
            for name, first, length in zip(self.names, starts, lengths, strict=False)
        ]
        for row, first, seen in zip(self.rows, starts, forward_batch.seq_lens.tolist(), strict=False):
            row.computed = seen - (0 if verifies else len(row.tokens))
            row.groups.append(_access(range(first, first + len(row.tokens))))
        if verifies and getattr(self.linear, "topk", 0) > 1:
            links = forward_batch.spec_info
            for at, row in enumerate(self.rows):
                children, siblings = links.retrieve_next_token[at], links.retrieve_next_sibling[at]
                row.parents = tuple(parents_of(children.tolist(), siblings.tolist()))
        last: list[int] = []
        for layer in range(LAYERS):
            if (layer + 1) % INTERVAL:
                last = self._recurrent(layer, forward_batch, tokens, starts)
            else:
                self._attention(layer, forward_batch, last)
        self._side_states([last[end - 1] for end in starts[1:]])
        ends = range(len(last)) if verifies else [start - 1 for start in starts[1:]]
        logits = self._logits([last[end] for end in ends])
        if self.runner.spec_algorithm.is_eagle():
            # A draft model would read them.
            logits.hidden_states = torch.zeros(len(tokens), 1)
        return logits

    def _recurrent(self, layer: int, batch: Any, tokens: Sequence[int], starts: Sequence[int]) -> list[int]:
        """Run a layer of the release; the state after each token, as it is computed from what is in memory."""
        module = self.runner.model.model.layers[layer]
        self.kernels.layer = layer
        pool = self.runner.req_to_token_pool.mamba2_layer_cache(layer)
        states: list[int] = []
        begun = begun_states(self.linear.forward_metadata, pool.temporal, layer)
        for row, before, first, end in zip(self.rows, begun, starts, starts[1:], strict=False):
            parents = row.parents or range(-1, end - first - 1)
            own = tokens[first:end]
            read = states_before(before, own, parents, self.kernels.weights)
            states += map(self.kernels.after, read, own)
        if self.is_mamba2:
            run_mixer(self.linear, layer, module.mamba, batch, states, tokens)
        else:
            attention = module.linear_attn.attn
            rows = columns_of(states, tokens, pool.conv[0].shape[1], layer)
            gates = torch.zeros(len(tokens), attention.num_v_heads)
            run = self.linear.forward_decode if batch.forward_mode.is_decode() else self.linear.forward_extend
            run(layer=attention, forward_batch=batch, mixed_qkv=rows, a=gates, b=gates)
        self._note()
        return states

    def _note(self) -> None:
        """Add what a layer read to the rows."""
        for row, (conv, window), (slot, state) in zip(
            self.rows, self.kernels.windows, self.kernels.read, strict=False
        ):
            seen = row.groups[0]
            row.groups[0] = GroupAccess(
                STATES,
                True,
                (conv, slot),
                (*seen.windows, window),
                (*seen.temporal, state),
                (slot,),
                seen.tokens,
            )

    def _side_states(self, states: Sequence[int]) -> None:
        """Add each row's side states to what it has read, and leave the state after its last token there."""
        slots = self.linear.forward_metadata.mamba_cache_indices.tolist() if self.pools.sides else ()
        for row, slot, state in zip(self.rows, slots, states, strict=False):
            sides = [side[slot] for side in self.pools.sides]
            seen = row.groups[0]
            read = [found for _, found in side_states(sides)] if row.computed else []
            row.groups[0] = replace(seen, temporal=(*seen.temporal, *read))
            for at, side in enumerate(sides):
                fill(side, state, LAYERS + at)

    def _attention(self, layer: int, batch: Any, states: Sequence[int]) -> None:
        """Write a key for each token, and read those before them."""
        pool = self.pools.keys.full_kv_pool
        number = self.pools.keys.full_attention_layer_id_mapping[layer]
        # As the release's attention asks for them: it waits there for copies from host memory.
        self.pools.keys.get_kv_buffer(layer)
        self._read_keys(batch, number)
        slots = batch.out_cache_loc[: len(states)]
        fill_rows(pool.k_buffer[number], slots, states, layer, "keys")
        fill_rows(pool.v_buffer[number], slots, states, layer, "values")

    def _read_keys(self, batch: Any, layer: int) -> None:
        table = self.runner.req_to_token_pool.req_to_token
        for row, index in zip(self.rows, batch.req_pool_indices.tolist(), strict=False):
            end = row.computed + len(row.tokens)
            used = table[index, :end].tolist()
            row.keys += tuple(self.pools.keys_at(used[: row.computed], layer))
            row.slots = tuple(used[row.computed :])

    def _logits(self, states: Sequence[int]) -> Any:
        logits = torch.zeros(len(states), self.runner.model_config.vocab_size)
        for row, state in enumerate(states):
            logits[row, next_token(state, VOCABULARY)] = 1.0
        return find("sglang.srt.layers.logits_processor:LogitsProcessorOutput")(next_token_logits=logits)


def _lengths(batch: Any) -> list[int]:
    if batch.forward_mode.is_decode():
        return [1] * batch.batch_size
    return [int(length) for length in batch.extend_seq_lens_cpu]


def _access(places: range) -> GroupAccess:
    return GroupAccess(STATES, True, (0, 0), (), (), (), tuple(places))


def install_kernels(kernels: NamedKernels) -> None:
    """Have the release's layers call these kernels, and copies that need no GPU."""
    gdn = names_in("sglang.srt.layers.attention.linear.gdn_backend")
    gdn["causal_conv1d_fn"] = kernels.convolve
    gdn["causal_conv1d_update"] = kernels.convolve_token
    gdn["fused_gdn_gating"] = lambda _, a, b, *__: (a, b)
    hybrid = names_in("sglang.srt.layers.attention.hybrid_linear_attn_backend")
    hybrid["track_mamba_states_all_layers"] = track_states
    hybrid["track_mamba_states_if_needed"] = track_layer_states
    install_host_parts()


def track_layer_states(
    conv: Any, temporal: Any, slots: Any, mask: Any, targets: Any, rows: int, **_: Any
) -> None:
    """As `track_states`, in one layer."""
    track_states(conv[None], temporal[None], slots, mask, targets, rows)


def track_states(
    conv: Any,
    temporal: Any,
    slots: Any,
    mask: Any,
    targets: Any,
    rows: int,
    *,
    check_freed_slots: bool = False,
) -> None:
    """Copy the states of the rows in `mask` to the slots that keep them, in all layers."""
    del check_freed_slots
    for row in range(rows):
        if mask[row] and slots[row] >= 0 and targets[row] >= 0:
            for states in (conv, temporal):
                states[:, targets[row]] = states[:, slots[row]]
