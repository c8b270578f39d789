"""The limit of the time step, in the prefill and in the decode."""

import torch
from transformers import Zamba2Config, Zamba2ForCausalLM


def test_a_decode_limits_the_time_step_as_a_prefill_does(make_model):
    config = Zamba2Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        mamba_d_state=8,
        mamba_headdim=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        layers_block_type=["linear_attention", "hybrid"],
    )
    model = make_model(Zamba2ForCausalLM, config)
    ids = torch.randint(1, 64, (1, 9))
    whole = model(ids).logits[:, -1]

    output = model(ids[:, :1], use_cache=True)
    for token in ids[0, 1:]:
        output = model(token[None, None], cache=output.cache, use_cache=True)

    torch.testing.assert_close(output.logits[:, -1], whole, atol=1e-4, rtol=0)
