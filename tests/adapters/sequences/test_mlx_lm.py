"""The port of mlx-lm; skipped where mlx-lm is not installed, as in the environment of statecheck itself."""

from __future__ import annotations

import pytest

pytest.importorskip("mlx_lm", reason="mlx-lm is not installed here: run in an environment of a release")

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache

from oracle.sequences import FORMS
from subjects.sequences import mlx_lm as port
from subjects.sequences.mlx_lm import generation
from subjects.sequences.mlx_lm.context import MlxContext
from subjects.sequences.mlx_lm.models import build, layout
from tests.adapters.sequences.libraries import heads_of_a_script

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


@pytest.mark.parametrize(
    ("wrong", "accepted", "rejected"), [(0, True, False), (1, False, True), (2, True, True)]
)
def test_drafts_are_accepted_and_rejected(wrong: int, accepted: bool, rejected: bool) -> None:
    model = _Counting()
    context = MlxContext(model)
    features = generation.GenerationFeatures(wrong_drafts=wrong)
    tokens = [token for first in range(8) for token in generation.drafted(context, [first + 1], 12, features)]
    assert bool(context.effects["engine: a draft was accepted"]) is accepted
    assert bool(context.effects["engine: a draft was rejected"]) is rejected
    assert tokens == [(first + at) % model.size for first in range(8) for at in range(2, 14)]


def test_a_prompt_is_forgotten_where_the_store_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (4, 10):
        monkeypatch.setattr(generation, "_STORED", room)
        context = port.new(CORRECT, 0)
        context.tokens[0] = [1, 2, 3, 4, 5]
        port.generate(context, 0, 1, past=generation.FULL_STORE)
        assert context.effects["past: the server's store forgot a prompt"] == (room == 4)


def test_each_feature_has_an_effect() -> None:
    counted = {name.partition(":")[0] for name in port.EFFECTS}
    # Drafts that are proposed at a time and those that are wrong are those of the engine.
    # A form of an extension is compared where it happened.
    assert set(port.features(CORRECT)) - {"drafts", "wrong_drafts", *FORMS} <= counted


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
    heads = heads_of_a_script(port, CORRECT, "mlx_lm")
    assert heads == ["behind [1, 2]", "behind [1, 2, 3]", "the defect is gone"]


def test_weights_do_not_depend_on_what_was_built_before() -> None:
    layout.cache_clear()
    first, second = (tree_flatten(build("mamba", 0, 0.3).parameters()) for _ in range(2))
    assert all(mx.array_equal(one, other) for (_, one), (_, other) in zip(first, second, strict=True))
