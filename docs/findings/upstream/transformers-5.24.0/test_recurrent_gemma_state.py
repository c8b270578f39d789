"""RecurrentGemma's state belongs to a sequence."""

import pytest
import torch
from transformers import DynamicCache, RecurrentGemmaConfig, RecurrentGemmaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "lru_width": 32, "head_dim": 8}
SIZES |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
SIZES |= {"attention_window_size": 8, "block_types": ["recurrent", "attention"]}
CONFIG = RecurrentGemmaConfig(**SIZES, pad_token_id=0)


@pytest.fixture
def model(make_model):
    return make_model(RecurrentGemmaForCausalLM, CONFIG)


def test_a_prompt_does_not_depend_on_earlier_calls(model):
    options = {"max_new_tokens": 1, "return_dict_in_generate": True, "output_logits": True}
    ids = torch.randint(1, 64, (1, 1))
    alone = model.generate(ids, **options).logits[0]
    model.generate(torch.randint(1, 64, (1, 4)), **options)
    torch.testing.assert_close(model.generate(ids, **options).logits[0], alone, atol=1e-4, rtol=0)


def test_a_cache_goes_on_from_its_own_state(model):
    ids, cache = torch.randint(1, 64, (1, 5)), DynamicCache(config=CONFIG)
    whole = model(ids).logits[:, -1]
    model(ids[:, :4], cache=cache, use_cache=True)
    model(ids.flip(1), use_cache=True)  # another sequence
    step = model(ids[:, 4:], cache=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)


def test_several_tokens_go_on_from_a_state(model):
    ids, cache = torch.randint(1, 64, (1, 5)), DynamicCache(config=CONFIG)
    whole = model(ids).logits[:, -1]
    model(ids[:, :3], cache=cache, use_cache=True)
    step = model(ids[:, 3:], cache=cache, use_cache=True).logits[:, -1]
    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
