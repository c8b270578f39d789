"""flash-linear-attention as a subject: its operations with a state, behind the protocol of docs/recurrences.md.

fla takes the states of a batch, and no pool: slots are gathered before a call, and written behind it.
"""
# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ARG001 - arguments are those of the protocol.

from __future__ import annotations

import importlib
import warnings
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from statecheck.subject.loading import PROJECTS
from statecheck.subject.subject import NotOffered, first_offered
from subjects.kit.gates import raw_gates
from subjects.kit.rows import decodes, gathered_states, keep_states

STATECHECK_PROTOCOL = 2
RELEASE = version("fla-core")
KNOWN = "known.toml"
PROFILE = {
    # The products of chunks are made by `tl.dot`. Norms of the delta rule are rounded to the type of queries and keys.
    "accumulates": {
        "delta_recurrent": "input",
        **dict.fromkeys(("delta_chunk", "gdn_chunk", "kda_chunk", "linear_chunk"), "dot"),
    },
    "without_drafts": ("conv_update", "delta_recurrent", "gdn_recurrent", "linear_recurrent"),
    "without_shared_heads": ("delta_recurrent", "delta_chunk", "linear_recurrent", "linear_chunk"),
}
_STEEPEST = -1.4
"""The logarithm of the largest float32, by 63 tokens."""
PROJECTS["fla"].require_supported(RELEASE)

if not torch.cuda.is_available():
    # Or else fla takes the driver for kernels without a GPU for a GPU.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = [importlib.import_module(f"fla.utils{name}") for name in (".hardware", "")]
    for module in modules:
        vars(module).update(device="cpu", device_name="cpu", device_torch_lib=torch.cpu)


def _on_rows(operation, inputs, like, rows, *, keys_first=False, **options) -> Tensor:
    """Call an operation on the tokens of a batch, with the states of its rows; the output of all tokens, as `like`.

    `rows` are states, slots and starts, and for prompts which rows have a state. A row of padding has zeros for a state, and its state is
    not written. With `keys_first` the operation takes states with keys first, which no option tells it.
    """
    called = first_offered(f"fla.{operation}")
    keys_first |= not options.get("state_v_first", True)
    states, slots, query_start_loc, *has_state = rows
    starts, out = query_start_loc.long(), torch.zeros_like(like)
    tokens = int(starts[-1])
    if tokens == 0:
        return out
    there = (slots >= 0) & (starts.diff() > 0)
    before = gathered_states(states, slots, there & has_state[0] if has_state else there).float()
    found, after = called(
        **{name: None if tensor is None else tensor[None, :tokens] for name, tensor in inputs.items()},
        initial_state=before.transpose(-1, -2).contiguous() if keys_first else before,
        output_final_state=True,
        cu_seqlens=starts,
        **options,
    )
    out[:tokens] = found[0]
    keep_states(states, after.transpose(-1, -2) if keys_first else after, slots, there)
    return out


def _layout(dtype: torch.dtype) -> dict[str, Any]:
    """States have keys first in float16, as those of fla's own layers, or else values."""
    return {"state_v_first": dtype != torch.float16}


def _delta(operation, inputs, scale, qk_l2norm, rows, **options) -> Tensor:
    """Call an operation of the delta rule."""
    options |= {"scale": scale, "use_qk_l2norm_in_kernel": qk_l2norm}
    return _on_rows(f"ops.{operation}", inputs, inputs["v"], rows, **options)


def delta_recurrent(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted):
    """The delta rule, token by token."""
    inputs, rows = {"q": q, "k": k, "v": v, "beta": beta}, (states, slots, query_start_loc)
    return _delta("delta_rule:fused_recurrent_delta_rule", inputs, scale, qk_l2norm, rows, keys_first=True)


def delta_chunk(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state):
    """The delta rule in chunks."""
    if q.dtype == torch.float32:
        raise NotOffered("chunk_delta_rule of float32")
    inputs, rows = {"q": q, "k": k, "v": v, "beta": beta}, (states, slots, query_start_loc, has_state)
    return _delta("delta_rule:chunk_delta_rule", inputs, scale, qk_l2norm, rows, keys_first=True)


def _gdn(name, inputs, *rest) -> Tensor:
    """Call an operation of the gated delta rule."""
    return _delta(f"gated_delta_rule:{name}", inputs, *rest, **_layout(inputs["q"].dtype))


def gdn_recurrent(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted):
    """The gated delta rule, token by token."""
    inputs, rows = {"q": q, "k": k, "v": v, "g": g, "beta": beta}, (states, slots, query_start_loc)
    return _gdn("fused_recurrent_gated_delta_rule", inputs, scale, qk_l2norm, rows)


