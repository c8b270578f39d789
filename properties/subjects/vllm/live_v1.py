"""The worker of an engine of lives with the release's first model runner: the runner as it is, around a forward of ours.

The constructor and every method of the runner run. Ours are the layers, the sampler and the drafter. Streams and events of a
device, which there is none of, are replaced by ones that are done at once.
"""

import contextlib
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from properties.subjects.vllm.live_config import BUILDERS, LiveSettings
from properties.subjects.vllm.live_forward import LiveForward
from properties.subjects.vllm.live_states import LiveMemory
from properties.subjects.vllm.release import find

_FIRST_RUNNER = "vllm.v1.worker.gpu_model_runner"
_HOST = torch.device("cpu")
_ASKED_BY_V1 = {
    "is_multimodal_raw_input_only_model": False,
    "uses_alibi": False,
    "uses_xdrope_dim": 0,
    "mrope_num_dims": 0,
}


class LiveWorkerV1:
    """Executes steps. What the scheduler is told of one is `execute`'s result; `rows` is what its forward has read."""

    def __init__(
        self, settings: LiveSettings, config: Any, caches: Any, memory: LiveMemory, plan: Any
    ) -> None:
        self.settings, self.config, self.caches, self.memory = settings, config, caches, memory
        self.plan = plan
        self.forward: LiveForward | None = None
        self.texts: dict[str, list[int]] = {}
        """The tokens of each request that the forward has seen, and those that were sampled after them."""
        with find("vllm.config:set_current_vllm_config")(config):
            self.runner = self._runner()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.forward.rows if self.forward is not None else []

    @property
    def stray(self) -> list[dict[str, Any]]:
        return self.forward.stray if self.forward is not None else []

    @property
    def slots(self) -> dict[str, int]:
        """The row of each request that the worker knows; -1 is none in the last batch."""
        rows = self.runner.input_batch.req_id_to_index
        return {name: rows.get(name, -1) for name in self.runner.requests}

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
        vars(self.config.model_config).update(_ASKED_BY_V1)
        if self.config.speculative_config is not None:
            self.config.speculative_config.draft_model_config.max_model_len = None
        if self.settings.padding:
            self._capture()
        module = importlib.import_module(_FIRST_RUNNER)
        host = _HostTorch(torch)
        vars(module).update(torch=host, get_pp_group=_one_rank, EagleProposer=_eagle())
        # The release's n-gram search needs numba, and is not what is run.
        sys.modules["vllm.v1.spec_decode.ngram_proposer"] = _ngram()
        context = self.config.compilation_config.static_forward_context
        for name, layer in self.memory.layers.items():
            context[name] = _layer(layer.kind)
        runner = _runner_of(module.GPUModelRunner)(self.config, _HOST)
        runner.live = self
        runner.model = _FirstModel(self)
        if self.settings.num_spec:
            runner.drafter.live = self
        runner.sampler = _FirstSampler(self)
        runner.rejection_sampler = runner.sampler
        runner.initialize_kv_cache(self.caches)
        return runner

    def _capture(self) -> None:
        """Full graphs of decodes, for numbers of rows that leave some rows of padding."""
        tokens = 1 + self.settings.num_spec
        rows = range(1 + self.settings.padding, self.settings.max_num_seqs + self.settings.padding + 1, 2)
        sizes = [tokens * count for count in rows if count <= self.settings.max_num_seqs]
        compilation = self.config.compilation_config
        compilation.cudagraph_capture_sizes = sizes or [tokens * self.settings.max_num_seqs]
        compilation.max_cudagraph_capture_size = compilation.cudagraph_capture_sizes[-1]

    def run(self, ids: torch.Tensor, metadata: dict[str, Any]) -> torch.Tensor:
        """The layers of the batch; the token that the model says after each of its tokens."""
        runner = self.runner
        batch = runner.input_batch
        count = batch.num_reqs
        starts = runner.query_start_loc.gpu[: count + 1].tolist()
        tokens = ids.tolist()[: starts[count]]
        self.forward = LiveForward(self.memory, list(batch.req_ids[:count]), starts, tokens)
        computed: list[int] = []
        for number, layers in enumerate(self.memory.groups):
            found = metadata[self.caches.kv_cache_groups[number].layer_names[0]]
            if number:
                self.forward.recurrent(number, layers, found)
                continue
            lengths = found.seq_lens.tolist()
            computed = [lengths[row] - (starts[row + 1] - starts[row]) for row in range(count)]
            self.forward.attention(
                layers,
                found.block_table_tensor.tolist(),
                found.slot_mapping.tolist(),
                computed,
                self.settings.kv_block_size,
            )
        self._note(batch.req_ids[:count], starts, tokens, computed)
        following = torch.zeros(len(ids), dtype=torch.int64)
        following[: len(tokens)] = torch.tensor(self.forward.following, dtype=torch.int64)
        return following

    def _note(self, names: list[str], starts: list[int], tokens: list[int], computed: list[int]) -> None:
        """Remember what requests have said so far."""
        self.texts = {name: text for name, text in self.texts.items() if name in self.runner.requests}
        for row, name in enumerate(names):
            state = self.runner.requests[name]
            text = self.texts.get(name) or [*state.prompt_token_ids, *state.output_token_ids]
            own = tokens[starts[row] : starts[row + 1]]
            first = computed[row]
            self.texts[name] = [*text[:first], *own, *text[first + len(own) :]]

    def drafts_after(self, row: int, sampled: list[int]) -> list[int]:
        """What is drafted for a row of the batch that sampled these tokens, none where it is still in its prompt."""
        assert self.forward is not None
        found = self.forward.rows[row]
        count = self.settings.num_spec
        if not sampled:
            return []
        drafted = len(found["tokens"]) - self._own(row)
        known = self.texts[found["request"]][: found["computed"] + len(found["tokens"]) - drafted]
        return self.plan(found["request"], [*known, *sampled], count)  # type: ignore[no-any-return]

    def _own(self, row: int) -> int:
        """How many of a row's tokens are no drafts."""
        assert self.forward is not None
        found = self.forward.rows[row]
        return len(found["tokens"]) - self.drafted.get(found["request"], 0)

    @property
    def drafted(self) -> dict[str, int]:
        """By request, how many drafts the step verifies."""
        scheduled = self.runner.scheduled.scheduled_spec_decode_tokens
        return {name: len(tokens) for name, tokens in scheduled.items()}


