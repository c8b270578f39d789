"""A model that continuous batching refuses."""

import pytest
import torch
from transformers import Inkling2ForCausalLM, Inkling2TextConfig


def test_a_refused_model_is_left_as_it_was(make_model):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = Inkling2TextConfig(
        **heads,
        **{f"swa_{name}": value for name, value in heads.items()},
        vocab_size=64,
        unpadded_vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        d_rel=8,
        rel_extent=8,
        n_routed_experts=4,
        num_experts_per_tok=2,
    )
    model = make_model(Inkling2ForCausalLM, config)
    ids = torch.randint(1, 64, (1, 4))
    attention, before = model.config._attn_implementation, model(ids).logits

    with pytest.raises(ValueError, match="Invalid layer type"):
        model.generate_batch(inputs=[[1, 2, 3]], progress_bar=False)

    assert model.config._attn_implementation == attention
    torch.testing.assert_close(model(ids).logits, before, atol=1e-4, rtol=0)
