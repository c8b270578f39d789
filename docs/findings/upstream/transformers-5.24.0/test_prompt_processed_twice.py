"""The cache of an earlier call together with the whole prompt."""

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM


def test_tokens_of_the_cache_are_not_processed_again(make_model):
    config = Mamba2Config(
        vocab_size=64, hidden_size=32, num_heads=8, head_dim=8, state_size=8, n_groups=1, num_hidden_layers=1
    )
    model = make_model(Mamba2ForCausalLM, config)
    ids = torch.randint(3, 64, (1, 5))
    mask = torch.ones_like(ids)
    options = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    options |= {"output_logits": True, "pad_token_id": 0}
    whole = model.generate(ids, attention_mask=mask, **options).logits[0]

    first = model.generate(ids[:, :4], attention_mask=mask[:, :4], **options)
    again = model.generate(ids, attention_mask=mask, cache=first.cache, **options).logits[0]

    torch.testing.assert_close(again, whole, atol=1e-4, rtol=0)