def _runner_of(released: Any) -> Any:
    """The release's runner without what it asks a GPU for, and with the memory of ours."""

    class Runner(released):  # type: ignore[misc]
        live: LiveWorkerV1
        scheduled: Any = None

        def _init_device_properties(self) -> None:
            self.num_sms = 1

        def _sync_device(self) -> None: ...

        def execute_model(self, scheduler_output: Any, *arguments: Any) -> Any:
            self.scheduled = scheduler_output
            return super().execute_model(scheduler_output, *arguments)

        def initialize_kv_cache_tensors(self, *_: Any, **__: Any) -> dict[str, Any]:
            context = self.compilation_config.static_forward_context
            caches = {}
            for name, layer in self.live.memory.layers.items():
                caches[name] = layer.states[0] if layer.kind == "attention" else list(layer.states)
                context[name].kv_cache = caches[name]
            self.kv_caches.extend(self.live.memory.pools)
            return caches

        def _zero_block_ids(self, block_ids: list[int]) -> None:
            for pool in self.live.memory.pools:
                pool[block_ids] = 0

    return Runner


def _one_rank() -> Any:
    return SimpleNamespace(is_first_rank=True, is_last_rank=True, world_size=1, ranks=[0], rank=0)


class _Done:
    """A stream or an event on which everything is done."""

    device = _HOST

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    synchronize = wait = wait_stream = wait_event = record


