"""Kimi Linear with a short prompt and a cache that records its past from the first token on."""

import torch
from transformers import DynamicCache, KimiLinearConfig, KimiLinearForCausalLM


def test_one_token_behind_a_prompt_that_is_shorter_than_the_convolution(make_model):
    config = KimiLinearConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        linear_head_dim=8,
        linear_num_heads=4,
        layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "dense"],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = make_model(KimiLinearForCausalLM, config)
    ids = torch.randint(3, 64, (1, 3))
    whole = model(ids).logits[:, -1]

    cache = DynamicCache(config=config)
    cache.activate_past_recording()
    model(ids[:, :2], cache=cache, use_cache=True)
    step = model(ids[:, 2:], cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