def gdn_chunk(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state):
    """The gated delta rule in chunks."""
    inputs, rows = {"q": q, "k": k, "v": v, "g": g, "beta": beta}, (states, slots, query_start_loc, has_state)
    return _gdn("chunk_gated_delta_rule", inputs, scale, qk_l2norm, rows)


def _kda(name, inputs, *rest) -> Tensor:
    """Call an operation of KDA; in bfloat16 it computes the gates itself, as in fla's own layers."""
    options = _layout(inputs["q"].dtype)
    if inputs["q"].dtype == torch.bfloat16:
        raw, logs, offsets, shares = raw_gates(inputs["g"], inputs["beta"])
        inputs |= {"g": raw, "beta": shares}
        options |= {"A_log": logs, "dt_bias": offsets.flatten()}
        options |= dict.fromkeys(("use_gate_in_kernel", "use_beta_sigmoid_in_kernel"), True)
    return _delta(f"kda:{name}", inputs, *rest, **options)


def kda_recurrent(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted):
    """The delta rule with a gate for each channel; with drafts the kernel reads and writes slots itself."""
    inputs = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    if num_accepted is None:
        return _kda("fused_recurrent_kda", inputs, scale, qk_l2norm, (states, slots, query_start_loc))
    if (slots < 0).any():
        raise NotOffered("fused_recurrent_kda_fwd of rows of padding with drafts")
    out, _ = first_offered("fla.ops.kda.fused_recurrent:fused_recurrent_kda_fwd")(
        **{name: tensor.contiguous()[None] for name, tensor in inputs.items()},
        initial_state=states,
        scale=scale,
        state_v_first=True,
        cu_seqlens=query_start_loc.long(),
        ssm_state_indices=slots,
        num_accepted_tokens=num_accepted,
        use_qk_l2norm_in_kernel=qk_l2norm,
    )
    return out[0]


def kda_chunk(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state):
    """The delta rule with a gate for each channel, in chunks."""
    inputs, rows = {"q": q, "k": k, "v": v, "g": g, "beta": beta}, (states, slots, query_start_loc, has_state)
    return _kda("chunk_kda", inputs, scale, qk_l2norm, rows)


def _is_of_heads(g: Tensor | None) -> bool:
    """Whether a head has one decay for all tokens, as in RetNet and lightning attention."""
    return g is not None and len(g) > 0 and g.stride(0) == 0


def _linear(name, q, k, v, g, scale, *rows) -> Tensor:
    """Call an operation of simple GLA."""
    of_tokens, of_heads = (None, g[0]) if _is_of_heads(g) else (g, None)
    options = {"g_gamma": of_heads, "scale": scale} | _layout(v.dtype)
    return _on_rows(f"ops.simple_gla:{name}", {"q": q, "k": k, "v": v, "g": of_tokens}, v, rows, **options)


def linear_recurrent(q, k, v, g, scale, states, slots, query_start_loc, num_accepted):
    """Simple GLA, token by token."""
    return _linear("fused_recurrent_simple_gla", q, k, v, g, scale, states, slots, query_start_loc)


def linear_chunk(q, k, v, g, scale, states, slots, query_start_loc, has_state):
    """Simple GLA in chunks."""
    # Its state behind fewer tokens than a chunk has is NaN: docs/findings/flash-linear-attention-lightning-state.md.
    if _is_of_heads(g) and float(g.min()) <= _STEEPEST:
        raise NotOffered("chunk_simple_gla of a head whose decay is too steep for a chunk")
    return _linear("chunk_simple_gla", q, k, v, g, scale, states, slots, query_start_loc, has_state)


def conv_prefill(x, weight, bias, activation, states, slots, query_start_loc, has_state):
    """Causal convolution; fla's window has an entry more, which is not read."""
    there, named = (slots >= 0) & (query_start_loc.diff() > 0), slots.clamp(min=0).long()
    window = torch.nn.functional.pad(states[named], (1, 0))
    numbers = torch.where(slots >= 0, torch.arange(len(slots), device=slots.device), -1)
    options = {"weight": weight, "bias": bias, "activation": activation}
    rows = window, numbers, query_start_loc, has_state
    out = _on_rows("modules.causal_conv1d:causal_conv1d", {"x": x}, x, rows, **options)
    states[named[there]] = window[there][..., 1:]
    return out


def conv_update(x, weight, bias, activation, states, slots, query_start_loc, num_accepted):
    """Causal convolution, a token of each row at a time."""
    out, update = torch.zeros_like(x), first_offered("fla.modules.causal_conv1d:causal_conv1d_update")
    for tokens, named in decodes(slots, query_start_loc, slots >= 0):
        window = torch.nn.functional.pad(states[named.long()], (1, 0)).contiguous()
        out[tokens], window = update(x[tokens], window, weight=weight, bias=bias, activation=activation)
        states[named.long()] = window[..., 1:]
    return out
