"""Operations of MiniMax's cache on the states of its linear layers."""

import pytest
import torch
from transformers import MiniMaxConfig, MiniMaxForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "head_dim": 8, "block_size": 4}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2}


@pytest.fixture
def make_minimax(make_model):
    return lambda *types: make_model(MiniMaxForCausalLM, MiniMaxConfig(**SIZES, layer_types=list(types)))


def test_positions_go_on_behind_a_linear_layer(make_minimax):
    model, ids = make_minimax("linear_attention", "full_attention"), torch.randint(1, 64, (1, 3))
    cache = model(ids[:, :2], use_cache=True).cache
    step = model(ids[:, 2:], cache=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(step, model(ids).logits[:, -1], atol=1e-4, rtol=0)


def test_states_of_linear_layers_are_reordered(make_minimax):
    model, ids = make_minimax("full_attention", "linear_attention"), torch.randint(1, 64, (2, 3))
    cache = model(ids[:, :2], use_cache=True).cache
    cache.reorder_cache(torch.tensor([1, 0]))
    step = model(ids[[1, 0], 2:], cache=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(step, model(ids[[1, 0]]).logits[:, -1], atol=1e-4, rtol=0)


def test_states_of_linear_layers_are_reset(make_minimax):
    model, ids = make_minimax("full_attention", "linear_attention"), torch.randint(1, 64, (1, 9))
    cache = model(ids.flip(1), use_cache=True).cache
    cache.reset()
    again = model(ids, cache=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(again, model(ids).logits[:, -1], atol=1e-4, rtol=0)
