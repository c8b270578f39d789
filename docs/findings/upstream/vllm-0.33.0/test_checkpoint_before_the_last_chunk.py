# SPDX-License-Identifier: Apache-2.0
"""A chunk inside of a prompt: its checkpoint goes to another block than the running state."""

DRAFTS = {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": 1}


def test_a_checkpoint_is_not_written_into_the_running_block(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True, speculative_config=DRAFTS)
    size = engine.block_size
    whole = engine.scheduler.max_num_scheduled_tokens // size  # blocks in a chunk of the default budget
    shared = range(1, (whole + 2) * size + 7)
    engine.run("first", [*shared, *range(90_000, 90_000 + size)])
    engine.add("second", [*shared, *range(120_000, 120_000 + 2 * size)])
    assert engine.step().num_scheduled_tokens == {"second": whole * size}

    # The scheduler ends this chunk where the prompts begin to differ.
    assert engine.step().num_scheduled_tokens == {"second": 2 * size}

    metadata = engine.mamba_metadata
    running = metadata.state_indices_tensor_p[0].item()
    checkpoint = metadata.checkpoint_meta and metadata.checkpoint_meta.state_indices[0].item()
    assert checkpoint != running
