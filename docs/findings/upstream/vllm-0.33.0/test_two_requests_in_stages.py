# SPDX-License-Identifier: Apache-2.0
"""Two requests in two pipeline stages with overlapping steps, in a pool that vLLM takes for large enough for each of them."""

from collections import deque

from transformers import Lfm2Config
from vllm.utils.math_utils import cdiv

# Two groups of layers that save no state in the middle of a prefill, and one of attention.
LAYERS = {"num_hidden_layers": 3, "layer_types": ["conv", "conv", "full_attention"]}
BLOCK = {"block_dim": 2048, "block_ff_dim": 4096, "conv_dim": 2048, "conv_dim_out": 2048}
MODEL = Lfm2Config(architectures=["Lfm2ForCausalLM"], **LAYERS, **BLOCK)


def requests_that_end(make_engine, requests=2, more_blocks=0, **given):
    """How many of these requests, each with a token more than two blocks, end within 60 steps."""
    arguments = {"model_config": MODEL, "max_model_len": 512, "max_num_batched_tokens": 128}
    arguments |= {"enable_prefix_caching": True, "async_scheduling": True, "pipeline_parallel_size": 2}
    arguments |= given
    config = make_engine(**arguments)
    specs = [group.kv_cache_spec for group in config.kv_cache_config.kv_cache_groups]
    # What a pool has to have when vLLM starts, and the null block.
    pages = 1 + sum(cdiv(one.max_memory_usage_bytes(config.config), one.page_size_bytes) for one in specs)
    engine = make_engine(pages + more_blocks, **arguments)
    for number in range(requests):
        engine.add(str(number), range(1000 * number, 1000 * number + 257), max_tokens=1)
    in_flight = deque()
    for _ in range(60):  # as `step_with_batch_queue` does
        in_flight.append(engine.schedule())
        if len(in_flight) == engine.config.max_concurrent_batches:
            engine.finish(in_flight.popleft())
    return sum(str(number) not in engine.scheduler.requests for number in range(requests))


def test_two_requests_in_stages_come_to_their_ends(make_engine):
    # Controls: one of the requests, a block more, one stage, and steps that do not overlap.
    assert requests_that_end(make_engine, requests=1) == 1
    for control in ({"more_blocks": 1}, {"pipeline_parallel_size": 1}, {"async_scheduling": False}):
        assert requests_that_end(make_engine, **control) == 2
    assert requests_that_end(make_engine) == 2
