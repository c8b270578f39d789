# SPDX-License-Identifier: Apache-2.0
"""A request whose prefix hit ends inside of a block, in a pool that vLLM takes for large enough."""

from vllm.utils.math_utils import cdiv

COLUMNS = 4  # blocks of attention that the longest request has


def steps_without_rows(make_engine, more_blocks=0, **arguments):
    """Whether each of ten steps of an idle engine leaves the only request out, which has a hit of 96 tokens or of none."""
    arguments |= {"enable_prefix_caching": True, "max_model_len": COLUMNS * 1152}
    config = make_engine(**arguments)
    # What a pool has to have when vLLM starts: room for one request of the longest length.
    specs = [group.kv_cache_spec for group in config.kv_cache_config.kv_cache_groups]
    pages = sum(cdiv(one.max_memory_usage_bytes(config.config), one.page_size_bytes) for one in specs)
    engine = make_engine(1 + pages + more_blocks, **arguments)  # with the null block
    engine.run("first", range(100))
    engine.add("second", [*range(100), *range(1000, COLUMNS * engine.block_size)], max_tokens=1)
    assert engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == pages + more_blocks
    return all(not engine.step().num_scheduled_tokens for _ in range(10))


def test_a_request_with_a_hit_inside_of_a_block_is_scheduled_in_an_idle_engine(make_engine):
    # Controls: hits of whole blocks alone, and two blocks more.
    assert not steps_without_rows(make_engine)
    assert not steps_without_rows(make_engine, more_blocks=2, prefix_match_unit=32)

    assert not steps_without_rows(make_engine, prefix_match_unit=32)
