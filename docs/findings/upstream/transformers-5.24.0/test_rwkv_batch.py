"""RWKV's state of two rows."""

import torch
from transformers import RwkvConfig, RwkvForCausalLM


def test_a_row_of_a_batch_reads_its_own_state(make_model):
    config = RwkvConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, bos_token_id=None, eos_token_id=None
    )
    model = make_model(RwkvForCausalLM, config)
    ids = torch.randint(1, 64, (2, 3))
    whole = model(ids).logits[:, -1]

    prompt = model(ids[:, :2], use_cache=True)
    step = model(ids[:, 2:], state=prompt.state, use_cache=True).logits[:, -1]

    torch.testing.assert_close(step, whole, atol=1e-4, rtol=0)
