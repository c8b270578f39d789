# SPDX-License-Identifier: Apache-2.0
"""Two prefix hits inside of one block in one step: no block is copied that another copy of this step fills."""


def test_source_of_a_block_copy_is_not_filled_by_another_copy(make_engine):
    unit = 32
    engine = make_engine(enable_prefix_caching=True, prefix_match_unit=unit)
    shared = list(range(1, engine.block_size - unit + 1))
    engine.run("first", [*shared, 5])  # a later prompt can hit all of `shared`, which ends inside of a block
    block = [*shared, *range(9000, 9000 + unit)]
    engine.add("second", block)
    engine.add("third", [*block, 5])

    copies = engine.schedule().kv_cache_block_copies

    # The worker makes all copies of a step at once, before the forward (copy_kv_cache_blocks_inplace).
    sources = {copy.src_block_id for copy in copies}
    filled = {copy.dst_block_id for copy in copies}
    assert not sources & filled
