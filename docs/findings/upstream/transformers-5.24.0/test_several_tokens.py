"""Several tokens behind a state of the selective scan."""

import torch
from transformers import JambaConfig, JambaForCausalLM


def test_a_prefill_in_chunks_gives_the_logits_of_one_prefill(make_model):
    config = JambaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=1,
        num_experts_per_tok=1,
        mamba_d_state=8,
        mamba_dt_rank=4,
        pad_token_id=0,
    )
    model = make_model(JambaForCausalLM, config)
    prompt = torch.randint(1, 64, (1, 4))
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 1, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    whole = model.generate(prompt, **options).logits[0]

    chunks = model.generate(prompt, prefill_chunk_size=2, **options).logits[0]

    torch.testing.assert_close(chunks, whole, atol=1e-4, rtol=0)
