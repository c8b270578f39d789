"""Zaya with a cache that records its past, as assisted generation has it."""

import torch
from transformers import DynamicCache, ZayaConfig, ZayaForCausalLM


def test_a_recorded_past_gives_the_logits_of_no_cache(make_model):
    config = ZayaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        head_dim=8,
        moe_intermediate_size=32,
        num_experts=4,
        router_hidden_size=32,
        layer_types=["hybrid"],
        max_position_embeddings=512,
    )
    model = make_model(ZayaForCausalLM, config)
    ids = torch.randint(1, 64, (1, 5))
    whole = model(ids).logits[:, -1]

    cache = DynamicCache(config=config)
    cache.activate_past_recording()
    model(ids[:, :3], cache=cache, use_cache=True)
    model(ids[:, 3:4], cache=cache, use_cache=True)
    step = model(ids[:, 4:], cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
