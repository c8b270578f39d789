# SPDX-License-Identifier: Apache-2.0
"""Two resets of the offloading connector's cache, without a step between them."""

from vllm.config import KVTransferConfig


def reset_twice(make_engine, between=lambda _: None):
    connector = KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"cpu_bytes_to_use": 1 << 30},
    )
    engine = make_engine(enable_prefix_caching=True, kv_transfer_config=connector)
    engine.run("request", range(1, 2 * engine.block_size + 2))
    # The worker has not said that its blocks are saved.
    assert engine.scheduler.connector.connector_scheduler._jobs

    engine.scheduler.reset_prefix_cache(reset_connector=True)
    between(engine)
    engine.scheduler.reset_prefix_cache(reset_connector=True)


def test_a_second_reset_before_the_next_step_succeeds(make_engine):
    reset_twice(make_engine)
