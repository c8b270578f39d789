"""Kernels of recurrences of a release, by the names of docs/recurrences.md.

What the release's layers do around a kernel is done here: states of prompts are gathered and written back, and an absent `D` is zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from statecheck.subject.subject import NotOffered, first_offered
from subjects.kit.gates import raw_gates
from subjects.kit.rows import decodes, gathered_states, keep_states

__all__ = ["Recurrences"]
_CONV = "vllm.model_executor.layers.mamba.ops.causal_conv1d"
_SSD = "vllm.model_executor.layers.mamba.ops.ssd_combined:mamba_chunk_scan_combined_varlen"
_SSM = "vllm.model_executor.layers.mamba.ops.mamba_ssm"
_FLA = ("vllm.third_party.flash_linear_attention.ops", "vllm.model_executor.layers.fla.ops")
_LIGHTNING = "vllm.model_executor.layers.lightning_attn"
NULL = 0


def _fla(place: str) -> Any:
    return first_offered(*(f"{package}.{place}" for package in _FLA))


@contextmanager
def launch_of_defaults(states: Any, entries: int) -> Iterator[None]:
    """Let the release launch as on a GPU that it has not tuned for, where it would ask for the GPU's name; a state has so many `entries`."""
    if states.is_cuda:
        yield
        return
    default = first_offered(f"{_SSM}:_get_default_ssm_launch_config")
    with first_offered(f"{_SSM}:override_ssm_config")(default(entries, False)):
        yield


def _longest(query_start_loc: Any) -> int:
    return int(query_start_loc.diff().max())


def _is_plain(query_start_loc: Any, num_accepted: Any) -> bool:
    """Whether each row is one token without drafts: layers then give a kernel no starts of rows."""
    return num_accepted is None and bool((query_start_loc.diff() == 1).all())


