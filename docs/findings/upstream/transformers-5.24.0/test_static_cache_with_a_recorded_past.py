"""One token behind a static cache that records its past."""

import torch
from transformers import FalconH1Config, FalconH1ForCausalLM, StaticCache


def test_empty_columns_of_a_static_cache_are_masked(make_model):
    config = FalconH1Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mamba_d_ssm=64,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
        mamba_n_groups=1,
        mamba_chunk_size=4,
    )
    model = make_model(FalconH1ForCausalLM, config)
    ids = torch.randint(1, 64, (1, 5))
    whole = model(ids).logits[:, -1]

    cache = StaticCache(config=config, max_cache_len=64)
    model(ids[:, :4], cache=cache, use_cache=True)
    cache.activate_past_recording()
    step = model(ids[:, 4:], cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
