# SPDX-License-Identifier: Apache-2.0
"""An asynchronous load that failed and is offered again."""

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.decode_bench_connector import DecodeBenchConnector
from vllm.v1.outputs import KVConnectorOutput


class AsyncConnector(DecodeBenchConnector):
    """Offers all but the last token of a prompt, to be loaded while other requests run."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return request.num_tokens - 1 - num_computed_tokens, True


def test_a_request_whose_load_failed_is_loaded_again(make_engine):
    connector = KVTransferConfig(
        kv_connector="AsyncConnector",
        kv_connector_module_path=__name__,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
    )
    engine = make_engine(
        blocks=8, max_model_len=4096, enable_prefix_caching=False, kv_transfer_config=connector
    )
    engine.add("request", range(1, 3 * engine.block_size + 10))  # more than half of the free blocks
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    output = engine.schedule()
    assert pool.get_num_free_blocks() < free  # the load has its blocks
    failed = {"request"}
    engine.finish(
        output, kv_connector_output=KVConnectorOutput(finished_recving=failed, failed_recving=failed)
    )

    engine.step()

    # Nothing else runs: the request gets its blocks again.
    assert pool.get_num_free_blocks() < free
