"""The release's kernels of recurrences, by the names of docs/recurrences.md. Its kernels for decodes take a token of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import itemgetter
from typing import Any

import torch

from statecheck.subject.subject import NotOffered, first_offered
from subjects.kit.gates import raw_gates
from subjects.kit.rows import decodes, gathered_states, keep_states
from subjects.sglang.release import RELEASE_NAME

__all__ = ["Recurrences"]
assert RELEASE_NAME, "the release is looked at first, so that its packages can be imported"
_CONV = "sglang.kernels.ops.mamba.causal_conv1d_triton"
_GATED_CONV = "sglang.kernels.ops.mamba.lfm_short_conv"
_SSM = "sglang.kernels.ops.mamba.triton_ops.mamba_ssm:selective_state_update"
_SSD = "sglang.kernels.ops.mamba.triton_ops.ssd_combined:mamba_chunk_scan_combined"
_METADATA = "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata"
_FLA = "sglang.kernels.ops.attention.fla.fused_recurrent"
_CHUNKS = "sglang.kernels.ops.attention.fla.chunk:chunk_gated_delta_rule"
_KDA_CHUNKS = "sglang.kernels.ops.attention.fla.kda:chunk_kda"
_SEGMENTS = "sglang.kernels.ops.attention.linear.seg_la"
_TILE_OF_KEYS = 128
_LIGHTNING = "sglang.kernels.ops.attention.linear.lightning_attn:linear_decode_forward_triton"
_STEEPEST = -5.4
"""The logarithm of 2**126, by 16 tokens."""
_STEEPEST_OF_SEGMENTS = -2.6
"""The logarithm of 2**116, by 31 tokens: sums over keys are larger than an inverse."""
_GATING = "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update"


def _require_branch(weight: Any) -> None:
    if weight.shape[1] > 4:
        raise NotOffered("a convolution of a width of more than 4, which its kernel has no branch for")


def _gated_kernel(name: str, x: Any, weight: Any, bias: Any, activation: Any) -> Any:
    """The release's kernel of that name for a convolution as LFM2's layers have; None for others, and where the release has none."""
    if x.dtype != torch.bfloat16 or weight.shape[1] != 3 or bias is not None or activation is not None:
        return None
    try:
        return first_offered(f"{_GATED_CONV}:{name}")
    except NotOffered:
        return None


def _gated(kernel: Any, x: Any, weight: Any, states: Any, *rows: Any) -> Any:
    """Call a kernel of LFM2, with weights and slots that lie behind each other, as those of its layers: it takes no stride of them.

    The kernel multiplies with gates before and behind the convolution: here these are ones.
    """
    ones = torch.ones_like(x)
    dense = [given.contiguous() if isinstance(given, torch.Tensor) else given for given in rows]
    return kernel(ones, ones, x, weight.contiguous(), states, *dense)


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


def _drafted(slots: Any, query_start_loc: Any, num_accepted: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Rows of the same number of tokens, as steps with drafts have: the places of their tokens, which rows they are, and a number in a buffer for each."""
    lengths = query_start_loc.diff()
    for length in lengths[(lengths > 0) & (_read(slots, num_accepted) >= 0)].unique().tolist():
        rows = (lengths == length).nonzero().flatten()
        places = query_start_loc[:-1][rows].long()[:, None] + torch.arange(length, device=slots.device)
        yield places, rows, torch.arange(len(rows), dtype=torch.int32, device=slots.device).flip(0)


def _tokens(tensor: Any, places: Any) -> Any:
    """The tokens of rows: of rows that lie behind each other a view, as layers have it, with the strides of the caller, if that of a row is an int32."""
    places, shape = places.flatten(), places.shape
    if (places.diff() == 1).all() and shape[1] * tensor.stride(0) < 2**31:
        return tensor[places[0] : places[-1] + 1].unflatten(0, shape)
    return tensor[places].unflatten(0, shape)


