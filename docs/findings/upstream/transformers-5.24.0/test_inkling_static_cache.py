"""Inkling with a static cache that is longer than the sequence."""

import torch
from transformers import InklingForCausalLM, InklingTextConfig, StaticCache


def test_a_static_cache_gives_the_logits_of_no_cache(make_model):
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
        layer_types=["hybrid"],
        mlp_layer_types=["dense"],
    )
    model = make_model(InklingForCausalLM, config)
    ids = torch.randint(1, 64, (1, 4))
    whole = model(ids).logits[:, -1]

    cache = StaticCache(config=config, max_cache_len=8)
    model(ids[:, :2], cache=cache, use_cache=True)
    rest = model(ids[:, 2:], cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(rest, whole, atol=1e-4, rtol=0)
