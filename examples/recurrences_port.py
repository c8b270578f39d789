"""Recurrences in plain PyTorch, token by token: what a port of docs/recurrences.md may look like.

statecheck fuzz --subject examples.recurrences_port --device cpu --budget 60s
"""
# ruff: noqa: ARG001, D103 - docs/recurrences.md has a sentence about each function.
# mypy: ignore-errors

from itertools import pairwise

import torch
from torch.nn.functional import silu, softplus

STATECHECK_PROTOCOL = 2
NULL_SLOT = -1


def along_rows(step, out, states, slots, query_start_loc, num_accepted=None, has_state=None):
    """Run `step(state, token)`, which gives the new state and the token's output, along each row, in float32."""
    slots = slots.reshape(len(slots), -1).tolist()
    starts = query_start_loc.tolist()
    for row, (begin, end) in enumerate(pairwise(starts)):
        source = slots[row][num_accepted[row] - 1 if num_accepted is not None else 0]
        if source == NULL_SLOT or begin == end:
            continue
        fresh = has_state is not None and not has_state[row]
        state = torch.zeros_like(states[0], dtype=torch.float32) if fresh else states[source].float()
        for token in range(begin, end):
            state, out[token] = step(state, token)
            if num_accepted is not None and slots[row][token - begin] != NULL_SLOT:
                states[slots[row][token - begin]] = state
        if num_accepted is None:
            states[source] = state
    return out


def linear(q, k, v, g, scale, *rows):
    q, k = (one.float().repeat_interleave(v.shape[1] // one.shape[1], 1) for one in (q, k))

    def step(state, token):
        decay = g[token].exp()[:, None, None] if g is not None else 1
        state = state * decay + v[token].float()[:, :, None] * k[token][:, None, :]
        return state, scale * (state * q[token][:, None, :]).sum(-1)

    return along_rows(step, torch.zeros_like(v), *rows)


def delta(q, k, v, g, beta, scale, qk_l2norm, *rows):
    q, k = (one.float().repeat_interleave(v.shape[1] // one.shape[1], 1) for one in (q, k))
    if qk_l2norm:
        q, k = (one / (one.square().sum(-1, keepdim=True) + 1e-6).sqrt() for one in (q, k))

    def step(state, token):
        decay = g[token].reshape(v.shape[1], 1, -1).exp() if g is not None else 1
        state = state * decay
        move = v[token].float() - (state * k[token][:, None, :]).sum(-1)
        state = state + (beta[token][:, None] * move)[:, :, None] * k[token][:, None, :]
        return state, scale * (state * q[token][:, None, :]).sum(-1)

    return along_rows(step, torch.zeros_like(v), *rows)


def ssm(x, dt, A, B, C, D, z, dt_bias, dt_softplus, *rows):
    B, C = (one.float().repeat_interleave(x.shape[1] // one.shape[1], 1) for one in (B, C))

    def step(state, token):
        # Of each token by itself: a vectorised function may round an element by its place in the tensor.
        now = dt[token] if dt_bias is None else dt[token] + dt_bias
        now = (softplus(now) if dt_softplus else now).reshape(x.shape[1], -1, 1)
        state = state * (A.reshape(*A.shape, *[1] * (3 - A.dim())) * now).exp()
        state = state + now * x[token].float()[:, :, None] * B[token][:, None, :]
        y = (state * C[token][:, None, :]).sum(-1)
        y = y if D is None else y + D * x[token].float()
        return state, y if z is None else y * silu(z[token].float())

    return along_rows(step, torch.zeros_like(x), *rows)


def conv(x, weight, bias, activation, states, slots, query_start_loc, num_accepted=None, has_state=None):
    out, width, starts = torch.zeros_like(x), weight.shape[1], query_start_loc.tolist()
    for row, (begin, end) in enumerate(pairwise(starts)):
        slot = int(slots[row])
        if slot == NULL_SLOT or begin == end:
            continue
        first = int(num_accepted[row]) - 1 if num_accepted is not None else 0
        window = states[slot, :, first : first + width - 1]
        if has_state is not None and not has_state[row]:
            window = torch.zeros_like(window)
        seen = torch.cat([window, x[begin:end].T], 1)
        for token in range(begin, end):
            part = seen[:, token - begin : token - begin + width].float()
            y = (part * weight.float()).sum(1) + (bias.float() if bias is not None else 0)
            out[token] = silu(y) if activation else y
        new = seen[:, 1:] if num_accepted is not None else seen[:, -(width - 1) :]
        states[slot, :, : new.shape[1]] = new
    return out


def conv_update(x, weight, bias, activation, states, slots, query_start_loc, num_accepted):
    return conv(x, weight, bias, activation, states, slots, query_start_loc, num_accepted)


def conv_prefill(x, weight, bias, activation, states, slots, query_start_loc, has_state):
    return conv(x, weight, bias, activation, states, slots, query_start_loc, None, has_state)


def ssm_update(x, dt, A, B, C, D, z, dt_bias, dt_softplus, states, slots, query_start_loc, num_accepted):
    return ssm(x, dt, A, B, C, D, z, dt_bias, dt_softplus, states, slots, query_start_loc, num_accepted)


def ssd_prefill(
    x, dt, A, B, C, D, z, dt_bias, dt_softplus, chunk_size, states, slots, query_start_loc, has_state
):
    rows = states, slots, query_start_loc, None, has_state
    return ssm(x, dt, A, B, C, D, z, dt_bias, dt_softplus, *rows)


def delta_recurrent(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted):
    return delta(q, k, v, None, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted)


def delta_chunk(q, k, v, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state):
    return delta(q, k, v, None, beta, scale, qk_l2norm, states, slots, query_start_loc, None, has_state)


def gdn_recurrent(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted):
    return delta(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, num_accepted)


def gdn_chunk(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, has_state):
    return delta(q, k, v, g, beta, scale, qk_l2norm, states, slots, query_start_loc, None, has_state)


kda_recurrent, kda_chunk = gdn_recurrent, gdn_chunk


def linear_recurrent(q, k, v, g, scale, states, slots, query_start_loc, num_accepted):
    return linear(q, k, v, g, scale, states, slots, query_start_loc, num_accepted)


def linear_chunk(q, k, v, g, scale, states, slots, query_start_loc, has_state):
    return linear(q, k, v, g, scale, states, slots, query_start_loc, None, has_state)
