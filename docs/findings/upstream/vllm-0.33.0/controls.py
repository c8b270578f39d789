# SPDX-License-Identifier: Apache-2.0
"""For each test of this folder the same steps where nothing is wrong: one condition of the report is left out.

pytest controls.py
"""

import pytest
from test_copied_before_it_is_loaded import SyncConnector  # noqa: F401 - vLLM looks for it by its name
from test_pause_before_the_result_of_a_step import computed_by_the_runner
from test_preempted_behind_its_row import preempted_in_a_step
from test_preempted_by_a_reset_with_a_store import behind_a_reset
from test_retry_of_a_failed_load import AsyncConnector  # noqa: F401
from test_second_reset_before_a_step import reset_twice
from test_token_of_a_stage_behind_a_pause import taken_in_before_the_decode
from vllm.config import KVTransferConfig
from vllm.v1.outputs import KVConnectorOutput


def drafts(count):
    return {"method": "custom_class", "model": "conftest.Drafter", "num_speculative_tokens": count}


def connector(name, **more):
    return KVTransferConfig(kv_connector=name, kv_connector_module_path=__name__, kv_role="kv_both", **more)


def test_one_token_prompt_without_drafts(make_engine):
    engine = make_engine(runner=True)
    engine.add("decoding", range(1, 100))
    engine.step()
    engine.add("short", [5])
    engine.step()
    assert engine.mamba_metadata.num_prefill_tokens <= 1


def test_checkpoint_past_the_boundary_behind_a_whole_block(make_engine):
    engine = make_engine(enable_prefix_caching=True)
    size = engine.block_size
    engine.run("first", range(1, 2 * size + 1))
    engine.add("second", [*range(1, size + 1), *range(5000, 5000 + size + 2)])
    output = engine.step()
    (new,) = output.scheduled_new_reqs
    assert new.num_computed_tokens % size == 0
    end = new.num_computed_tokens + output.num_scheduled_tokens["second"]
    checkpoint, _ = engine.mamba_manager._checkpoints.get("second", (0, 0))
    blocks = enumerate(engine.mamba_manager.req_to_blocks["second"], 1)
    cached = [at * size for at, block in blocks if block.block_hash_num_tokens == size]
    assert {at for at in cached if at > new.num_computed_tokens} <= {end, checkpoint}


def test_copy_of_a_copy_in_two_steps(make_engine):
    unit = 32
    engine = make_engine(enable_prefix_caching=True, prefix_match_unit=unit)
    shared = list(range(1, engine.block_size - unit + 1))
    engine.run("first", [*shared, 5])
    block = [*shared, *range(9000, 9000 + unit)]
    engine.add("second", block)
    engine.step()
    engine.add("third", [*block, 5])
    copies = engine.schedule().kv_cache_block_copies
    assert not {copy.src_block_id for copy in copies} & {copy.dst_block_id for copy in copies}


def test_last_chunk_of_a_preempted_request_without_drafts(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True)
    budget = engine.scheduler.max_num_scheduled_tokens
    blocks = budget // engine.block_size * engine.block_size
    engine.add("first", range(1, budget - blocks - 1))
    engine.add("second", range(1000, 1000 + blocks))
    for _ in range(2):
        engine.step()
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    engine.step()
    assert engine.step().num_scheduled_tokens["second"] == 2
    assert engine.mamba_metadata.num_prefill_tokens == 2


def test_checkpoint_before_the_last_chunk_with_two_drafts(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True, speculative_config=drafts(2))
    size = engine.block_size
    whole = engine.scheduler.max_num_scheduled_tokens // size
    shared = range(1, (whole + 2) * size + 7)
    engine.run("first", [*shared, *range(90_000, 90_000 + size)])
    engine.add("second", [*shared, *range(120_000, 120_000 + 2 * size)])
    engine.step()
    assert engine.step().num_scheduled_tokens == {"second": 2 * size}
    metadata = engine.mamba_metadata
    checkpoint = metadata.checkpoint_meta and metadata.checkpoint_meta.state_indices[0].item()
    assert checkpoint != metadata.state_indices_tensor_p[0].item()


@pytest.mark.parametrize("overlap", [False, True])
def test_reset_with_a_connector_with_no_step_in_flight(make_engine, overlap):
    config = KVTransferConfig(kv_connector="DecodeBenchConnector", kv_role="kv_both")
    engine = make_engine(kv_transfer_config=config, async_scheduling=overlap)
    engine.add("request", range(1, 100))
    output = engine.schedule()
    if overlap:
        engine.finish(output)
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)


def test_retry_of_a_failed_load_with_more_free_blocks(make_engine):
    config = connector("AsyncConnector", kv_load_failure_policy="recompute")
    engine = make_engine(
        blocks=16, max_model_len=4096, enable_prefix_caching=False, kv_transfer_config=config
    )
    engine.add("request", range(1, 3 * engine.block_size + 10))
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = pool.get_num_free_blocks()
    failed = {"request"}
    result = KVConnectorOutput(finished_recving=failed, failed_recving=failed)
    engine.finish(engine.schedule(), kv_connector_output=result)
    engine.step()
    assert pool.get_num_free_blocks() < free


def test_copied_before_it_is_loaded_inside_of_a_block(make_engine):
    config = connector("SyncConnector")
    engine = make_engine(runner=True, enable_prefix_caching=True, kv_transfer_config=config)
    engine.add("request", range(1, engine.block_size))
    output = engine.step()
    assert output.num_scheduled_tokens == {"request": 1}
    running = output.scheduled_new_reqs[0].block_ids[engine.mamba_group][-1]
    for state in engine.mamba_states:
        assert (state[running] == 1).all()


def test_left_out_of_a_step_but_never_left_out(make_engine):
    engine = make_engine(runner=True, enable_prefix_caching=True, speculative_config=drafts(1))
    engine.add("decoding", [5, 6])
    engine.step()
    engine.step(accepted=1)
    engine.step()
    row = engine.runner.input_batch.req_id_to_index["decoding"]
    assert engine.runner.accepted_before[row] == 2


def test_second_reset_behind_a_step(make_engine):
    reset_twice(make_engine, between=lambda engine: engine.step())


@pytest.mark.parametrize(("accepted", "pause"), [(0, False), (1, False), (1, True)])
def test_pause_before_the_result_of_a_step_without_one_or_rejected_drafts(make_engine, accepted, pause):
    assert computed_by_the_runner(make_engine, accepted, pause) == 3 + accepted


def test_preempted_by_a_reset_with_a_store_behind_a_step(make_engine, monkeypatch):
    output = behind_a_reset(make_engine, monkeypatch, blocks=1, reset=False)
    assert list(output.num_scheduled_tokens) == ["request"]


def test_token_of_a_stage_without_a_pause(make_engine, monkeypatch):
    assert taken_in_before_the_decode(make_engine, monkeypatch, pause=False) == [[7]]


def test_preempted_without_priorities(make_engine):
    output, filled, hit = preempted_in_a_step(make_engine, policy="fcfs")
    assert list(output.num_scheduled_tokens) == ["victim"]
    assert hit == filled
