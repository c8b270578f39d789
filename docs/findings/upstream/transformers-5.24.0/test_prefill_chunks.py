"""A prefill in chunks, of a model without attention."""

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM


def test_a_prefill_in_chunks_gives_the_logits_of_one_prefill(make_model):
    config = Mamba2Config(
        vocab_size=64, hidden_size=32, num_heads=8, head_dim=8, state_size=8, n_groups=1, num_hidden_layers=1
    )
    model = make_model(Mamba2ForCausalLM, config)
    ids = torch.randint(3, 64, (1, 4))
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 1, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_logits": True, "pad_token_id": 0}
    whole = model.generate(ids, **options).logits[0]

    chunks = model.generate(ids, prefill_chunk_size=2, **options).logits[0]

    torch.testing.assert_close(chunks, whole, atol=1e-4, rtol=0)
