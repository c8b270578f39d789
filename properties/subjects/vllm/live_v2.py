"""The worker of an engine of lives with the release's second model runner: its own steps, around a forward of ours.

The runner's methods run as they are: what they make of a scheduler's output, block tables, metadata, copies before and after
the forward. Ours are the layers, the sampler, the drafts, and what needs a GPU and has no part in states.
"""

import importlib
from types import SimpleNamespace
from typing import Any

import torch

from properties.subjects.vllm.live_config import BUILDERS, LiveSettings, bare
from properties.subjects.vllm.live_forward import Forward
from properties.subjects.vllm.live_states import Memory
from properties.subjects.vllm.release import find, optional

_GPU = "vllm.v1.worker.gpu"
_CPU = torch.device("cpu")


class LiveWorkerV2:
    """Executes steps. What the scheduler is told of one is `execute`'s result; `rows` is what its forward has read."""

    def __init__(self, settings: LiveSettings, config: Any, caches: Any, memory: Memory, plan: Any) -> None:
        self.settings, self.config, self.caches, self.memory = settings, config, caches, memory
        self.plan = plan
        self.forward: Forward | None = None
        self.batch: Any = None
        self.metadata: Any = None
        self.runner = self._runner()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.forward.rows if self.forward is not None else []

    @property
    def stray(self) -> list[dict[str, Any]]:
        return self.forward.stray if self.forward is not None else []

    @property
    def slots(self) -> dict[str, int]:
        """The slot of each request that the worker knows."""
        return dict(self.runner.req_states.req_id_to_index)

    def execute(self, scheduled: Any) -> Any:
        """What the model runner says of the step."""
        self.forward = None
        with find("vllm.config:set_current_vllm_config")(self.config):
            done = self.runner.execute_model(scheduled)
            if done is None:
                done = self.runner.sample_tokens(None)
        return done

    def drafts(self) -> Any:
        return self.runner.take_draft_token_ids()

    def _runner(self) -> Any:
        settings, config = self.settings, self.config
        vars(importlib.import_module(f"{_GPU}.model_runner"))["AsyncOutput"] = _Output
        vars(importlib.import_module(f"{_GPU}.buffer_utils"))["NonUvaBuffer"] = _HostBuffer
        runner = bare(find(f"{_GPU}.model_runner:GPUModelRunner"))
        for name in (
            "model",
            "cache",
            "compilation",
            "lora",
            "load",
            "parallel",
            "scheduler",
            "speculative",
            "observability",
        ):
            setattr(runner, f"{name}_config", getattr(config, f"{name}_config"))
        runner.vllm_config, runner.device = config, _CPU
        runner.dtype = runner.kv_cache_dtype = torch.float32
        runner.vocab_size = config.model_config.get_vocab_size()
        runner.max_model_len, runner.max_num_tokens = settings.max_model_len, settings.max_num_batched_tokens
        runner.max_num_reqs = settings.max_num_seqs
        for name in (
            "use_pp",
            "check_ep_fault",
            "use_dcp",
            "supports_mm_inputs",
            "uses_inputs_embeds",
            "is_pooling_model",
            "is_encoder_decoder",
            "use_aux_hidden_state_outputs",
        ):
            setattr(runner, name, False)
        for name in (
            "pp_handler",
            "intermediate_tensors",
            "ubatch_runner",
            "encoder_cache",
            "pcp_manager",
            "pooling_runner",
            "adaptive_verification",
            "fast_prefill",
            "rejection_sampler",
            "batch_sharder",
            "structured_outputs_worker",
            "execute_model_state",
            "aux_output_connector",
            "output_copy_stream",
            "main_stream",
            "kv_block_zeroer",
        ):
            runner.__dict__[name] = None
        runner.is_first_pp_rank = runner.is_last_pp_rank = True
        runner.dcp_size, runner.dcp_rank, runner.cp_interleave = 1, 0, 1
        runner._draft_workspace_lane = 0
        runner.num_speculative_steps = settings.num_spec
        find(f"{_GPU}.buffer_utils:set_default_max_concurrency")(config.max_concurrent_batches)
        runner.req_states = find(f"{_GPU}.states:RequestState")(
            max_num_reqs=settings.max_num_seqs,
            max_model_len=settings.max_model_len,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            num_speculative_steps=settings.num_spec,
            vocab_size=runner.vocab_size,
            device=_CPU,
            num_prefill_lookahead=max(1, config.num_prefill_lookahead_tokens),
        )
        runner.input_buffers = find(f"{_GPU}.input_batch:InputBuffers")(
            max_num_reqs=settings.max_num_seqs,
            max_num_tokens=settings.max_num_batched_tokens + 64,
            device=_CPU,
        )
        runner.draft_tokens_handler = bare(
            find(f"{_GPU}.spec_decode.utils:DraftTokensHandler"),
            device=_CPU,
            copy_stream=None,
            copy_event=None,
            req_ids=[],
            draft_tokens_np=None,
            num_draft_tokens=0,
        )
        runner.ec_connector = SimpleNamespace(
            no_forward=lambda _: find("vllm.v1.outputs:EMPTY_MODEL_RUNNER_OUTPUT")
        )
        runner.step_timing = _Nothing()
        runner.eplb = _Nothing()
        runner.lora_state = _Nothing()
        runner.prompt_logprobs_worker = _PromptLogprobs()
        runner.kv_connector = _Connector(self)
        runner.sampler = _Sampler(self)
        runner.rejection_sampler = runner.sampler
        runner.speculator = _Drafts(self) if settings.num_spec else None
        runner.cudagraph_manager = _Graphs(self)
        runner.model = _Model(self)
        runner.model_state = find(f"{_GPU}.model_states.mamba_hybrid:MambaHybridModelState")(
            config, runner.model, None, _CPU
        )
        runner.decode_query_len = settings.num_spec + runner.model_state.num_new_sampled_tokens_per_step
        self._caches(runner)
        return runner

    def _caches(self, runner: Any) -> None:
        """Block tables, metadata builders, and the memory of the layers."""
        caches, config = self.caches, self.config
        runner.kv_cache_config = caches
        widths, enabled = [], []
        width = optional("vllm.v1.worker.block_table:get_block_table_width")
        for group in caches.kv_cache_groups:
            spec = group.kv_cache_spec
            most = spec.max_num_blocks_per_req(config, self.settings.max_model_len)
            widths.append(width(most, spec.block_size, token_alignment=spec.block_table_token_alignment))
            enabled.append(spec.uses_slot_mapping)
        runner.block_tables = find(f"{_GPU}.block_table:BlockTables")(
            block_sizes=[group.kv_cache_spec.block_size for group in caches.kv_cache_groups],
            max_num_reqs=self.settings.max_num_seqs,
            max_num_batched_tokens=self.settings.max_num_batched_tokens + 64,
            max_num_blocks_per_group=widths,
            device=_CPU,
            slot_mapping_enabled=enabled,
            dcp_sharded=[group.kv_cache_spec.dcp_sharded for group in caches.kv_cache_groups],
        )
        AttentionGroup = find("vllm.v1.worker.utils:AttentionGroup")
        runner.attn_groups = []
        with find("vllm.config:set_current_vllm_config")(config):
            for number, group in enumerate(caches.kv_cache_groups):
                kind = "attention" if not number else self.settings.kinds[number - 1]
                backend = _Attention if not number else find(BUILDERS[kind])
                made = AttentionGroup(backend, group.layer_names, group.kv_cache_spec, number)
                made.create_metadata_builders(config, _CPU, None)
                runner.attn_groups.append([made])
        context = config.compilation_config.static_forward_context
        for name, layer in self.memory.layers.items():
            states = layer.states[0] if layer.kind == "attention" else list(layer.states)
            context[name] = SimpleNamespace(kv_cache=states)
        runner.kv_caches = list(self.memory.pools)
        runner.kv_block_zeroer = SimpleNamespace(zero_block_ids=self._zero)
        runner.model_state.initialize_kv_cache(caches, runner.block_tables)

    def _zero(self, blocks: list[int]) -> None:
        for pool in self.memory.pools:
            pool[blocks] = 0

    def run(self, metadata: dict[str, Any], batch: Any) -> torch.Tensor:
        """The layers of the batch; the token that the model says after each of its tokens."""
        starts = batch.query_start_loc.tolist()
        ids = batch.input_ids.tolist()[: starts[batch.num_reqs]]
        self.forward = Forward(self.memory, batch.req_ids, starts, ids)
        for number, layers in enumerate(self.memory.groups):
            found = metadata[self.caches.kv_cache_groups[number].layer_names[0]]
            if number:
                self.forward.recurrent(number, layers, found)
            else:
                lengths = found.seq_lens.tolist()
                computed = [lengths[row] - (starts[row + 1] - starts[row]) for row in range(batch.num_reqs)]
                self.forward.attention(
                    layers,
                    found.block_table_tensor.tolist(),
                    found.slot_mapping.tolist(),
                    computed,
                    self.settings.kv_block_size,
                )
        following = torch.zeros(batch.num_tokens_after_padding, dtype=torch.int64)
        following[: len(ids)] = torch.tensor(self.forward.following, dtype=torch.int64)
        return following


