# SPDX-License-Identifier: Apache-2.0
"""A scheduler of vLLM for a hybrid model without weights; in vLLM's repository tests/v1/core/utils.py has its like.

The layers of NemotronH are made on the meta device, so that block sizes and cache groups are those that vLLM derives from them.
"""

import os

# Before vLLM is imported: its own switch for tests without a GPU, and kernels in Triton's interpreter.
os.environ.update(VLLM_TARGET_DEVICE="cpu", CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")

import pytest
import torch
from transformers import NemotronHConfig
from vllm.config import set_current_vllm_config
from vllm.distributed import (
    cleanup_dist_env_and_memory,
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.distributed.kv_transfer import ensure_kv_transfer_initialized, ensure_kv_transfer_shutdown
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import get_forward_context
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_request_block_hasher,
    init_none_hash,
    resolve_cache_hit_alignment_tokens,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput, SamplerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.worker.cpu_model_runner import CPUModelRunner


class Runner(CPUModelRunner):
    """The forward keeps the metadata that it was given; the sampler accepts as many drafts as the test says."""

    accepted = 0

    def _model_forward(self, input_ids=None, **_):
        self.metadata = get_forward_context().attn_metadata
        self.accepted_before = self.num_accepted_tokens.np.copy()
        return torch.zeros(len(input_ids), 1)

    def _sample(self, logits, drafts):
        rows, width = self.input_batch.num_reqs, 1 + self.num_spec_tokens
        sampled = torch.full((rows, width), -1, dtype=torch.int32)
        for row, count in enumerate(drafts.num_draft_tokens if drafts else [0] * rows):
            sampled[row, : 1 + min(count, self.accepted)] = 7
        return SamplerOutput(sampled, None)


class Drafter:
    """Proposes the same token, as often as there may be drafts."""

    def __init__(self, config):
        self.count = config.num_speculative_tokens

    def propose(self, sampled, *_, **__):
        return [[7] * self.count if tokens else [] for tokens in sampled]


class Engine:
    """The scheduler of a configuration, with sampled tokens that a test names."""

    def __init__(self, config, kv_cache_config, model=None):
        self.config, self.kv_cache_config = config, kv_cache_config
        block_size, self.hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, config)
        for one in (config.cache_config, kv_cache_config):
            one.hash_block_size = self.hash_block_size
            one.cache_hit_alignment_tokens = resolve_cache_hit_alignment_tokens(
                kv_cache_config, config, block_size, self.hash_block_size
            )
        self.block_size = config.cache_config.block_size
        self.scheduler = config.scheduler_config.get_scheduler_cls()(
            config,
            kv_cache_config,
            StructuredOutputManager(config),
            block_size,
            hash_block_size=self.hash_block_size,
        )
        self.runner = None
        if model is not None:
            model.compute_logits = lambda hidden: hidden
            self.runner = Runner(config, torch.device("cpu"))
            self.runner.model = model
            if config.speculative_config is not None:
                self.runner.drafter.initialize_attn_backend = lambda *_: None  # it has no layers
            ensure_kv_transfer_initialized(config, kv_cache_config)
            self.runner.initialize_kv_cache(kv_cache_config)
        groups = kv_cache_config.kv_cache_groups
        self.mamba_group = next(
            at for at, one in enumerate(groups) if isinstance(one.kv_cache_spec, MambaSpec)
        )
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        self.mamba_manager = managers[self.mamba_group]
        hash_function = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_function)
        self.hasher = get_request_block_hasher(self.hash_block_size, hash_function)

    @property
    def mamba_metadata(self):
        """What the layers with a recurrent state were given in the last forward of the runner."""
        return next(one for one in self.runner.metadata.values() if hasattr(one, "num_prefill_tokens"))

    @property
    def mamba_states(self):
        """The tensors of the layer with a recurrent state, by block."""
        (name,) = self.kv_cache_config.kv_cache_groups[self.mamba_group].layer_names
        return self.config.compilation_config.static_forward_context[name].kv_cache

    def add(self, request_id, prompt, max_tokens=16):
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self.scheduler.add_request(Request(request_id, list(prompt), params, None, block_hasher=self.hasher))

    def schedule(self):
        return self.scheduler.schedule()

    def finish(self, output, accepted=0, kv_connector_output=None):
        """Hand back a sampled token, after `accepted` drafts, for each row that has computed all of its tokens."""
        sampled = []
        for name in output.num_scheduled_tokens:
            request = self.scheduler.requests.get(name)  # gone, where a step overlaps with the last one
            drafts = output.scheduled_spec_decode_tokens.get(name, [])[:accepted]
            done = request is not None and request.num_computed_tokens >= request.num_tokens
            sampled.append([*drafts, 7] if done else [])
        names = list(output.num_scheduled_tokens)
        rows = {name: row for row, name in enumerate(names)}
        result = ModelRunnerOutput(names, rows, sampled, kv_connector_output=kv_connector_output)
        self.scheduler.update_from_output(output, result)
        if count := self.scheduler.num_spec_tokens:
            self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[7] * count] * len(names)))

    def step(self, accepted=0):
        output = self.schedule()
        if self.runner is None:
            self.finish(output, accepted)
            return output
        self.runner.accepted = accepted
        self.runner.execute_model(output)
        self.scheduler.update_from_output(output, self.runner.sample_tokens(None))
        if drafts := self.runner.take_draft_token_ids():
            self.scheduler.update_draft_token_ids(drafts)
        return output

    def run(self, request_id, prompt, max_tokens=1):
        self.add(request_id, prompt, max_tokens)
        while self.scheduler.has_unfinished_requests():
            self.step()


