"""The recurrences against worked examples, against other forms of the same formulas in float32, and the error bound that holds for these."""

from __future__ import annotations

from math import exp
from typing import Any

import pytest
import torch

from oracle.recurrences.bounds import UNIT_ROUNDOFF, Near, Roundoff, silu, softplus
from oracle.recurrences.conv import convolved, convolved_sizes, window_after, window_before
from oracle.recurrences.delta import delta_step
from oracle.recurrences.heads import Steps, delta_heads, in_chunks_of_batches, linear_heads, ssm_heads
from oracle.recurrences.linear import linear_step
from oracle.recurrences.rows import Recurrent, Rows, run_rows
from oracle.recurrences.ssm import ssm_step

TOKENS, KEYS, VALUES = 12, 5, 3
ROUNDOFF = Roundoff(UNIT_ROUNDOFF["float32"])


def test_a_delta_step_with_share_one_stores_the_value_for_the_key() -> None:
    state, output = delta_step([[7.0, 3.0]], [2.0, 0.0], [1.0, 0.0], [5.0], [0.5, 0.5], 1.0, 10.0)
    assert (state, output) == ([[5.0, 1.5]], [100.0])


def test_a_linear_step_adds_value_times_key_to_the_decayed_state() -> None:
    assert linear_step([[4.0]], [3.0], [2.0], [5.0], 0.25, 1.0) == ([[11.0]], [33.0])


def test_a_selective_state_is_what_is_left_and_the_input() -> None:
    assert ssm_step([[8.0]], [3.0], [2.0], [[0.5]], [1.0], [2.0], [1.0], [0.5]) == ([[10.0]], [11.5])


def test_a_window_after_drafts_has_a_place_behind_each_of_them() -> None:
    kept = [1.0, 2.0, 3.0, 9.0, 9.0]
    assert window_before(kept, 3, 2) == [2.0, 3.0]
    assert window_after(kept, [4.0, 5.0], 3, 2) == [3.0, 4.0, 5.0, 9.0, 9.0]
    assert window_after(kept, [4.0], 3, None) == [2.0, 4.0, 3.0, 9.0, 9.0]
    assert window_after(kept, [4.0, 5.0, 6.0], 3, None)[:2] == [5.0, 6.0]


def test_a_convolution_weighs_the_window_oldest_first() -> None:
    assert convolved([1.0, 10.0], [2.0, 3.0], 4.0, None) == 36.0
    assert convolved([1.0, -10.0], [2.0, 3.0], 4.0, "silu") == pytest.approx(silu(-24.0))
    assert convolved_sizes([1.0, -10.0], [2.0, 3.0], 4.0, None) == 36.0


def test_softplus_keeps_large_and_small_numbers() -> None:
    assert softplus(800.0) == 800.0
    assert softplus(-50.0) == pytest.approx(exp(-50.0))


def test_rows_read_and_write_the_slots_that_are_named() -> None:
    rows = Rows((0, 2, 3, 3, 4), ((1,), (-1,), (2,), (3,)), has_state=(True, True, True, False))
    assert [list(rows.tokens(row)) for row in range(4)] == [[0, 1], [], [], [3]]
    assert [rows.target(0, 0), rows.target(0, 1), rows.target(3, 0)] == [None, 1, 3]
    assert [rows.is_fresh(row) for row in range(4)] == [False, False, False, True]


def test_rows_with_drafts_begin_behind_the_last_accepted_token() -> None:
    rows = Rows((0, 3), ((4, 5, -1),), accepted=(2,))
    assert rows.source(0) == 5
    assert [rows.target(0, at) for at in range(3)] == [4, 5, None]


def tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(sum(map(sum, shapes)))
    return [torch.rand(shape) - 0.5 for shape in shapes]


def _listed(*found: torch.Tensor) -> Any:
    return [tensor.double().unsqueeze(1).tolist() for tensor in found]


def in_float32_delta(gated: bool, norm: bool) -> tuple[Steps, torch.Tensor, torch.Tensor]:
    """The delta rule as S = S G (I - b k k^T) + b v k^T, multiplied out in another order than the oracle's."""
    q, k, v, g, beta = tensors((TOKENS, KEYS), (TOKENS, KEYS), (TOKENS, VALUES), (TOKENS, KEYS), (TOKENS,))
    g, beta = -g.abs() if gated else torch.zeros_like(g), beta + 0.5
    unit = [(x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()) if norm else x for x in (q, k)]
    state, outputs = torch.zeros(VALUES, KEYS), []
    for t in range(TOKENS):
        erase = torch.eye(KEYS) - beta[t] * torch.outer(unit[1][t], unit[1][t])
        state = (state * g[t].exp()) @ erase + beta[t] * torch.outer(v[t], unit[1][t])
        outputs.append(state @ unit[0][t] * 0.25)
    queries, keys, values, gates, shares = _listed(q, k, v, g, beta)
    steps = delta_heads(queries, keys, values, gates, shares, 0.25, norm)
    return steps, torch.stack(outputs), state