def _read(slots: Any, num_accepted: Any) -> Any:
    """The slots that rows with drafts read: those of their last accepted tokens."""
    return slots.gather(1, num_accepted[:, None].long() - 1)[:, 0]


def _verified(states: Any, x: Any, slots: Any, query_start_loc: Any, num_accepted: Any) -> Iterator[Any]:
    """For rows of the same number of tokens: their places, the slots that they read, and a buffer that is copied to the slots of drafts afterwards."""
    for places, rows, numbers in _drafted(slots, query_start_loc, num_accepted):
        kept = states.new_full((*places.shape, *states.shape[1:]), float("nan"))
        yield (
            places,
            _read(slots, num_accepted)[rows],
            {
                "disable_state_update": True,
                "intermediate_states_buffer": kept,
                "intermediate_state_indices": numbers,
                "cache_steps": places.shape[1],
                "retrieve_parent_token": _chain(x[places], states),
            },
        )
        written = slots[rows, : places.shape[1]]
        # As the release writes that behind the last accepted draft.
        keep_states(states, kept.flip(0), written, written >= 0)


def _chain(tokens: Any, states: Any) -> Any:
    """The parent of each draft in a tree that is a chain, for a part of the calls: a draft then begins with its parent's state in the buffer, which is rounded if it is not float32."""
    if tokens.dtype != torch.bfloat16 or states.dtype != torch.float32:
        return None
    return torch.arange(-1, tokens.shape[1] - 1, device=tokens.device).clamp(min=0).repeat(len(tokens), 1)


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
    for tokens, named in decodes(slots, query_start_loc):
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
    num_accepted: Any = None,
) -> Any:
    """Rows of tokens with raw gates; the kernel reads and writes slots, or with drafts a buffer with the state behind each."""
    out, (raw, logs, offsets, shares) = torch.zeros_like(inputs[2]), raw_gates(g, beta)
    tokens, lengths = int(query_start_loc[-1]), query_start_loc.diff()
    q, k, v = (tensor[None] for tensor in inputs)
    named, verified, kept = slots, {}, None
    if num_accepted is not None:
        named, columns = _read(slots, num_accepted), slots.shape[1]
        numbers = torch.arange(len(slots), dtype=torch.int32, device=slots.device).flip(0)
        kept = states.new_full((len(slots), columns, *states.shape[1:]), float("nan"))
        verified = {
            "disable_state_update": True,
            "intermediate_states_buffer": kept,
            "intermediate_state_indices": numbers,
            "cache_steps": columns,
            "retrieve_parent_token": _chain(q.new_empty(len(slots), columns), states),
        }
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
                initial_state_indices=named.contiguous(),
                scale=scale,
                use_qk_l2norm_in_kernel=qk_l2norm,
                cu_seqlens=query_start_loc,
                is_kda=g.dim() == 3,
                **verified,
            )
        out[:tokens] = found.reshape(out.shape)[:tokens]
        if kept is not None:
            is_token = torch.arange(slots.shape[1], device=slots.device) < lengths[:, None]
            keep_states(states, kept.flip(0), slots, is_token & (slots >= 0))
    return out


def _in_chunks(
    name: str, inputs: dict[str, Any], states: Any, slots: Any, starts: Any, has_state: Any, **options: Any
) -> Any:
    """Call a chunked operation as a layer does: for rows with tokens, in the slots of which new ones are zero. The kernel leaves rows of padding out."""
    out = torch.zeros_like(inputs["v"])
    rows = (starts.diff() > 0).nonzero().flatten()
    if not len(rows):
        return out
    # Rows without tokens lie nowhere: the rows around them are the same without them.
    cut = torch.cat([starts[:1], starts[1:][rows]]).long()
    named, tokens = slots[rows], int(cut[-1])
    there = named >= 0
    states[named[there & ~has_state[rows]].long()] = 0
    pool, places = states, named
    if name == _CHUNKS and not states.is_contiguous():
        # Layers of GDN gather states of a pool with gaps and write them back, since the function makes a dense copy of it.
        pool = gathered_states(states, named, there)
        places = torch.arange(len(rows), dtype=named.dtype, device=named.device).where(there, -1)
    with _on_device(out):
        found = first_offered(name)(
            **{argument: tensor[None, :tokens] for argument, tensor in inputs.items()},
            **options,
            initial_state=pool,
            # The kernel takes no stride of the slots, and the layers' slots lie behind each other.
            initial_state_indices=places.contiguous(),
            cu_seqlens=cut,
        )
    if pool is not states:
        keep_states(states, pool, named, there)
    out[:tokens] = (found[0] if isinstance(found, tuple) else found).reshape(out[:tokens].shape)
    return out


