"""Positions behind a cache, where the caller gives none."""

import torch
from transformers import BambaConfig, BambaForCausalLM


def test_positions_go_on_behind_a_cache(make_model):
    config = BambaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
    )
    model = make_model(BambaForCausalLM, config)
    ids = torch.randint(1, 64, (1, 3))
    whole = model(ids).logits[:, -1]

    prompt = model(ids[:, :2], use_cache=True)
    step = model(ids[:, 2:], cache=prompt.cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
