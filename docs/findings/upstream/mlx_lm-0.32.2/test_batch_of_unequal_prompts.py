"""A batch of prompts of unequal length, of a recurrent model."""

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import mamba


def test_padding_of_a_batch_does_not_enter_the_states(make_model):
    model = make_model(
        mamba,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        state_size=8,
        num_hidden_layers=2,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        time_step_rank=4,
    )
    logits = model(mx.array([[5, 6, 7]]))[0, -1]

    generator, found = BatchGenerator(model, max_tokens=1), {}
    short, _ = generator.insert([[5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8]])
    while short not in found:
        found |= {response.uid: response.logprobs for response in generator.next()[1]}

    assert mx.allclose(found[short], logits - mx.logsumexp(logits), atol=1e-3)
