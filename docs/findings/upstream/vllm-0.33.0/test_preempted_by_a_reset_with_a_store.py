# SPDX-License-Identifier: Apache-2.0
"""Mooncake's store beside a reset that preempts: the connector keeps the load and the blocks of a request that is admitted again."""

from types import SimpleNamespace

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.data import MooncakeStoreWorkerMetadata
from vllm.v1.outputs import KVConnectorOutput

SAVED = KVConnectorOutput(kv_connector_worker_meta=MooncakeStoreWorkerMetadata({0: 1}))
STORE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.scheduler"


def behind_a_reset(make_engine, monkeypatch, blocks, reset=True):
    """The scheduler's next step behind a reset that preempts; the store has so many blocks of the request's prompt."""
    found = SimpleNamespace(hit_length=0, tail_key_boundaries=())
    client = SimpleNamespace(lookup=lambda *_, **__: found, discard=lambda _: None)
    monkeypatch.setattr(f"{STORE}.LookupKeyClient", lambda _: client)
    connector = KVTransferConfig(kv_connector="MooncakeStoreConnector", kv_role="kv_both")
    engine = make_engine(enable_prefix_caching=True, kv_transfer_config=connector)
    engine.scheduler.connector.bind_gpu_block_pool(engine.scheduler.kv_cache_manager.block_pool)
    engine.add("request", range(1, 2 * engine.block_size + 10))
    engine.finish(engine.schedule(), kv_connector_output=SAVED)
    found.hit_length = blocks * engine.block_size
    if reset:
        assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    return engine.schedule()


def test_a_request_is_scheduled_behind_a_reset_that_preempts(make_engine, monkeypatch):
    output = behind_a_reset(make_engine, monkeypatch, blocks=0)
    assert list(output.num_scheduled_tokens) == ["request"]


def test_a_request_is_loaded_behind_a_reset_that_preempts(make_engine, monkeypatch):
    output = behind_a_reset(make_engine, monkeypatch, blocks=1)
    assert [one.req_id for one in output.kv_connector_metadata.requests if one.load_spec] == ["request"]
