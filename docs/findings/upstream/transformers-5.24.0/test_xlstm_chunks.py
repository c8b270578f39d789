"""The state between the chunks of a long prompt, without a cache."""

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM


def test_a_long_prompt_gives_the_same_without_a_cache(make_model):
    config = xLSTMConfig(
        vocab_size=64,
        hidden_size=128,
        num_hidden_layers=1,
        num_heads=8,
        chunk_size=8,
        max_inference_chunksize=16,
        autocast_kernel_dtype="float32",
    )
    model = make_model(xLSTMForCausalLM, config)
    ids = torch.randint(1, 64, (1, 17))

    cached = model(ids, use_cache=True).logits[:, -1]
    uncached = model(ids, use_cache=False).logits[:, -1]

    torch.testing.assert_close(uncached, cached, atol=1e-4, rtol=0)
