"""Padding on the left in a chunk of one token."""

import torch
from transformers import BambaConfig, BambaForCausalLM


def test_padding_in_a_chunk_of_one_token_does_not_enter_the_states(make_model):
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
        pad_token_id=0,
    )
    model = make_model(BambaForCausalLM, config)
    ids = torch.randint(1, 64, (1, 3))
    options = {
        "max_new_tokens": 1,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    alone = model.generate(ids, attention_mask=torch.ones_like(ids), **options).logits[0]

    zeros = torch.zeros_like(ids)
    mask = torch.cat([zeros, torch.ones_like(ids)], 1)
    options["prefill_chunk_size"] = 1
    padded = model.generate(torch.cat([zeros, ids], 1), attention_mask=mask, **options).logits[0]

    torch.testing.assert_close(padded, alone, atol=1e-4, rtol=0)
