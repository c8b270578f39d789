"""The worker of the release's engine with its V2 model runner: its own steps, around a forward of ours.

The runner's methods run as they are: what they make of a scheduler's output, block tables, metadata, copies before and after
the forward. Ours are the layers, the sampler, the drafts, and what needs a GPU and has no part in states.
"""

import importlib
from types import SimpleNamespace
from typing import Any

import torch

from subjects.kit.objects import bare, made_with
from subjects.vllm.engine.config import ATTRIBUTES
from subjects.vllm.engine.connector import in_place
from subjects.vllm.engine.parts import (
    GPU_FOLDER,
    CommonMetadata,
    DraftsV2,
    GraphsV2,
    NoLogprobs,
    SamplerV2,
    ToyModel,
    Unneeded,
    with_groups_reversed,
    without_a_device,
    without_collection,
)
from subjects.vllm.engine.settings import RELEASED, LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.worker import LiveWorker
from subjects.vllm.release import find

_STATE = f"{GPU_FOLDER}.model_states.mamba_hybrid"
ON_CPU = torch.device("cpu")
_ATTRIBUTES = ATTRIBUTES["runner"]


class LiveWorkerV2(LiveWorker):
    """Of the release's V2 model runner."""

    def __init__(
        self, settings: LiveSettings, config: Any, caches: Any, memory: LiveMemory, plan: Any
    ) -> None:
        super().__init__(settings, config, caches, memory, plan)
        self.batch: Any = None
        self.metadata: Any = None
        with self.inside.functions():
            self.runner = self._runner()

    @property
    def slots(self) -> dict[str, int]:
        """The slot of each request that the worker knows, and those that are neither a request's nor free."""
        states = self.runner.req_states
        held = dict(states.req_id_to_index)
        lost = set(range(self.settings.max_num_seqs)) - {*held.values(), *states.free_indices}
        return held | {f"slot {slot}, neither free nor of a request": slot for slot in lost}

    def _runner(self) -> Any:
        without_a_device()
        runner = bare(find(f"{GPU_FOLDER}.model_runner:GPUModelRunner"))
        self._configure(runner)
        self._add_buffers(runner)
        self._add_parts(runner)
        self._caches(runner)
        # A full graph's layers are handed nothing when it runs.
        self._notes(runner, "prepare_inputs", "batch")
        self._notes(runner.model_state, "prepare_attn", "metadata")
        return runner

    def _configure(self, runner: Any) -> None:
        """Attributes that the runner's constructor takes from the configuration."""
        settings, config = self.settings, self.config
        for name in _ATTRIBUTES["configurations"]:
            setattr(runner, f"{name}_config", getattr(config, f"{name}_config"))
        for name in _ATTRIBUTES["false"]:
            setattr(runner, name, False)
        for name in _ATTRIBUTES["none"]:
            runner.__dict__[name] = None
        runner.vllm_config, runner.device = config, ON_CPU
        runner.dtype = runner.kv_cache_dtype = torch.float32
        runner.vocab_size = config.model_config.get_vocab_size()
        runner.max_model_len, runner.max_num_tokens = settings.max_model_len, settings.max_num_batched_tokens
        runner.max_num_reqs = settings.max_num_seqs
        runner.is_first_pp_rank = runner.is_last_pp_rank = True
        if not hasattr(type(runner), "dp_size"):
            runner.dp_size, runner.dp_rank = 1, 0
        runner.dcp_size, runner.dcp_rank, runner.cp_interleave = 1, 0, 1
        runner._draft_workspace_lane = 0
        runner.num_speculative_steps = settings.num_spec
        find(f"{GPU_FOLDER}.buffer_utils:set_default_max_concurrency")(config.max_concurrent_batches)

    def _add_buffers(self, runner: Any) -> None:
        """The release's own state of requests, input buffers and drafts."""
        settings = self.settings
        runner.req_states = made_with(
            find(f"{GPU_FOLDER}.states:RequestState"),
            max_num_reqs=settings.max_num_seqs,
            max_model_len=settings.max_model_len,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            num_speculative_steps=settings.num_spec,
            vocab_size=runner.vocab_size,
            device=ON_CPU,
            num_prefill_lookahead=max(1, getattr(self.config, "num_prefill_lookahead_tokens", 1)),
        )
        runner.input_buffers = find(f"{GPU_FOLDER}.input_batch:InputBuffers")(
            max_num_reqs=settings.max_num_seqs,
            max_num_tokens=settings.max_num_batched_tokens + 64,
            device=ON_CPU,
        )
        runner.draft_tokens_handler = bare(
            find(f"{GPU_FOLDER}.spec_decode.utils:DraftTokensHandler"),
            device=ON_CPU,
            copy_stream=None,
            copy_event=None,
            req_ids=[],
            draft_tokens_np=None,
            num_draft_tokens=0,
        )

    def _add_parts(self, runner: Any) -> None:
        """The model, the sampler, the drafts, and what has no part in states."""
        runner.ec_connector = SimpleNamespace(
            no_forward=lambda _: find("vllm.v1.outputs:EMPTY_MODEL_RUNNER_OUTPUT")
        )
        runner.step_timing = runner.eplb = runner.lora_state = Unneeded()
        runner.prompt_logprobs_worker = NoLogprobs()
        runner.sampler = runner.rejection_sampler = SamplerV2(self)
        runner.speculator = DraftsV2(self) if self.settings.num_spec else None
        runner.cudagraph_manager = GraphsV2(self)
        runner.model = ToyModel(self)
        runner.model_state = find(f"{_STATE}:MambaHybridModelState")(self.config, runner.model, None, ON_CPU)
        runner.decode_query_len = self.settings.num_spec + runner.model_state.num_new_sampled_tokens_per_step

    def _notes(self, owner: Any, method: str, name: str) -> None:
        """Keep what a method of the release's returns, for the forward, as the attribute `name`."""
        released = getattr(owner, method)

        def noting(*arguments: Any, **keywords: Any) -> Any:
            made = released(*arguments, **keywords)
            setattr(self, name, made)
            return made

        setattr(owner, method, noting)

    def _caches(self, runner: Any) -> None:
        """Block tables, metadata builders, and the memory of the layers."""
        caches, config = self.caches, self.config
        runner.kv_cache_config = caches
        specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
        sizes = [spec.block_size for spec in specs]
        runner.block_tables = made_with(
            find(f"{GPU_FOLDER}.block_table:BlockTables"),
            block_sizes=sizes,
            max_num_reqs=self.settings.max_num_seqs,
            max_num_batched_tokens=self.settings.max_num_batched_tokens + 64,
            max_num_blocks_per_group=[self._width(spec) for spec in specs],
            device=ON_CPU,
            kernel_block_sizes=sizes,
            slot_mapping_enabled=[getattr(spec, "uses_slot_mapping", True) for spec in specs],
            dcp_sharded=[getattr(spec, "dcp_sharded", True) for spec in specs],
        )
        AttentionGroup = find("vllm.v1.worker.utils:AttentionGroup")
        runner.attn_groups = []
        with find("vllm.config:set_current_vllm_config")(config):
            for number, group in enumerate(caches.kv_cache_groups):
                kind = self.memory.layers[group.layer_names[0]].kind
                backend = CommonMetadata if kind == "attention" else self.inside.backend(kind)
                made = AttentionGroup(backend, group.layer_names, group.kv_cache_spec, number)
                made.create_metadata_builders(config, ON_CPU, None)
                runner.attn_groups.append([made])
        context = config.compilation_config.static_forward_context
        tensors = self.memory.caches
        context.update({name: SimpleNamespace(kv_cache=cache) for name, cache in tensors.items()})
        released = self.settings.connector in RELEASED
        runner.kv_connector = self._connector(self.memory.pages if released else tensors)
        runner.kv_caches = list(self.memory.pools)
        runner.kv_block_zeroer = SimpleNamespace(zero_block_ids=self.memory.zero)
        if hasattr(runner.model_state, "initialize_kv_cache"):
            runner.model_state.initialize_kv_cache(caches, runner.block_tables)

    def initialize_again(self) -> None:
        module = importlib.import_module(f"{GPU_FOLDER}.cudagraph_utils")
        config = find("vllm.config:set_current_vllm_config")(self.config)
        self.former.append(self.runner.block_tables)
        with config, self.inside.functions(), without_collection(module):
            caches = self.caches
            for self.caches in (with_groups_reversed(caches), caches):
                module._teardown_profiling_state(self.runner)
                self.runner.cudagraph_manager = GraphsV2(self)
                self._caches(self.runner)

    def _connector(self, tensors: dict[str, Any]) -> Any:
        """The release's calls around a step for the connector, or for none."""
        with in_place(self.connector):
            return find(f"{GPU_FOLDER}.kv_connector:get_kv_connector")(self.config, tensors)

    def _width(self, spec: Any) -> int:
        """Columns of the group's block table."""
        most = self.settings.max_model_len
        if hasattr(spec, "block_table_token_alignment"):
            width = find("vllm.v1.worker.block_table:get_block_table_width")
            columns = spec.max_num_blocks_per_req(self.config, most)
            return int(width(columns, spec.block_size, token_alignment=spec.block_table_token_alignment))
        # Up to 0.29 the runner reckons itself.
        if not hasattr(spec, "num_speculative_blocks"):
            return max(128, most) // spec.block_size
        columns = -(-most // spec.block_size) if self.settings.prefix_caching else 1
        return columns + int(spec.num_speculative_blocks)

    def run(self, metadata: dict[str, Any], _: Any = None) -> torch.Tensor:
        """The token that the model says after each of the batch's tokens."""
        if self.dummy:
            return self.dummy_layers(metadata, self.settings.max_num_batched_tokens + 64)
        batch = self.batch
        starts = batch.query_start_loc.tolist()[: batch.num_reqs + 1]
        return self.layers(batch.req_ids, starts, batch.input_ids[: batch.num_tokens_after_padding], metadata)
