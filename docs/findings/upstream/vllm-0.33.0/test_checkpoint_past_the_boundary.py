# SPDX-License-Identifier: Apache-2.0
"""A prefill that begins inside of a block: the block is cached only if the state at its end was stored."""


def test_a_full_mamba_block_is_cached_only_with_the_state_at_its_end(make_engine):
    unit = 32
    engine = make_engine(enable_prefix_caching=True, prefix_match_unit=unit)
    size = engine.block_size
    engine.run("first", range(1, size + 1))  # a later prompt can hit all but the last unit
    engine.add("second", [*range(1, size + 1), *range(5000, 5000 + size + 2)])

    output = engine.step()

    (new,) = output.scheduled_new_reqs
    end = new.num_computed_tokens + output.num_scheduled_tokens["second"]
    assert new.num_computed_tokens == size - unit  # the hit ends inside of the first block
    checkpoint, _ = engine.mamba_manager._checkpoints.get("second", (0, 0))
    cached = [
        number * size
        for number, block in enumerate(engine.mamba_manager.req_to_blocks["second"], 1)
        if block.block_hash is not None and block.block_hash_num_tokens == size
    ]
    # A layer stores the state at the end of a chunk, and at a checkpoint inside of it.
    assert set(cached) <= {end, checkpoint}
