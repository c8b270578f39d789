"""Prompt caches of LongCat's n-grams, of which one has a single token."""

import mlx.core as mx
import pytest
from mlx_lm.models import longcat_flash_ngram
from mlx_lm.models.cache import make_prompt_cache

SIZES = {
    "hidden_size": 32,
    "ffn_hidden_size": 4,
    "moe_topk": 4,
    "expert_ffn_hidden_size": 4,
    "n_routed_experts": 4,
}
SIZES |= {"zero_expert_num": 4, "num_layers": 2, "vocab_size": 64, "max_position_embeddings": 512}
SIZES |= {
    "num_attention_heads": 4,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
SIZES |= {"qk_nope_head_dim": 8, "routed_scaling_factor": 1.0, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
SIZES |= {"mla_scale_q_lora": True, "mla_scale_kv_lora": True}


@pytest.mark.parametrize("prompts", [[[9], [3, 4]], [[3, 4], [9]]], ids=["short first", "short second"])
def test_a_merged_row_gives_the_logits_of_its_sequence(make_model, prompts):
    model = make_model(longcat_flash_ngram, **SIZES)
    caches = [make_prompt_cache(model) for _ in prompts]
    for prompt, cache in zip(prompts, caches):
        mx.eval(model(mx.array([prompt]), cache=cache))

    merged = [type(layer[0]).merge(list(layer)) for layer in zip(*caches)]
    logits = model(mx.array([[5], [6]]), cache=merged)[:, -1]

    for row, (prompt, token) in enumerate(zip(prompts, (5, 6))):
        alone = model(mx.array([[*prompt, token]]))[0, -1]
        assert mx.allclose(logits[row], alone, atol=1e-3), prompt
