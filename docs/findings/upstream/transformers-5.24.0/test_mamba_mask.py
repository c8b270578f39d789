"""A mask of the whole sequence beside one token and a cache."""

import torch
from transformers import MambaConfig, MambaForCausalLM


def test_a_mask_of_the_whole_sequence_is_taken_behind_a_cache(make_model):
    config = MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=1)
    model = make_model(MambaForCausalLM, config)
    ids = torch.randint(1, 64, (1, 4))
    mask = torch.ones_like(ids)
    whole = model(ids, attention_mask=mask).logits[:, -1]

    cache = model(ids[:, :2], attention_mask=mask[:, :2], use_cache=True).cache
    model(ids[:, 2:3], attention_mask=mask[:, :3], cache=cache, use_cache=True)
    step = model(ids[:, 3:], attention_mask=mask, cache=cache, use_cache=True)

    torch.testing.assert_close(step.logits[:, -1], whole, atol=1e-4, rtol=0)