def in_float32_linear() -> tuple[Steps, torch.Tensor, torch.Tensor]:
    """Linear attention as a matrix of weights of all pairs of tokens."""
    q, k, v, g = tensors((TOKENS, KEYS), (TOKENS, KEYS), (TOKENS, VALUES), (TOKENS,))
    sums = -g.abs().cumsum(0)
    left = (sums[:, None] - sums[None, :]).exp().tril()
    outputs = (q @ k.T * left) @ v * 0.5
    state = (v * left[-1][:, None]).T @ k
    queries, keys, values, gates = _listed(q, k, v, -g.abs())
    return linear_heads(queries, keys, values, gates, 0.5), outputs, state


def in_float32_ssm() -> tuple[Steps, torch.Tensor, torch.Tensor]:
    """Mamba-2 as a matrix of all pairs of tokens."""
    x, dt, b, c, z = tensors((TOKENS, VALUES), (TOKENS,), (TOKENS, KEYS), (TOKENS, KEYS), (TOKENS, VALUES))
    times = torch.nn.functional.softplus(dt + 0.25)
    sums = (-0.75 * times).cumsum(0)
    left = (sums[:, None] - sums[None, :]).exp().tril()
    outputs = ((c @ b.T * left) @ (x * times[:, None]) + 2 * x) * torch.nn.functional.silu(z)
    state = (x * times[:, None] * left[-1][:, None]).T @ b
    steps = ssm_heads(
        **dict(
            zip(["x", "dt", "b", "c", "z"], _listed(x, dt[:, None].expand(-1, VALUES), b, c, z), strict=True)
        ),
        a=[[[-0.75] * KEYS] * VALUES],
        d=[[2.0] * VALUES],
        dt_bias=[[0.25] * VALUES],
        dt_softplus=True,
    )
    return steps, outputs, state


FORMS = {
    "delta rule": lambda: in_float32_delta(gated=False, norm=False),
    "KDA": lambda: in_float32_delta(gated=True, norm=False),
    "KDA with norms": lambda: in_float32_delta(gated=True, norm=True),
    "linear attention": in_float32_linear,
    "Mamba-2": in_float32_ssm,
}


def run(steps: Steps, roundoff: Roundoff = ROUNDOFF) -> Recurrent:
    rows = Rows((0, TOKENS), ((1,),), has_state=(False,))
    return run_rows(
        rows, 1, (VALUES, KEYS), steps, {}, roundoff=roundoff, output_type="float32", state_type="float32"
    )


