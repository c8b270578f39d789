# SPDX-License-Identifier: Apache-2.0
"""A KV connector loads a recurrent state in the step that reads it."""

from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.decode_bench_connector import DecodeBenchConnector
from vllm.model_executor.layers.mamba.abstract import MambaBase


class SyncConnector(DecodeBenchConnector):
    """Loads all but the last token of a prompt before the forward; a state that it loads is all ones."""

    def start_load_kv(self, forward_context, **_):
        for blocks, _ in self._connector_metadata.reqs_to_fill.values():
            for layer in forward_context.no_compile_layers.values():
                for state in layer.kv_cache if isinstance(layer, MambaBase) else ():
                    state[blocks[0]] = 1


def test_a_state_is_loaded_before_it_is_copied_to_the_running_block(make_engine):
    connector = KVTransferConfig(
        kv_connector="SyncConnector", kv_connector_module_path=__name__, kv_role="kv_both"
    )
    engine = make_engine(runner=True, enable_prefix_caching=True, kv_transfer_config=connector)
    engine.add("request", range(1, engine.block_size + 2))

    output = engine.step()

    assert output.num_scheduled_tokens == {"request": 1}
    loaded, running = output.scheduled_new_reqs[0].block_ids[engine.mamba_group]
    for state in engine.mamba_states:
        assert (state[loaded] == 1).all()
        assert (state[running] == 1).all()
