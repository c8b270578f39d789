"""The cache of an earlier call together with the whole prompt and prompt lookup."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def test_tokens_of_the_cache_are_not_processed_again(make_model):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    config = LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **sizes)
    model = make_model(LlamaForCausalLM, config)
    ids = torch.randint(3, 64, (1, 5))
    mask = torch.ones_like(ids)
    options = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True}
    options |= {"output_logits": True, "pad_token_id": 0}
    whole = model.generate(ids, attention_mask=mask, **options).logits[0]

    first = model.generate(ids[:, :4], attention_mask=mask[:, :4], **options)
    again = model.generate(ids, attention_mask=mask, cache=first.cache, prompt_lookup_num_tokens=3, **options)

    torch.testing.assert_close(again.logits[0], whole, atol=1e-4, rtol=0)