def pairs(form: str, roundoff: Roundoff = ROUNDOFF) -> list[tuple[float, Near]]:
    steps, outputs, state = FORMS[form]()
    found = run(steps, roundoff)
    near = [value for token in range(TOKENS) for value in found.outputs[token][0]]
    near += [value for row in found.states[1][0] for value in row]
    seen = [*outputs.double().flatten().tolist(), *state.double().flatten().tolist()]
    return list(zip(seen, near, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_another_form_in_float32_lies_within_the_bound(form: str) -> None:
    assert all(abs(seen - near.value) <= near.bound for seen, near in pairs(form))


@pytest.mark.parametrize("form", FORMS)
def test_a_bound_is_small_beside_the_values_and_is_used_to_a_share(form: str) -> None:
    found = pairs(form)
    assert max(near.bound for _, near in found) < 1e-2 * max(abs(near.value) for _, near in found)
    assert max(abs(seen - near.value) / near.bound for seen, near in found) > 0.001


@pytest.mark.parametrize("form", FORMS)
def test_another_recurrence_lies_outside_of_the_bound(form: str) -> None:
    other = "KDA" if form != "KDA" else "delta rule"
    steps, _, _ = FORMS[other]()
    found = run(steps)
    seen = [value for value, _ in pairs(form)][: TOKENS * VALUES]
    near = [value for token in range(TOKENS) for value in found.outputs[token][0]]
    assert any(abs(value - bound.value) > bound.bound for value, bound in zip(seen, near, strict=True))


def test_the_error_of_a_state_is_carried_through_the_recurrence() -> None:
    steps, _, _ = in_float32_linear()
    rows = Rows((0, TOKENS), ((1,),))
    results = []
    for value, bound in ((0.5, 0.01), (0.51, 0.0), (0.49, 0.0)):
        state = [[[Near(value, bound)] * KEYS] * VALUES]
        results.append(
            run_rows(
                rows,
                1,
                (VALUES, KEYS),
                steps,
                {1: state},
                roundoff=ROUNDOFF,
                output_type="float32",
                state_type="float32",
            )
        )
    for token in range(TOKENS):
        for middle, *others in zip(*(result.outputs[token][0] for result in results), strict=True):
            assert all(abs(other.value - middle.value) <= middle.bound for other in others)
    first = results[0].outputs[TOKENS - 1][0][0]
    assert first.bound > 10 * results[1].outputs[TOKENS - 1][0][0].bound


def test_a_wrong_decay_at_token_64_lies_outside_of_the_bound_with_normed_keys() -> None:
    # In float16 factors; absolute values alone grow to thirty times what shows here.
    q, k, v, g, beta = tensors((70, KEYS), (70, KEYS), (70, VALUES), (70,), (70,))
    queries, keys, values, gates, shares = _listed(q, k, v, g[:, None] / 5 - 0.4, beta + 0.5)
    other = [*gates[:64], [[0.0]], *gates[65:]]

    def output(gates: Any) -> list[Near]:
        steps = delta_heads(queries, keys, values, gates, shares, 0.25, True)
        rows, roundoff = Rows((0, 70), ((1,),), has_state=(False,)), Roundoff.of_factors("float16")
        types = {"output_type": "float16", "state_type": "float32"}
        return run_rows(rows, 1, (VALUES, KEYS), steps, {}, roundoff=roundoff, **types).outputs[64][0]

    pairs = zip(output(gates), output(other), strict=True)
    assert any(abs(near.value - wrong.value) > near.bound for near, wrong in pairs)


def test_where_few_tokens_write_a_wrong_decay_lies_outside_of_the_bound_in_bfloat16() -> None:
    # A state of 70 tokens before the last has gone through no product, so that it is rounded in none.
    q, k, v, g, _ = tensors((70, KEYS), (70, KEYS), (70, VALUES), (70,), (70,))
    queries, keys, values, gates = _listed(q, k, v, g[:, None] / 5 - 0.2)
    shares = [[1.0 if token == 0 else 0.0] for token in range(70)]
    other = [*gates[:64], [[0.0]], *gates[65:]]

    def state(gates: Any) -> list[Near]:
        steps = delta_heads(queries, keys, values, gates, shares, 0.25, True)
        rows, roundoff = Rows((0, 70), ((1,),), has_state=(False,)), Roundoff.of_factors("bfloat16")
        types = {"output_type": "bfloat16", "state_type": "float32"}
        found = run_rows(rows, 1, (VALUES, KEYS), steps, {}, roundoff=roundoff, **types)
        return [near for row in found.states[1][0] for near in row]

    pairs = zip(state(gates), state(other), strict=True)
    assert all(abs(near.value - wrong.value) > near.bound for near, wrong in pairs)


def test_in_chunks_of_a_batch_a_row_counts_the_exponents_before_it() -> None:
    one = [[[1.0]]] * 4
    steps = ssm_heads(one, [[[8.0]]] * 4, [[[-2.0]]], one, one, None, None, None, False)
    counted = [in_chunks_of_batches(steps, [0, 2], 4)(token, 0).operations for token in range(4)]
    assert counted == [steps(0, 0).operations + more for more in (0.0, 0.0, 32.0, 0.0)]


def test_a_decay_that_is_flushed_to_zero_lies_within_the_bound() -> None:
    # exp(-87.4) is no normal number of float32; 159 of it is expected, where a kernel may have 0.
    keys, values, times = [[[1.0]]] * 2, [[[-1.875]], [[0.0]]], [[[48.8]], [[87.4]]]
    steps = ssm_heads(values, times, [[[-1.0]]], keys, [[[1.74]]] * 2, None, None, None, False)
    rows = Rows((0, 2), ((1,),), has_state=(False,))
    found = run_rows(
        rows, 1, (1, 1), steps, {}, roundoff=ROUNDOFF, output_type="float32", state_type="float32"
    )
    output = found.outputs[1][0][0]
    assert 0 < abs(output.value) < output.bound < 1e-29
