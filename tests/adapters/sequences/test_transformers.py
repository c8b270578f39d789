"""The port of transformers; skipped where transformers is not installed, as in the environment of statecheck itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip(
    "transformers", reason="transformers is not installed here: run in an environment of a release"
)

import numpy as np

from oracle.sequences import FORMS
from subjects.sequences import transformers as port
from subjects.sequences.transformers import weights
from tests.adapters.sequences.libraries import heads_of_a_script

CORRECT = "granitemoehybrid"


def test_every_architecture_with_recurrent_state_is_built_and_shows_its_state() -> None:
    hidden = {}
    for model in port.models():
        for kind in port.features(model)["first_layer"]:
            moved = weights.state_moves(port.new(model, 0, first_layer=kind).model)
            if not moved >= 10 * port.TOLERANCE:
                hidden[model, kind] = moved
    assert len(port.models()) >= 10
    assert not hidden


def test_generation_counts_only_effects_that_the_port_lists() -> None:
    context = port.new(CORRECT, 0)
    port.extend(context, [(0, [1, 2, 3])])
    port.generate(context, 0, 2)
    assert set(port.effects(context)) <= set(port.EFFECTS)


def test_a_recurrent_state_is_not_rolled_back_and_nothing_changes() -> None:
    context = port.new(CORRECT, 0)
    port.extend(context, [(0, [1, 2, 3])])
    with pytest.raises(NotImplementedError, match="not croppable"):
        port.roll_back(context, 0, 1)
    assert port.length(context, 0) == 3


def test_a_row_that_was_padded_on_the_right_is_not_rolled_back() -> None:
    context = port.new("lfm2", 0, record=True, padding="right")
    port.extend(context, [(0, [1, 2]), (1, [3, 4, 5])])
    with pytest.raises(NotImplementedError, match="are padding"):
        port.roll_back(context, 0, 1)
    port.roll_back(context, 1, 1)
    assert (port.length(context, 0), port.length(context, 1)) == (2, 2)


def test_a_cache_that_refuses_to_be_cropped_refuses_a_rollback() -> None:
    context = port.new("minimax", 0, crop="unchecked")
    port.extend(context, [(0, [1, 2])])
    with pytest.raises(NotImplementedError, match="MiniMaxCache"):
        port.roll_back(context, 0, 1)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_window_of_a_convolution_is_rolled_back_into_the_prompt(n: int) -> None:
    context = port.new("lfm2", 0, record=True)
    prompt = [1, 2, 3, 4, 1, 2, 3, 4, 1]
    port.extend(context, [(0, prompt)])
    port.roll_back(context, 0, n)
    assert context.effects["record: a recorded past was cropped"] == 1
    (row,) = port.extend(context, [(0, [9])])
    (fresh,) = port.extend(port.new("lfm2", 0), [(0, [*prompt[:-n], 9])])
    np.testing.assert_allclose(row, fresh, atol=port.TOLERANCE * abs(fresh).max())


def test_candidates_of_an_assistant_are_accepted_and_rejected() -> None:
    seen: Counter[str] = Counter()
    for first in range(1, 5):
        context = port.new("lfm2", 0)
        port.extend(context, [(0, [first, 2, 3, 4])])
        port.generate(context, 0, 12, history="cache", mode="assistant")
        seen += context.effects
    assert seen["mode: a candidate was accepted"]
    assert seen["mode: a candidate was rejected"]


@pytest.mark.parametrize(
    ("features", "effect"),
    [
        ({"beams": 3}, "beams: a beam took the place of another one"),
        ({"neighbours": 1}, "neighbours: the prompt was padded"),
        ({"chunk": 2}, "chunk: the prompt came in several chunks"),
        ({"static": True}, "static: tokens were chosen with a static cache"),
    ],
)
def test_features_of_generate_take_effect(features: dict[str, Any], effect: str) -> None:
    context = port.new(CORRECT, 0)
    port.extend(context, [(0, [1, 2, 3, 4, 1, 2])])
    port.generate(context, 0, 8, history="cache", **features)
    assert context.effects[effect]


@pytest.mark.parametrize(
    ("dtype", "stop", "reason"), [("float32", 1, "a stop token"), ("bfloat16", None, "roundings to 16 bits")]
)
def test_several_beams_are_refused_where_another_one_may_be_right(
    dtype: str, stop: int | None, reason: str
) -> None:
    context = port.new(CORRECT, 0, dtype=dtype)
    port.extend(context, [(0, [1, 2, 3])])
    with pytest.raises(NotImplementedError, match=f"{reason} changes? which of several beams"):
        port.generate(context, 0, 4, beams=2, stop=stop)


@pytest.mark.parametrize("after", [0, 7])
def test_a_cancelled_forward_leaves_its_sequence_empty_and_its_neighbour_as_it_was(after: int) -> None:
    context = port.new(CORRECT, 0, reset=True)
    port.extend(context, [(0, [1, 2, 3]), (1, [4, 5, 6])])
    port.cancel(context, 0, [7], after)
    assert (port.length(context, 0), port.length(context, 1)) == (0, 3)
    assert port.effects(context)["cancel: a forward was ended"] == 1
    seen = port.extend(context, [(0, [2]), (1, [8])])
    alone = port.new(CORRECT, 0)
    fresh = [port.extend(alone, [row])[0] for row in [(0, [2]), (1, [4, 5, 6, 8])]]
    np.testing.assert_allclose(seen, fresh, atol=1e-3)


def test_whole_sequences_without_a_cache_are_padded_on_the_side_of_the_context() -> None:
    context = port.new("deepseek_v4", 0, cache="none", padding="right")
    port.extend(context, [(0, [1, 2, 3]), (1, [4])])
    seen = port.extend(context, [(0, [5]), (1, [6])])
    # On the left this model takes the padding in, which is declared.
    fresh = [port.extend(port.new("deepseek_v4", 0), [row])[0] for row in [(0, [1, 2, 3, 5]), (1, [4, 6])]]
    np.testing.assert_allclose(seen, fresh, atol=1e-3)


def test_rows_that_a_release_broadcasts_over_each_other_are_wrong_and_do_not_raise() -> None:
    rows = [(0, [1]), (1, [4])]
    seen = port.extend(port.new("rwkv", 0), rows)
    assert np.shape(seen) == np.shape([port.extend(port.new("rwkv", 0), [row])[0] for row in rows])


def test_each_feature_has_an_effect() -> None:
    counted = {name.partition(":")[0] for name in port.EFFECTS}
    # A form of an extension is compared where it happened.
    assert set(port.features(CORRECT)) - {*FORMS} <= counted


def test_generate_with_a_static_cache_is_not_offered_without_static_layers() -> None:
    context = port.new("deepseek_v4", 0)
    port.extend(context, [(0, [3, 1, 2])])
    with pytest.raises(NotImplementedError, match="no static cache for layers of kind"):
        port.generate(context, 0, 2, history="cache", static=True)


def test_a_key_error_behind_a_static_cache_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_mask(**_: Any) -> None:
        raise KeyError("linear_attention")

    monkeypatch.setattr("transformers.generation.utils.create_masks_for_generate", without_a_mask)
    context = port.new("qwen3_next", 0)
    port.extend(context, [(0, [3, 1, 2])])
    with pytest.raises(KeyError, match="linear_attention"):
        port.generate(context, 0, 2, history="cache", static=True)


def test_a_case_becomes_a_script_of_twenty_lines_that_needs_the_library_alone() -> None:
    heads = heads_of_a_script(port, CORRECT, "transformers")
    assert heads == ["behind [1, 2]", "behind [1, 2, 3]", "the defect is gone"]
