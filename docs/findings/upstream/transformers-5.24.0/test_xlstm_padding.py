"""xLSTM in `generate`: padding on the left, and a cache of an earlier call."""

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM

CONFIG = {"vocab_size": 64, "hidden_size": 128, "num_hidden_layers": 1, "num_heads": 8, "chunk_size": 8}
OPTIONS = {"max_new_tokens": 1, "do_sample": False, "return_dict_in_generate": True, "output_logits": True}


def test_padding_on_the_left_is_masked(make_model):
    model = make_model(xLSTMForCausalLM, xLSTMConfig(**CONFIG, pad_token_id=0))
    ids = torch.randint(1, 64, (1, 3))
    zeros = torch.zeros_like(ids)
    whole = model.generate(ids, attention_mask=torch.ones_like(ids), **OPTIONS).logits[0]

    mask = torch.cat([zeros, torch.ones_like(ids)], 1)
    left = model.generate(torch.cat([zeros, ids], 1), attention_mask=mask, **OPTIONS).logits[0]

    torch.testing.assert_close(left, whole, atol=1e-3, rtol=0)


def test_a_returned_cache_goes_on(make_model):
    model = make_model(xLSTMForCausalLM, xLSTMConfig(**CONFIG, pad_token_id=0))
    ids = torch.randint(1, 64, (1, 4))
    mask = torch.ones_like(ids)
    whole = model.generate(ids, attention_mask=mask, **OPTIONS).logits[0]

    first = model.generate(ids[:, :3], attention_mask=mask[:, :3], **OPTIONS)
    again = model.generate(ids[:, 3:], attention_mask=mask, cache=first.cache, **OPTIONS).logits[0]

    torch.testing.assert_close(again, whole, atol=1e-3, rtol=0)
