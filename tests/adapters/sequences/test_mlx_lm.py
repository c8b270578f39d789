"""The port of mlx-lm; skipped where mlx-lm is not installed, as in the environment of statecheck itself."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="mlx-lm is not installed here: run in an environment of a release")

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache

from statecheck.case import Case
from statecheck.report.scripts.script import framed_sequence
from statecheck.subject import load
from subjects.sequences import mlx_lm as port
from subjects.sequences.mlx_lm import generation
from subjects.sequences.mlx_lm.context import MlxContext
from tests.helpers.processes import run_fresh

CORRECT = "mamba2"


def test_most_models_with_states_of_a_fixed_size_are_built() -> None:
    missing = []
    for model in port.models():
        try:
            port.new(model, 0)
        except NotImplementedError:
            missing.append(model)
    assert len(port.models()) >= 10
    assert len(missing) <= 2


def test_rows_of_unequal_length_go_on_as_sequences_of_their_own() -> None:
    together = port.new(CORRECT, 0)
    port.extend(together, [(0, [1, 2, 3, 4]), (1, [5])])
    rows = port.extend(together, [(1, [6, 7]), (0, [8])])
    for row, tokens in zip(rows, ([5, 6, 7], [1, 2, 3, 4, 8]), strict=True):
        (fresh,) = port.extend(port.new(CORRECT, 0), [(0, tokens)])
        np.testing.assert_allclose(row, fresh, atol=port.TOLERANCE * abs(fresh).max())


def test_a_saved_cache_goes_on_in_another_context() -> None:
    context = port.new(CORRECT, 0)
    port.extend(context, [(0, [1, 2, 3])])
    other = port.new(CORRECT, 0)
    port.load(other, 2, port.save(context, 0))
    (row,) = port.extend(other, [(2, [4])])
    (fresh,) = port.extend(port.new(CORRECT, 0), [(0, [1, 2, 3, 4])])
    np.testing.assert_allclose(row, fresh, atol=port.TOLERANCE * abs(fresh).max())


@pytest.mark.parametrize("engine", ["generate_step", "BatchGenerator"])
@pytest.mark.parametrize("past", ["none", "prompt cache", "server's store"])
def test_generation_chooses_the_same_tokens_with_any_past(engine: str, past: str) -> None:
    context = port.new(CORRECT, 0)
    port.extend(context, [(0, [1, 2, 3])])
    tokens = port.generate(context, 0, 4, engine=engine, past=past)
    plain = port.new(CORRECT, 0)
    port.extend(plain, [(0, [1, 2, 3])])
    assert tokens == port.generate(plain, 0, 4)


@pytest.mark.parametrize(
    ("wrong", "accepted", "rejected"), [(0, True, False), (1, False, True), (2, True, True)]
)
def test_drafts_are_accepted_and_rejected(wrong: int, accepted: bool, rejected: bool) -> None:
    model = _Counting()
    context = MlxContext(model)
    tokens = [
        token
        for first in range(8)
        for token in generation.drafted(
            context, [first + 1], 12, generation.GenerationFeatures(wrong_drafts=wrong)
        )
    ]
    assert bool(context.effects["engine: a draft was accepted"]) is accepted
    assert bool(context.effects["engine: a draft was rejected"]) is rejected
    assert tokens == [(first + at) % model.size for first in range(8) for at in range(2, 14)]


def test_each_feature_has_an_effect() -> None:
    counted = {name.partition(":")[0] for name in port.EFFECTS}
    # Drafts that are proposed at a time and those that are wrong are those of the engine.
    assert set(port.features(CORRECT)) - {"drafts", "wrong_drafts"} <= counted


class _Counting(nn.Module):
    """A model with a cache that can be trimmed, which chooses the number behind each token."""

    size = 16

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[object] = [object()]

    def make_cache(self) -> list[KVCache]:
        return [KVCache()]

    def __call__(self, tokens: mx.array, cache: list[KVCache]) -> mx.array:
        cache[0].update_and_fetch(*[mx.zeros((1, 1, tokens.shape[1], 1))] * 2)
        following = (tokens.astype(mx.int32) + 1) % self.size
        return (mx.arange(self.size) == following[..., None]).astype(mx.float32)


def test_a_case_becomes_a_script_of_twenty_lines_that_needs_the_library_alone() -> None:
    operations: list[tuple[str, dict[str, Any]]] = [
        ("extend", {"context": 0, "rows": [(0, (1, 2))], "features": {}}),
        ("extend", {"context": 0, "rows": [(0, (3,))], "features": {}}),
    ]
    lines = port.script(CORRECT, 0, {}, operations)
    case = Case("toys/extend", "Toys extend.", "mlx_lm", (), (), (), None)
    done = run_fresh("-I", "-c", framed_sequence(lines, case, load("mlx_lm")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines.splitlines()) <= 20
    *seen, verdict = done.stdout.splitlines()
    heads = [line.partition(":")[0] for line in seen]
    assert (heads, verdict) == (["behind [1, 2]", "behind [1, 2, 3]"], "the defect is gone")
