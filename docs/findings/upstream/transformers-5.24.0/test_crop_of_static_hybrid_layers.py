"""Inkling with a static cache from which tokens are removed, as assisted generation removes candidates."""

import torch
from transformers import InklingForCausalLM, InklingTextConfig, StaticCache


def make_inkling(make_model):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = InklingTextConfig(
        **heads,
        **{f"swa_{name}": value for name, value in heads.items()},
        vocab_size=64,
        unpadded_vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=32,
        num_hidden_layers=1,
        d_rel=8,
        rel_extent=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
        layer_types=["hybrid_sliding"],
        mlp_layer_types=["dense"],
    )
    return make_model(InklingForCausalLM, config)


def test_a_cropped_static_cache_gives_the_logits_of_the_tokens_that_are_left(make_model):
    model = make_inkling(make_model)
    whole = model(torch.tensor([[3, 9, 5, 7, 4, 6]])).logits[:, -1]

    cache = StaticCache(config=model.config, max_cache_len=64)
    cache.activate_past_recording()
    model(torch.tensor([[3, 9, 5, 7, 2, 8]]), cache=cache, use_cache=True)
    assert cache.is_croppable
    cache.crop(-2)
    assert int(cache.get_seq_length()) == 4
    rest = model(torch.tensor([[4, 6]]), cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(rest, whole, atol=1e-4, rtol=0)
