# SPDX-License-Identifier: Apache-2.0
"""Reset of the prefix cache with a KV connector, while a step is in flight."""

from vllm.config import KVTransferConfig


def test_a_reset_that_preempts_running_requests_succeeds_while_a_step_is_in_flight(make_engine):
    connector = KVTransferConfig(kv_connector="DecodeBenchConnector", kv_role="kv_both")
    engine = make_engine(kv_transfer_config=connector, async_scheduling=True)
    engine.add("request", range(1, 100))
    in_flight = engine.schedule()

    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)

    engine.finish(in_flight)