def _segments(
    inputs: Sequence[Any],
    g: Any,
    scale: float,
    states: Any,
    slots: Any,
    lengths: Any,
    has_state: Any,
    **drafts: Any,
) -> Any:
    """Lightning attention by the kernels of `seg_la`, the layers' default, for rows that all have tokens: those of prompts, or of decodes where each row has one, or drafts with a buffer of the state behind each."""
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    # The kernels take no stride of the slots, and the layers' slots lie behind each other.
    meta = first_offered(f"{_SEGMENTS}:SegLaMeta")(
        len(slots), None, ends, slots.contiguous(), lengths, has_state
    )
    # Queries and keys come from a norm, and values are a part of a larger projection.
    q, k, v = inputs[0].contiguous(), inputs[1].contiguous(), inputs[2]
    attention = first_offered(f"{_SEGMENTS}:seg_la_fwd")
    return attention(q, k, v, states.transpose(-1, -2), _slopes(v, g), meta, softmax_scale=scale, **drafts)


def _linear_decode(inputs: Sequence[Any], g: Any, scale: float, states: Any, slots: Any) -> Any:
    """Lightning attention for a token of each row, with keys first: by the layers' default kernel, which has tiles of 128 keys, or else by that of `linear_backend: "minimax"`."""
    v = inputs[2]
    if v.shape[-1] == _TILE_OF_KEYS:
        ones = torch.ones_like(slots)
        return _segments(inputs, g, scale, states, slots, ones, ones)
    inputs = [tensor.unsqueeze(2).contiguous() for tensor in inputs]
    # The kernel takes no stride of the slots, and the layers' slots lie behind each other.
    made = first_offered(_LIGHTNING)(*inputs, states.transpose(-1, -2), _slopes(v, g), slots.contiguous())
    return scale * made.reshape(v.shape)


def _linear_drafts(
    inputs: Sequence[Any], g: Any, scale: float, states: Any, slots: Any, numbers: Any
) -> tuple[Any, Any]:
    """Lightning attention for drafts of rows, `[N, T, H, D]`, as in a step that verifies them, and the state behind each. The release verifies no row of one token: it is a decode on a copy of its state."""
    rows, columns, *_ = inputs[2].shape
    flat = [tensor.flatten(0, 1) for tensor in inputs]
    if columns == 1:
        kept = gathered_states(states.transpose(-1, -2), slots, slots >= 0).transpose(-1, -2)
        named = numbers.flip(0).where(slots >= 0, -1)
        return _linear_decode(flat, g, scale, kept, named), kept[:, None]
    buffer = states.new_full((rows, columns, *states.shape[1:]), float("nan"))
    lengths = torch.full_like(slots, columns)
    drafts = {"caches": buffer, "cache_indices": numbers}
    found = _segments(flat, g, scale, states, slots, lengths, torch.ones_like(slots), **drafts)
    return found, buffer.flip(0).transpose(-1, -2)