class _HostBuffer:
    """Memory of the host that a device reads where it is."""

    def __init__(self, size: Any, dtype: torch.dtype) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()

    def uva(self, n: int | None = None) -> torch.Tensor:
        return self.cpu if n is None else self.cpu[:n]


class _Nothing:
    """Takes part in a step, and does nothing in it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _PromptLogprobs(_Nothing):
    def compute_prompt_logprobs(self, *_: Any) -> dict[str, Any]:
        return {}

    compute_prompt_token_id_logprobs = compute_prompt_logprobs


class _Attention:
    """The backend of the attention group: its metadata are the common ones."""

    supports_update_block_table = False
    requires_block_table_width = False

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @classmethod
    def get_builder_cls(cls) -> Any:
        return cls

    @classmethod
    def full_cls_name(cls) -> tuple[str, str]:
        return cls.__module__, cls.__name__

    def build(self, common_prefix_len: int, common_attn_metadata: Any, **_: Any) -> Any:
        return common_attn_metadata


class _Model(torch.nn.Module):
    """The model that the runner calls."""

    def __init__(self, worker: LiveWorkerV2) -> None:
        super().__init__()
        object.__setattr__(self, "worker", worker)

    def forward(self, **_: Any) -> torch.Tensor:
        metadata = find("vllm.forward_context:get_forward_context")().attn_metadata
        return self.worker.run(metadata, self.worker.batch)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def get_mamba_state_copy_funcs(self, types: Any) -> dict[Any, Any]:
        conv = find("vllm.model_executor.layers.mamba.mamba_utils:get_conv_copy_spec")
        temporal = find("vllm.model_executor.layers.mamba.mamba_utils:get_temporal_copy_spec")
        return {one: (conv,) if "SHORT" in str(one.name) else (conv, temporal) for one in types}


class _Connector(_Nothing):
    """No connector; where a full graph runs, what its layers are to be handed."""

    def __init__(self, worker: LiveWorkerV2) -> None:
        self.worker = worker

    def pre_forward(self, scheduled: Any, batch: Any, attn_metadata: Any = None) -> None:
        self.worker.batch, self.worker.metadata = batch, attn_metadata

    def no_forward(self, scheduled: Any) -> Any:
        return find("vllm.v1.outputs:EMPTY_MODEL_RUNNER_OUTPUT")


class _Graphs:
    """Full graphs of decodes, with rows of padding."""

    def __init__(self, worker: LiveWorkerV2) -> None:
        self.worker = worker

    def dispatch(
        self, num_reqs: int, num_tokens: int, uniform_token_count: Any = None, *_: Any, **__: Any
    ) -> Any:
        Descriptor = find(f"{_GPU}.cudagraph_utils:BatchExecutionDescriptor")
        modes = find("vllm.config:CUDAGraphMode")
        settings = self.worker.settings
        rows = min(num_reqs + settings.padding, settings.max_num_seqs)
        # As graphs are captured: for rows of all drafts alone.
        if settings.padding and uniform_token_count == settings.num_spec + 1:
            return Descriptor(modes.FULL, rows * uniform_token_count, rows, uniform_token_count)
        return Descriptor(modes.NONE, num_tokens, num_reqs)

    def run_fullgraph(self, descriptor: Any) -> torch.Tensor:
        return self.worker.run(self.worker.metadata, self.worker.batch)


class _Sampler(_Nothing):
    """Takes the drafts that are what the model says, and its next token."""

    compute_nans = False

    def __init__(self, worker: LiveWorkerV2) -> None:
        self.worker = worker
        self.penalties_state = SimpleNamespace(output_bin_counts=None)
        nothing = SimpleNamespace(gpu=None)
        self.sampling_states = SimpleNamespace(temperature=nothing, seeds=nothing)

    def __call__(self, said: torch.Tensor, batch: Any, *_: Any) -> Any:
        runner = self.worker.runner
        bounds = batch.cu_num_logits_np.tolist()
        places = batch.logits_indices.tolist()
        ids, told = batch.input_ids.tolist(), said.tolist()
        sampled = torch.zeros(batch.num_reqs, self.worker.settings.num_spec + 1, dtype=torch.int64)
        counts = torch.zeros(batch.num_reqs, dtype=torch.int32)
        for row in range(batch.num_reqs):
            tokens = []
            for at in range(bounds[row], bounds[row + 1]):
                tokens.append(told[at])
                if at + 1 < bounds[row + 1] and ids[places[at] + 1] != told[at]:
                    break
            sampled[row, : len(tokens)] = torch.tensor(tokens)
            counts[row] = len(tokens)
        counts, rejected = find(f"{_GPU}.input_batch:get_num_sampled_and_rejected")(
            counts, batch.seq_lens, batch.cu_num_logits, batch.idx_mapping, runner.req_states.prefill_len.gpu
        )
        Output = find(f"{_GPU}.sample.output:SamplerOutput")
        return Output(sampled, None, None, counts, rejected)


class _Drafts(_Nothing):
    """Proposes what the model will say, as far as the plan wants it accepted, and then something else."""

    draft_logits = None
    supports_mm_inputs = False

    def __init__(self, worker: LiveWorkerV2) -> None:
        self.worker = worker

    def propose(self, batch: Any, *_: Any, **__: Any) -> torch.Tensor:
        count = self.worker.settings.num_spec
        states = self.worker.runner.req_states
        totals, ids = states.total_len.gpu.tolist(), states.all_token_ids.gpu
        drafts = torch.zeros(batch.num_reqs, count, dtype=torch.int64)
        for row, name in enumerate(batch.req_ids):
            slot = int(batch.idx_mapping[row])
            known = ids[slot, : totals[slot]].tolist()
            drafts[row] = torch.tensor(self.worker.plan(name, known, count))
        return drafts


class _Output:
    """The sampled tokens, without a copy from a device."""

    def __init__(
        self, model_runner_output: Any, sampler_output: Any, num_sampled_tokens: Any, **_: Any
    ) -> None:
        self.output = model_runner_output
        tokens, counts = sampler_output.sampled_token_ids.tolist(), num_sampled_tokens.tolist()
        self.output.sampled_token_ids = [row[:count] for row, count in zip(tokens, counts, strict=True)]

    def get_output(self) -> Any:
        return self.output