def _in_rows(
    operation: Any, inputs: dict[str, Any], states: Any, slots: Any, starts: Any, has_state: Any
) -> Any:
    """Call a chunked operation as a layer does: for rows with tokens, on gathered states that are written back."""
    there = (slots != NULL) & (starts.diff() > 0)
    out = torch.zeros_like(inputs["v"])
    rows = (starts.diff() > 0).nonzero().flatten()
    if not len(rows):
        return out
    # Rows without tokens lie nowhere: the rows around them are the same without them.
    cut = torch.cat([starts[:1], starts[1:][rows]]).long()
    before, tokens = gathered_states(states, slots[rows], (has_state & there)[rows]), int(cut[-1])
    given = {name: value[None, :tokens] for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    rest = {name: value for name, value in inputs.items() if name not in given}
    # In float16 with the kernel for norms that an environment variable asks for.
    chosen = {"USE_DEFAULT_FLA_NORM": int(out.dtype == torch.float16)}
    with patch.dict(_fla("l2norm:l2norm_fwd").__globals__, chosen):
        found, after = operation(
            **given, **rest, initial_state=before, output_final_state=True, cu_seqlens=cut
        )
    out[:tokens] = found[0]
    keep_states(states, after, slots[rows], there[rows])
    return out


def _with_raw_gates(
    inputs: tuple[Any, Any, Any],
    g: Any,
    beta: Any,
    scale: float,
    qk_l2norm: bool,
    states: Any,
    slots: Any,
    starts: Any,
    num_accepted: Any,
) -> Any:
    """The gated delta rule with gates that the kernel computes: without drafts on packed inputs, the first token of each row, the second, and so on."""
    raw, logs, offsets, shares = raw_gates(g, beta)
    if num_accepted is not None:
        found, _ = _fla("fused_sigmoid_gating:fused_sigmoid_gating_delta_rule_update")(
            logs,
            raw,
            shares,
            offsets,
            *(tensor[None] for tensor in inputs),
            scale=scale,
            initial_state=states,
            cu_seqlens=starts,
            ssm_state_indices=slots,
            num_accepted_tokens=num_accepted,
            use_qk_l2norm_in_kernel=qk_l2norm,
        )
        return found.reshape(inputs[2].shape)
    out, update = (
        torch.zeros_like(inputs[2]),
        _fla("fused_recurrent:fused_recurrent_gated_delta_rule_packed_decode"),
    )
    for tokens, named in decodes(slots, starts):
        mixed = torch.cat([tensor[tokens].flatten(1) for tensor in inputs], 1)
        made = mixed.new_empty(len(named), 1, *out.shape[1:])
        gates = raw[tokens], shares[tokens], logs, offsets
        update(mixed, *gates, scale, states, made, named, use_qk_l2norm_in_kernel=qk_l2norm)
        out[tokens] = made[:, 0]
    return out


def _slopes(v: Any, g: Any) -> Any:
    """What lightning attention calls its decays: the opposite of their logarithm, by head."""
    return v.new_zeros(v.shape[1], dtype=torch.float32) if g is None else -g[0]


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
        num_accepted: Any,
    ) -> Any:
        """Causal convolution for decodes."""
        lengths = query_start_loc.diff()
        tokens = lengths[(slots != NULL) & (lengths > 0)]
        if num_accepted is None and bool((tokens < lengths.max()).any()):
            # A row that is shorter than the longest row, or than a row of padding, keeps its old window: docs/findings/vllm-conv-update-of-short-rows.md.
            raise NotOffered("causal_conv1d_update of rows of several lengths without drafts")
        drafts = states.shape[2] - weight.shape[1] + 2
        out = torch.zeros_like(x, memory_format=torch.contiguous_format)
        update = first_offered(f"{_CONV}:causal_conv1d_update")
        if _is_plain(query_start_loc, num_accepted):
            rows = slice(len(slots))
            update(x[rows], states, weight, bias, activation, conv_state_indices=slots, out=out[rows])
            return out
        return update(
            x,
            states,
            weight,
            bias,
            activation,
            conv_state_indices=slots,
            num_accepted_tokens=num_accepted,
            query_start_loc=query_start_loc,
            max_query_len=int(lengths.max()) if num_accepted is None else drafts,
            out=out,
        )

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
        """Causal convolution for prompts. Where no row is padding there is what builders prepare for layers, or else the function prepares it."""
        if weight.shape[1] > 4:
            raise NotOffered("causal_conv1d_fn of a width of more than 4, which its kernel has no branch for")
        metadata = None
        if bool((slots != NULL).all()):
            prepare = first_offered("vllm.v1.attention.backends.utils:compute_causal_conv1d_metadata")
            tables = prepare(query_start_loc.cpu(), device=x.device)
            names = "nums_dict", "batch_ptr", "token_chunk_offset_ptr"
            metadata = SimpleNamespace(**dict(zip(names, tables, strict=True)))
        found = first_offered(f"{_CONV}:causal_conv1d_fn")(
            x.T,
            weight,
            bias,
            states,
            query_start_loc,
            cache_indices=slots,
            has_initial_state=has_state,
            activation=activation,
            null_block_id=NULL,
            metadata=metadata,
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
        num_accepted: Any,
    ) -> Any:
        """Selective state update.

        In bfloat16 drafts of one token each as a layer with prefix caching: it names the slot that is read, and the slot that is written.
        """
        out = torch.zeros_like(x, memory_format=torch.contiguous_format)
        nothing = torch.zeros(A.shape[:2], device=x.device)
        if dt_bias is None:
            dt_bias = nothing[:, :1].expand(A.shape[:2]) if A.stride(-1) == 0 else nothing
        target = None
        if x.dtype == torch.bfloat16 and num_accepted is not None and _is_plain(query_start_loc, None):
            read, first = slots.gather(1, num_accepted[:, None].long() - 1)[:, 0], slots[:, 0]
            # Where a layer reads a slot, it has one to write.
            if not ((read != NULL) & (first == NULL)).any():
                slots, target, num_accepted = read, first, None
        is_plain = _is_plain(query_start_loc, num_accepted)
        tokens = slice(len(slots) if is_plain else None)
        with launch_of_defaults(states, states.shape[-1]):
            first_offered(f"{_SSM}:selective_state_update")(
                states,
                x[tokens],
                dt[tokens],
                A,
                B[tokens],
                C[tokens],
                nothing if D is None else D,
                dt_bias,
                z=None if z is None else z[tokens],
                dt_softplus=dt_softplus,
                state_batch_indices=slots,
                dst_state_batch_indices=target,
                out=out[tokens],
                num_accepted_tokens=num_accepted,
                cu_seqlens=None if is_plain else query_start_loc,
            )
        return out

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
        """Mamba-2 in chunks, which begin with each row. The kernel writes states to slots, if no row is padding."""
        out = torch.zeros_like(x, memory_format=torch.contiguous_format)
        lengths = query_start_loc.diff()
        rows = (lengths > 0).nonzero().flatten()
        if not len(rows):
            return out
        held, there = slots[rows], (slots != NULL)[rows]
        starts, of_rows, last = [0], list[int](), list[int]()
        for number, length in enumerate(lengths[rows].tolist()):
            for at in range(0, length, chunk_size):
                starts.append(starts[-1] + min(chunk_size, length - at))
                of_rows.append(number)
            last.append(len(of_rows) - 1)
        begun = has_state[rows] & there
        tokens, whole = starts[-1], bool(there.all())

        def int32(numbers: list[int]) -> Any:
            return torch.tensor(numbers, dtype=torch.int32, device=x.device)

        after = first_offered(_SSD)(
            *(tensor[:tokens] for tensor in (x, dt)),
            A,
            *(tensor[:tokens] for tensor in (B, C)),
            chunk_size,
            cu_seqlens=torch.cat([query_start_loc[:1], query_start_loc[1:][rows]]),
            cu_chunk_seqlens=int32(starts),
            last_chunk_indices=int32(last),
            seq_idx=int32(of_rows),
            out=out[:tokens],
            # As a layer does: where a head has one, that of each head alone.
            D=D[:, 0] if D is not None and D.stride(-1) == 0 else D,
            z=None if z is None else z[:tokens],
            dt_bias=dt_bias,
            # As a layer does: only where a row has a state are there states to begin with.
            initial_states=gathered_states(states, held, begun) if begun.any() else None,
            dt_softplus=dt_softplus,
            state_dtype=states.dtype,
            final_states_out=states if whole else None,
            final_state_indices=(slots if len(rows) == len(slots) else slots[rows]) if whole else None,
        )
        if not whole:
            keep_states(states, after, held, there)
        return out

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
        num_accepted: Any,
    ) -> Any:
        """The gated delta rule, token by token. The kernel writes the state behind each token to a slot of its own.

        In bfloat16 by the kernels that take raw gates: that of packed decodes, and that of drafts.
        """
        longest = _longest(query_start_loc)
        if q.dtype == torch.bfloat16:
            rows = states, slots, query_start_loc
            return _with_raw_gates((q, k, v), g, beta, scale, qk_l2norm, *rows, num_accepted)
        if num_accepted is None and longest > 1:
            slots = slots[:, None].repeat(1, longest)
        found, _ = _fla("fused_recurrent:fused_recurrent_gated_delta_rule")(
            *(tensor[None] for tensor in (q, k, v, g, beta)),
            scale,
            states,
            True,
            cu_seqlens=query_start_loc,
            ssm_state_indices=slots,
            num_accepted_tokens=num_accepted,
            use_qk_l2norm_in_kernel=qk_l2norm,
        )
        return found.reshape(v.shape)

    @staticmethod
    def gdn_chunk(
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
        has_state: Any,
    ) -> Any:
        """The gated delta rule in chunks."""
        if q.dtype == torch.float32:
            raise NotOffered("chunk_gated_delta_rule of float32")
        inputs = {
            "q": q,
            "k": k,
            "v": v,
            "g": g,
            "beta": beta,
            "scale": scale,
            "use_qk_l2norm_in_kernel": qk_l2norm,
        }
        operation = _fla("chunk:chunk_gated_delta_rule")
        return _in_rows(operation, inputs, states, slots, query_start_loc, has_state)

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
        num_accepted: Any,
    ) -> Any:
        """The delta rule with a gate for each channel, token by token."""
        if num_accepted is not None:
            raise NotOffered("fused_recurrent_kda with drafts")
        if k.shape != v.shape or k.shape[-1] & (k.shape[-1] - 1):
            raise NotOffered("fused_recurrent_kda of keys that are not like values, or of no power of two")
        longest = _longest(query_start_loc)
        found, _ = _fla("kda:fused_recurrent_kda")(
            *(tensor[None] for tensor in (q, k, v, g, beta)),
            scale,
            states,
            True,
            qk_l2norm,
            cu_seqlens=query_start_loc,
            ssm_state_indices=slots[:, None].repeat(1, longest) if longest > 1 else slots,
        )
        return found.reshape(v.shape)

    @staticmethod
    def kda_chunk(
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
        has_state: Any,
    ) -> Any:
        """The delta rule with a gate for each channel, in chunks. The kernel leaves outputs where values were."""
        # With the norm, which layers ask for, the release makes queries and keys dense; without it kernels read strided ones as dense ones.
        inputs = {
            "q": q if qk_l2norm else q.contiguous(),
            "k": k if qk_l2norm else k.contiguous(),
            "v": v.clone(),
            "g": g,
            "beta": beta,
            "scale": scale,
            "use_qk_l2norm_in_kernel": qk_l2norm,
        }
        operation = _fla("kda:chunk_kda")
        if q.dtype == torch.bfloat16:
            # As the layers of Kimi Linear: with gates that the kernel computes.
            del inputs["g"]
            inputs["raw_g"], logs, offsets, _ = raw_gates(g, beta)
            parameters = {"A_log": logs, "g_bias": offsets.flatten()}
            operation = partial(_fla("kda:chunk_kda_with_fused_gate"), **parameters)
        return _in_rows(operation, inputs, states, slots, query_start_loc, has_state)

    @staticmethod
    def linear_recurrent(
        q: Any,
        k: Any,
        v: Any,
        g: Any,
        scale: float,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        _num_accepted: Any,
    ) -> Any:
        """Lightning attention, a token of each row at a time: keys first, and with -1 for the slot of a row of padding."""
        out, pool = torch.zeros_like(v), states.transpose(-1, -2)
        decode = first_offered(f"{_LIGHTNING}:linear_decode_forward_triton")
        for tokens, named in decodes(slots.where(slots != NULL, -1), query_start_loc):
            inputs = (tensor[tokens].unsqueeze(2).contiguous() for tensor in (q, k, v))
            made = decode(*inputs, pool, _slopes(v, g), named)
            out[tokens] = scale * made.reshape(-1, *out.shape[1:])
        return out

    @staticmethod
    def linear_chunk(
        q: Any,
        k: Any,
        v: Any,
        g: Any,
        scale: float,
        states: Any,
        slots: Any,
        query_start_loc: Any,
        has_state: Any,
    ) -> Any:
        """Lightning attention in chunks, a row at a time, on a state that is written back."""
        out = torch.zeros_like(v)
        for row in ((slots != NULL) & (query_start_loc.diff() > 0)).nonzero().flatten().tolist():
            tokens, slot = slice(*query_start_loc[row : row + 2].tolist()), int(slots[row])
            before = states[slot : slot + 1] if has_state[row] else torch.zeros_like(states[slot : slot + 1])
            inputs = (tensor[tokens].transpose(0, 1)[None] for tensor in (q, k, v))
            attention = first_offered(f"{_LIGHTNING}:lightning_attention")
            found, after = attention(*inputs, _slopes(v, g), kv_history=before.transpose(-1, -2))
            out[tokens] = scale * found[0].transpose(0, 1)
            states[slot] = after[0, :, -1].transpose(-1, -2)
        return out
