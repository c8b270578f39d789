"""A new sequence beside one with a history, in RecurrentGemma."""

import mlx.core as mx
from mlx_lm.models import recurrent_gemma
from mlx_lm.models.cache import make_prompt_cache


def test_a_new_row_of_a_merged_batch_begins_as_alone(make_model):
    model = make_model(
        recurrent_gemma,
        attention_bias=False,
        conv1d_width=4,
        hidden_size=32,
        intermediate_size=32,
        logits_soft_cap=30.0,
        num_attention_heads=4,
        num_hidden_layers=2,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        attention_window_size=8,
        vocab_size=64,
        block_types=["recurrent", "attention"],
    )
    new, known = make_prompt_cache(model), make_prompt_cache(model)
    mx.eval(model(mx.array([[1, 2]]), cache=known))

    merged = [type(one).merge([one, other]) for one, other in zip(new, known)]
    batch = model(mx.array([[5], [6]]), cache=merged)[0, -1]

    assert mx.allclose(batch, model(mx.array([[5]]))[0, -1], atol=1e-3)
