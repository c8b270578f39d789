"""The release's kernels of recurrences, by the names of docs/recurrences.md. Its kernels for decodes take a token of each row.

Its chunked kernels of GDN and KDA are not offered: they use block pointers, which Triton 3.9 has no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from statecheck.subject.subject import first_offered
from subjects.kit.gates import raw_gates
from subjects.sglang.release import RELEASE_NAME

__all__ = ["WITHOUT_DRAFTS", "Recurrences"]
assert RELEASE_NAME, "the release is looked at first, so that its packages can be imported"
_CONV = "sglang.kernels.ops.mamba.causal_conv1d_triton"
_SSM = "sglang.kernels.ops.mamba.triton_ops.mamba_ssm:selective_state_update"
_SSD = "sglang.kernels.ops.mamba.triton_ops.ssd_combined:mamba_chunk_scan_combined"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata"
_FLA = "sglang.kernels.ops.attention.fla.fused_recurrent"
_GATING = "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update"
WITHOUT_DRAFTS = ("conv_update", "ssm_update", "gdn_recurrent", "kda_recurrent")
"""Drafts go through other arguments, which name buffers of their own and no slots."""


@contextmanager
def _on_device(tensor: Any) -> Iterator[None]:
    """Let the release make the device of a tensor the current one, where torch has nothing of that name for a CPU."""
    module: Any = torch.get_device_module(tensor.device)
    if hasattr(module, "device"):
        yield
        return
    module.device = nullcontext
    try:
        yield
    finally:
        del module.device


def _decodes(slots: Any, query_start_loc: Any) -> Iterator[tuple[Any, Any]]:
    """For the first token of each row, the second, and so on: their places, and the slots of their rows."""
    starts, lengths = query_start_loc[:-1], query_start_loc.diff()
    if (lengths == 1).all():
        # Nothing is gathered, so that strides are those of the caller.
        yield slice(len(slots)), slots
        return
    for at in range(int(lengths.max())):
        there = lengths > at
        yield (starts[there] + at).long(), slots[there]


def _packed(
    name: str,
    inputs: tuple[Any, Any, Any],
    g: Any,
    beta: Any,
    scale: float,
    qk_l2norm: bool,
    states: Any,
    slots: Any,
    query_start_loc: Any,
) -> Any:
    """Decodes on queries, keys and values as a convolution leaves them, with raw gates."""
    out, update = torch.zeros_like(inputs[2]), first_offered(f"{_FLA}:{name}")
    raw, logs, offsets, shares = raw_gates(g, beta)
    for tokens, named in _decodes(slots, query_start_loc):
        mixed = torch.cat([tensor[tokens].flatten(1) for tensor in inputs], 1)
        made = mixed.new_empty(len(named), 1, *out.shape[1:])
        gates = raw[tokens].flatten(1), shares[tokens], logs, offsets.flatten()
        update(mixed, *gates, scale, states, made, named, use_qk_l2norm_in_kernel=qk_l2norm)
        out[tokens] = made[:, 0]
    return out


def _gating(
    inputs: tuple[Any, Any, Any],
    g: Any,
    beta: Any,
    scale: float,
    qk_l2norm: bool,
    states: Any,
    slots: Any,
    query_start_loc: Any,
) -> Any:
    """Rows of tokens with raw gates; the kernel reads and writes slots."""
    out, (raw, logs, offsets, shares) = torch.zeros_like(inputs[2]), raw_gates(g, beta)
    tokens = int(query_start_loc[-1])
    q, k, v = (tensor[None] for tensor in inputs)
    if tokens:
        gates = {"A_log": logs, "a": raw[None].flatten(2), "dt_bias": offsets.flatten(), "b": shares[None]}
        with _on_device(v):
            found = first_offered(_GATING)(
                **gates,
                softplus_beta=1.0,
                softplus_threshold=20.0,
                q=q,
                k=k,
                v=v,
                initial_state_source=states,
                # The kernel takes no stride of the slots, and the layers' slots lie behind each other.
                initial_state_indices=slots.contiguous(),
                scale=scale,
                use_qk_l2norm_in_kernel=qk_l2norm,
                cu_seqlens=query_start_loc,
                is_kda=g.dim() == 3,
            )
        out[:tokens] = found.reshape(out.shape)[:tokens]
    return out


class Recurrences:
    """The functions, by what they compute."""

    @staticmethod
    def conv_update(
        x: Any,
        weight: Any,
        bias: Any,
        activation: Any,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        _num_accepted: Any,
    ) -> Any:
        """Causal convolution for decodes."""
        out, update = torch.zeros_like(x), first_offered(f"{_CONV}:causal_conv1d_update")
        for tokens, named in _decodes(slots, query_start_loc):
            out[tokens] = update(x[tokens], states, weight, bias, activation, conv_state_indices=named)
        return out

    @staticmethod
    def conv_prefill(
        x: Any,
        weight: Any,
        bias: Any,
        activation: Any,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        has_state: Any,
    ) -> Any:
        """Causal convolution for prompts."""
        found = first_offered(f"{_CONV}:causal_conv1d_fn")(
            x.T,
            weight,
            bias,
            states,
            query_start_loc,
            query_start_loc.diff().tolist(),
            # The kernel takes no stride of the slots, and the layers' slots lie behind each other.
            cache_indices=slots.contiguous(),
            has_initial_state=has_state,
            activation=activation,
        )
        return found.T.contiguous()

    @staticmethod
    def ssm_update(
        x: Any,
        dt: Any,
        A: Any,
        B: Any,
        C: Any,
        D: Any,
        z: Any,
        dt_bias: Any,
        dt_softplus: bool,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        _num_accepted: Any,
    ) -> Any:
        """Selective state update."""
        result, update = torch.zeros_like(x), first_offered(_SSM)
        # The release raises a TypeError where one of them is None, its default: docs/findings/sglang-state-update-without-d.md.
        nothing = torch.zeros(A.shape[:2], device=x.device)
        D = nothing if D is None else D
        if dt_bias is None:
            dt_bias = nothing[:, :1].expand(A.shape[:2]) if A.stride(-1) == 0 else nothing
        for tokens, named in _decodes(slots, query_start_loc):
            out = torch.zeros_like(x[tokens])
            times = dt[tokens]
            # One time for a head is a view with stride 0, from which the kernel sees that there is one.
            times = times[..., :1].expand(times.shape) if dt.stride(-1) == 0 else times
            rest = {"z": None if z is None else z[tokens], "dt_bias": dt_bias, "dt_softplus": dt_softplus}
            inputs = x[tokens], times, A, B[tokens], C[tokens], D
            with _on_device(x):
                # The kernel takes no stride of the slots, and the layers' slots lie behind each other.
                update(states, *inputs, **rest, state_batch_indices=named.contiguous(), out=out)
            result[tokens] = out
        return result

    @staticmethod
    def gdn_recurrent(
        q: Any,
        k: Any,
        v: Any,
        g: Any,
        beta: Any,
        scale: float,
        qk_l2norm: bool,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        _num_accepted: Any,
    ) -> Any:
        """The gated delta rule, token by token.

        In bfloat16 by the kernel of packed decodes, in float16 by that of drafts, which both take raw gates; in float32 on gathered states that are written back.
        """
        raw = (q, k, v), g, beta, scale, qk_l2norm, states, slots, query_start_loc
        if q.dtype == torch.bfloat16:
            return _packed("fused_recurrent_gated_delta_rule_packed_decode", *raw)
        if q.dtype == torch.float16:
            return _gating(*raw)
        there = (slots >= 0) & (query_start_loc.diff() > 0)
        before = states[slots.clamp(min=0).long()].contiguous()
        tokens, out = int(query_start_loc[-1]), torch.zeros_like(v)
        if tokens:
            with _on_device(v):
                found, after = first_offered(f"{_FLA}:fused_recurrent_gated_delta_rule")(
                    *(tensor[None, :tokens] for tensor in (q, k, v, g, beta)),
                    scale=scale,
                    initial_state=before,
                    output_final_state=True,
                    cu_seqlens=query_start_loc.long(),
                    use_qk_l2norm_in_kernel=qk_l2norm,
                )
            out[:tokens] = found.reshape(out[:tokens].shape)
            states[slots[there].long()] = after[there].to(states.dtype)
        return out

    @staticmethod
    def kda_recurrent(
        q: Any,
        k: Any,
        v: Any,
        g: Any,
        beta: Any,
        scale: float,
        qk_l2norm: bool,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        _num_accepted: Any,
    ) -> Any:
        """The delta rule with a gate for each channel: in bfloat16 by the kernel of packed decodes, else by that of drafts."""
        raw = (q, k, v), g, beta, scale, qk_l2norm, states, slots, query_start_loc
        if q.dtype == torch.bfloat16:
            return _packed("fused_recurrent_kda_packed_decode", *raw)
        return _gating(*raw)

    @staticmethod
    def ssd_prefill(
        x: Any,
        dt: Any,
        A: Any,
        B: Any,
        C: Any,
        D: Any,
        z: Any,
        dt_bias: Any,
        dt_softplus: bool,
        chunk_size: int,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        has_state: Any,
    ) -> Any:
        """Mamba-2 in chunks, which go over all rows of a batch, and are cut where a row begins.

        As a layer does: rows have tokens and are no padding, states are gathered and written back, and there are states to begin with only where a row has one.
        """
        out, lengths = torch.zeros_like(x, memory_format=torch.contiguous_format), query_start_loc.diff()
        rows = ((slots >= 0) & (lengths > 0)).nonzero().flatten()
        if not len(rows):
            return out
        tokens = torch.cat(
            [torch.arange(query_start_loc[row], query_start_loc[row + 1], device=x.device) for row in rows]
        )
        # Where no token is left out, strides are those of the caller.
        inputs = {
            name: tensor[None] if len(tokens) == len(tensor) else tensor[None, tokens]
            for name, tensor in (("x", x), ("dt", dt), ("B", B), ("C", C), ("z", z))
            if tensor is not None
        }
        starts = torch.nn.functional.pad(lengths[rows].cumsum(0), (1, 0)).int()
        numbers = torch.arange(len(rows), dtype=torch.int32, device=x.device)
        held, cut = slots[rows].long(), {"seq_idx": numbers.repeat_interleave(lengths[rows])[None]}
        if has_state[rows].any():
            indices = first_offered(_METADATA)._query_start_loc_to_chunk_indices_offsets
            cut["chunk_indices"], cut["chunk_offsets"] = indices(starts, chunk_size, len(tokens))
            cut["initial_states"] = states[held].contiguous()
            cut["initial_states"][~has_state[rows]] = 0
        # With `z` the release asserts that the output has the strides of `empty_like(x)`, which those of one token may be.
        found = torch.empty_like(inputs["x"])
        with _on_device(x):
            states[held] = first_offered(_SSD)(
                **inputs,
                **cut,
                A=A,
                chunk_size=chunk_size,
                # As a layer does: where a head has one, that of each head alone.
                D=D[:, 0] if D is not None and D.stride(-1) == 0 else D,
                dt_bias=dt_bias,
                cu_seqlens=starts,
                dt_softplus=dt_softplus,
                out=found,
                return_varlen_states=True,
                state_dtype=states.dtype,
            )
        out[tokens] = found[0]
        return out
