"""Rows of a cache are selected: keys, values and recurrent states."""

import torch
from transformers import FalconH1Config, FalconH1ForCausalLM


def test_recurrent_states_of_selected_rows_are_moved(make_model):
    config = FalconH1Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        mamba_d_ssm=64,
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=4,
    )
    model = make_model(FalconH1ForCausalLM, config)
    ids = torch.randint(1, 64, (2, 4))
    whole = model(ids[[1, 0]]).logits[:, -1]

    cache = model(ids[:, :3], use_cache=True).cache
    cache.batch_select_indices(torch.tensor([1, 0]))
    step = model(ids[[1, 0], 3:], cache=cache, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