@pytest.fixture
def make_engine(tmp_path, monkeypatch):
    """A function of the engine's arguments, as `vllm serve` has them."""

    def make(blocks=64, runner=False, model_config=None, **arguments):
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", str(int(not runner)))
        # A compiled function of the attention layer, whose forward does not run here.
        monkeypatch.setattr("vllm._custom_ops.cpu_attn_get_scheduler_metadata", lambda **_: None)
        monkeypatch.setattr("torch.cuda.Event", lambda **_: None)  # the runner makes one where steps overlap
        nemotron = NemotronHConfig(
            architectures=["NemotronHForCausalLM"],
            layers_block_type=["linear_attention", "full_attention"],
            max_position_embeddings=32768,
            num_nextn_predict_layers=1,
        )
        (model_config or nemotron).save_pretrained(tmp_path)
        arguments = {"max_num_batched_tokens": 8192, "num_gpu_blocks_override": blocks, **arguments}
        config = EngineArgs(str(tmp_path), skip_tokenizer_init=True, **arguments).create_engine_config()
        # The CPU platform has it off.
        config.scheduler_config.async_scheduling = arguments.get("async_scheduling", False)
        init_distributed_environment(1, 0, f"file://{tmp_path}/store", 0, "gloo")
        with set_current_vllm_config(config):
            ensure_model_parallel_initialized(1, 1)
            with torch.device("meta"):
                model = initialize_model(config)
        current_platform.update_block_size_for_backend(config)
        layers = config.compilation_config.static_forward_context
        specs = [{name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}]
        layouts = get_supported_kv_cache_layouts(get_current_attn_backends(config))
        resolve_kv_cache_layout(config, [[one.name for one in layouts]], specs[0].values())
        groups = get_global_kv_cache_groups(config, specs)
        caches = generate_scheduler_kv_cache_config(get_kv_cache_configs(config, specs, [1 << 40], groups))
        config.cache_config.num_gpu_blocks = caches.num_blocks
        with set_current_vllm_config(config):
            return Engine(config, caches, model if runner else None)

    yield make
    ensure_kv_transfer_shutdown()
    cleanup_dist_env_and_memory()