class _HostTorch(ModuleType):
    """PyTorch as a module sees it that wants streams."""

    def __init__(self, plain: Any) -> None:
        super().__init__("torch")
        self.plain = plain
        self.Event = _Done
        self.cuda = SimpleNamespace(
            Stream=_Done,
            Event=_Done,
            current_stream=lambda *_: _Done(),
            stream=lambda _: contextlib.nullcontext(),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


class _FirstAttentionBuilder:
    """The metadata of the attention group are the common ones."""

    supports_update_block_table = False
    requires_block_table_width = False
    reorder_batch_threshold = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @classmethod
    def get_cudagraph_support(cls, *_: Any) -> Any:
        return find("vllm.v1.attention.backend:AttentionCGSupport").ALWAYS

    def build(self, common_prefix_len: int, common_attn_metadata: Any, **_: Any) -> Any:
        return common_attn_metadata


def _attention() -> Any:
    class Backend(find("vllm.v1.attention.backend:AttentionBackend")):  # type: ignore[misc]
        @staticmethod
        def get_name() -> str:
            return "LIVE"

        @staticmethod
        def get_impl_cls() -> Any:
            return None

        @staticmethod
        def get_builder_cls() -> Any:
            return _FirstAttentionBuilder

        @staticmethod
        def get_kv_cache_shape(num_blocks: int, block_size: int, *_: Any, **__: Any) -> tuple[int, ...]:
            return (num_blocks, block_size, 2)

        @staticmethod
        def get_supported_kernel_block_sizes(*_: Any) -> list[Any]:
            return [find("vllm.v1.attention.backend:MultipleOf")(1)]

    return Backend


def _layer(kind: str) -> Any:
    """A layer as the runner looks at it."""
    base = find("vllm.model_executor.layers.attention_layer_base:AttentionLayerBase")
    backend = _attention() if kind == "attention" else find(BUILDERS[kind])
    methods = {"get_attn_backend": lambda _: backend, "get_kv_cache_spec": lambda *_: None, "num_heads": 1}
    return type("LiveLayer", (base,), methods)()


class _FirstModel(torch.nn.Module):
    """The model that the runner calls."""

    def __init__(self, worker: LiveWorkerV1) -> None:
        super().__init__()
        object.__setattr__(self, "worker", worker)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        metadata = find("vllm.forward_context:get_forward_context")().attn_metadata
        return self.worker.run(input_ids, metadata)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def get_mamba_state_copy_func(self) -> tuple[Any, ...]:
        return _copies(self.worker.settings.kinds[0] == "short_conv")

    def get_mamba_state_copy_funcs(self, types: Any) -> dict[Any, Any]:
        return {one: _copies("SHORT" in str(one.name)) for one in types}


def _copies(conv_alone: bool) -> tuple[Any, ...]:
    module = "vllm.model_executor.layers.mamba.mamba_utils"
    conv, temporal = find(f"{module}:get_conv_copy_spec"), find(f"{module}:get_temporal_copy_spec")
    return (conv,) if conv_alone else (conv, temporal)


class _FirstSampler:
    """Takes the drafts that are what the model says, and its next token. Both as sampler and in place of rejection."""

    def __init__(self, worker: LiveWorkerV1) -> None:
        self.worker = worker
        self.last: list[list[int]] = []
        """By row, the tokens that the last step has sampled."""

    def __call__(
        self,
        drafts: Any = None,
        _probabilities: Any = None,
        logits: Any = None,
        _metadata: Any = None,
        **__: Any,
    ) -> Any:
        said = logits.tolist()
        Output = find("vllm.v1.outputs:SamplerOutput")
        if drafts is None:
            self.last = [[token] for token in said]
            return Output(torch.tensor(said, dtype=torch.int32).unsqueeze(1), None)
        proposed = drafts.draft_token_ids.tolist()
        width = drafts.max_spec_len + 1
        sampled = torch.full((len(drafts.num_draft_tokens), width), -1, dtype=torch.int32)
        first = at = 0
        self.last = []
        for row, count in enumerate(drafts.num_draft_tokens):
            taken = 0
            while taken < count and proposed[first + taken] == said[at + taken]:
                taken += 1
            sampled[row, : taken + 1] = torch.tensor(said[at : at + taken + 1], dtype=torch.int32)
            self.last.append(said[at : at + taken + 1])
            first, at = first + count, at + count + 1
        return Output(sampled, None)


def _ngram() -> Any:
    """The drafter that looks for n-grams, whose drafts are planned."""

    class NgramProposer:
        live: LiveWorkerV1

        def __init__(self, *_: Any) -> None: ...

        def load_model(self, *_: Any) -> None: ...

        def propose(self, _count: Any, sampled: Any, *_: Any, **__: Any) -> list[list[int]]:
            return [self.live.drafts_after(row, tokens) for row, tokens in enumerate(sampled)]

    return SimpleNamespace(NgramProposer=NgramProposer)


def _eagle() -> Any:
    """The drafter with a model of its own, whose drafts are planned."""
    released = find("vllm.v1.spec_decode.eagle:EagleProposer")

    class Proposer(released):  # type: ignore[misc]
        live: LiveWorkerV1

        def __init__(self, config: Any, device: Any, runner: Any) -> None:
            self.runner, self.device, self.vllm_config = runner, device, config
            self.speculative_config = config.speculative_config
            self.num_speculative_tokens = config.speculative_config.num_speculative_tokens
            self.kv_cache_gid = 0
            self.supports_mm_inputs = self.parallel_drafting = self.needs_extra_input_slots = False
            self.extra_slots_per_request, self.net_num_new_slots_per_request = 1, 0
            self.max_num_tokens = config.scheduler_config.max_num_batched_tokens
            self.backup_next_token_ids = runner._make_buffer(runner.max_num_reqs, dtype=torch.int32)
            self.token_arange_np = runner.arange_np if hasattr(runner, "arange_np") else None

        def initialize_attn_backend(self, *_: Any, **__: Any) -> None: ...

        initialize_cudagraph_keys = initialize_attn_backend

        def take_last_draft_probs(self) -> None: ...

        def propose(self, *_: Any, **keywords: Any) -> torch.Tensor:
            live = self.live
            sampled = live.runner.sampler.last
            rows = [live.drafts_after(row, tokens) for row, tokens in enumerate(sampled)]
            count = self.num_speculative_tokens
            return torch.tensor([[*row, *([0] * (count - len(row)))] for row in rows], dtype=torch.int32)

    return Proposer