def _slopes(v: Any, g: Any) -> Any:
    """What the kernels of lightning attention call decays: the opposite of their logarithm, by head."""
    return v.new_zeros(v.shape[1]) if g is None else -g[0]


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
        """Causal convolution for decodes.

        Drafts as in a step that verifies them, with a buffer of the window behind each, in bfloat16, and otherwise with accepted counts.
        """
        _require_branch(weight)
        out, update = torch.zeros_like(x), first_offered(f"{_CONV}:causal_conv1d_update")
        if num_accepted is not None:
            kept, slots = weight.shape[1] - 1, slots[:, None]
            for places, rows, numbers in _drafted(slots, query_start_loc, torch.ones_like(num_accepted)):
                inputs, named = _tokens(x, places).transpose(1, 2), slots[rows, 0]
                accepted = num_accepted[rows]
                given = weight, bias, activation
                if x.dtype != torch.bfloat16:
                    found = update(
                        inputs, states, *given, conv_state_indices=named, num_accept_tokens=accepted
                    )
                    out[places] = found.transpose(1, 2)
                    continue
                at = accepted.long()[:, None] - 1 + torch.arange(kept, device=x.device)
                windows = states[named.clamp(min=0).long()]
                before = windows.gather(2, at[:, None].expand(-1, x.shape[1], -1))
                buffer = x.new_full((*places.shape, x.shape[1], kept), float("nan"))
                found = update(
                    inputs,
                    before,
                    *given,
                    conv_state_indices=numbers.flip(0).where(named >= 0, -1),
                    intermediate_conv_window=buffer,
                    intermediate_state_indices=numbers,
                )
                out[places], buffer = found.transpose(1, 2), buffer.flip(0)
                windows[..., : kept - 1 + places.shape[1]] = torch.cat(
                    [buffer[:, 0], buffer[:, 1:, :, -1].transpose(1, 2)], 2
                )
                keep_states(states, windows, named, named >= 0)
            return out
        gated = _gated_kernel("fused_lfm_short_conv_decode", x, weight, bias, activation)
        for tokens, named in decodes(slots, query_start_loc):
            if gated is not None:
                out[tokens] = _gated(gated, x[tokens], weight, states, named)
                continue
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
        _require_branch(weight)
        gated = _gated_kernel("fused_lfm_short_conv_prefill", x, weight, bias, activation)
        if gated is not None:
            rows = query_start_loc, slots, has_state, max(1, int(query_start_loc.diff().max()))
            return _gated(gated, x, weight, states, *rows)
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
        num_accepted: Any,
    ) -> Any:
        """Selective state update; drafts as in a step that verifies them, with a buffer of the state behind each."""
        result, update = torch.zeros_like(x), first_offered(_SSM)
        # The release raises a TypeError where one of them is None, its default: docs/findings/sglang-state-update-without-d.md.
        nothing = torch.zeros(A.shape[:2], device=x.device)
        D = nothing if D is None else D
        if dt_bias is None:
            dt_bias = nothing[:, :1].expand(A.shape[:2]) if A.stride(-1) == 0 else nothing
        steps: Any = (
            ((tokens, named, {}) for tokens, named in decodes(slots, query_start_loc))
            if num_accepted is None
            else _verified(states, x, slots, query_start_loc, num_accepted)
        )
        for tokens, named, verified in steps:
            # Places of drafts are a table.
            of = partial(_tokens, places=tokens) if verified else itemgetter(tokens)
            out, times = torch.zeros_like(of(x)), of(dt)
            # One time for a head is a view with stride 0, from which the kernel sees that there is one.
            times = times[..., :1].expand(times.shape) if dt.stride(-1) == 0 else times
            rest = {"z": None if z is None else of(z), "dt_bias": dt_bias, "dt_softplus": dt_softplus}
            rest |= verified
            inputs = of(x), times, A, of(B), of(C), D
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
        num_accepted: Any,
    ) -> Any:
        """The gated delta rule, token by token.

        Drafts, and all tokens in float16, by the kernel of drafts, in bfloat16 by that of packed decodes, which both take raw gates; in float32 on gathered states that are written back.
        """
        raw = (q, k, v), g, beta, scale, qk_l2norm, states, slots, query_start_loc
        if num_accepted is not None:
            return _gating(*raw, num_accepted)
        if q.dtype == torch.bfloat16:
            return _packed("fused_recurrent_gated_delta_rule_packed_decode", *raw)
        if q.dtype == torch.float16:
            return _gating(*raw)
        there = (slots >= 0) & (query_start_loc.diff() > 0)
        before = gathered_states(states, slots, there)
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
            keep_states(states, after, slots, there)
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
        num_accepted: Any,
    ) -> Any:
        """The delta rule with a gate for each channel: without drafts in bfloat16 by the kernel of packed decodes, else by that of drafts."""
        raw = (q, k, v), g, beta, scale, qk_l2norm, states, slots, query_start_loc
        if num_accepted is not None:
            return _gating(*raw, num_accepted)
        if q.dtype == torch.bfloat16:
            return _packed("fused_recurrent_kda_packed_decode", *raw)
        return _gating(*raw)

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
        num_accepted: Any,
    ) -> Any:
        """Lightning attention, a token of each row at a time; drafts as in a step that verifies them."""
        out, inputs = torch.zeros_like(v), (q, k, v)
        if num_accepted is None:
            for tokens, named in decodes(slots, query_start_loc):
                out[tokens] = _linear_decode([tensor[tokens] for tensor in inputs], g, scale, states, named)
            return out
        for places, rows, numbers in _drafted(slots, query_start_loc, num_accepted):
            read, written = _read(slots, num_accepted)[rows], slots[rows, : places.shape[1]]
            found, kept = _linear_drafts(
                [_tokens(tensor, places) for tensor in inputs], g, scale, states, read, numbers
            )
            out[places] = found.reshape(out[places].shape)
            keep_states(states, kept, written, written >= 0)
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
        """Lightning attention for prompts, by the layers' default kernel, with keys first. It divides by the decay of a block."""
        if g is not None and len(g) and float(g[0].min()) < _STEEPEST_OF_SEGMENTS:
            raise NotOffered(
                "seg_la_fwd of a decay whose inverse over 31 tokens, summed over keys, is no float32"
            )
        out, lengths = torch.zeros_like(v), query_start_loc.diff()
        rows, tokens = (lengths > 0).nonzero().flatten(), int(query_start_loc[-1])
        if tokens > 0 and tokens == len(rows):
            raise NotOffered("seg_la_fwd of prompts of one token each, which it takes for decodes")
        if tokens:
            inputs = [tensor[:tokens] for tensor in (q, k, v)]
            out[:tokens] = _segments(inputs, g, scale, states, slots[rows], lengths[rows], has_state[rows])
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
            cut["initial_states"] = gathered_states(states, held, has_state[rows])
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
        inputs = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
        rows = states, slots, query_start_loc, has_state
        return _in_chunks(_CHUNKS, inputs, *rows, scale=scale, use_qk_l2norm_in_kernel=qk_l2norm)

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
        """The delta rule with a gate for each channel, in chunks, with raw gates. The kernel leaves outputs where values were."""
        if q.dtype != torch.bfloat16:
            raise NotOffered("chunk_kda of another type than bfloat16, to which it rounds keys")
        if bool((g < _STEEPEST).any()):
            raise NotOffered("chunk_kda of gates that it clamps: their sum over 16 tokens")
        # With the norm, which layers ask for, the release makes queries and keys dense; without it kernels read strided ones as dense ones.
        q, k = (tensor if qk_l2norm else tensor.contiguous() for tensor in (q, k))
        raw, logs, offsets, _ = raw_gates(g, beta)
        return _in_chunks(
            _KDA_CHUNKS,
            {"q": q, "k": k, "v": v.clone(), "g": raw, "beta": beta},
            states,
            slots,
            query_start_loc,
            has_state,
            A_log=logs,
            dt_bias=offsets.flatten(),
            scale=scale,
            use_qk_l2norm_in_kernel=qk_l2norm,
        )
