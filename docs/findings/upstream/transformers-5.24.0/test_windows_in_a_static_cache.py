"""Sliding layers of a hybrid model in `generate` with a static cache that is longer than the window."""

import torch
from transformers import Inkling2ForCausalLM, Inkling2TextConfig


def test_a_static_cache_generates_with_the_window_of_sliding_layers(make_model):
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
        layer_types=["hybrid_sliding", "hybrid_sliding"],
        sliding_window_size=4,
        eos_token_id=1,
    )
    model = make_model(Inkling2ForCausalLM, config)
    ids = torch.randint(2, 64, (1, 5))
    options = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 3,
        "do_sample": False,
        "eos_token_id": None,
    }
    options |= {"output_logits": True, "return_dict_in_generate": True, "pad_token_id": 0}
    dynamic = model.generate(ids, **options).logits

    static = model.generate(ids, cache_implementation="static", disable_compile=True, **options).logits

    torch.testing.assert_close(static, dynamic, atol=1e-4, rtol=0)
