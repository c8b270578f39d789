"""The worker of the release's engine with its V1 model runner: the runner as it is, around a forward of ours.

The constructor and every method of the runner run. Ours are the layers, the sampler and the drafter. Streams and events of a
device, which there is none of, are replaced by ones that are done at once.
"""

import contextlib
import functools
import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from subjects.vllm.engine.connector import in_place
from subjects.vllm.engine.inside import Inside
from subjects.vllm.engine.parts import (
    CommonMetadata,
    ToyModel,
    taken,
    with_groups_reversed,
    without_collection,
)
from subjects.vllm.engine.settings import RELEASED, LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.worker import LiveWorker
from subjects.vllm.release import find

_FIRST_RUNNER = "vllm.v1.worker.gpu_model_runner"


class LiveWorkerV1(LiveWorker):
    """Of the release's V1 model runner."""

    def __init__(
        self, settings: LiveSettings, config: Any, caches: Any, memory: LiveMemory, plan: Any
    ) -> None:
        super().__init__(settings, config, caches, memory, plan)
        self.texts: dict[str, list[int]] = {}
        """The tokens of each request that the forward has seen, and those that were sampled after them."""
        with find("vllm.config:set_current_vllm_config")(config):
            self.runner = self._runner()

    @property
    def slots(self) -> dict[str, int]:
        """The row of each request that the worker knows; -1 is none in the last batch."""
        rows = self.runner.input_batch.req_id_to_index
        return {name: rows.get(name, -1) for name in self.runner.requests}

    def _runner(self) -> Any:
        if self.config.speculative_config is not None:
            self.config.speculative_config.draft_model_config.max_model_len = None
        if self.settings.padding:
            self._capture()
        module = importlib.import_module(_FIRST_RUNNER)
        host = HostTorch(torch)
        vars(module).update(torch=host, get_pp_group=one_rank, EagleProposer=planned_model_drafts())
        if "is_pin_memory_available" in vars(module):
            # Without a device there is nothing to pin memory for, whatever the platform says.
            vars(module)["is_pin_memory_available"] = lambda: False
        _load_plugins_once()
        # The release's n-gram search needs numba, and is not what is run.
        sys.modules["vllm.v1.spec_decode.ngram_proposer"] = planned_ngrams()
        context = self.config.compilation_config.static_forward_context
        for name, layer in self.memory.layers.items():
            context[name] = layer_of(layer.kind, self.inside)
        runner = _runner_of(module.GPUModelRunner)(self.config, HOST)
        runner.worker = self
        runner.model = ToyModel(self)
        if self.settings.num_spec:
            runner.drafter.worker = self
        runner.sampler = FirstSampler(self)
        runner.rejection_sampler = runner.sampler
        with in_place(self.connector):
            runner.initialize_kv_cache(self.caches)
        return runner

    def initialize_again(self) -> None:
        module = importlib.import_module(_FIRST_RUNNER)
        config = find("vllm.config:set_current_vllm_config")(self.config)
        self.former.append(self.runner.input_batch)
        with config, self.inside.functions(), without_collection(module):
            for caches in (with_groups_reversed(self.caches), self.caches):
                self.runner._cleanup_profiling_kv_cache()
                self.runner.initialize_kv_cache(caches, is_profiling=caches is not self.caches)

    def _capture(self) -> None:
        """Full graphs of decodes, for numbers of rows that leave some rows of padding."""
        tokens = 1 + self.settings.num_spec
        rows = range(1 + self.settings.padding, self.settings.max_num_seqs + self.settings.padding + 1, 2)
        sizes = [tokens * count for count in rows if count <= self.settings.max_num_seqs]
        compilation = self.config.compilation_config
        compilation.cudagraph_capture_sizes = sizes or [tokens * self.settings.max_num_seqs]
        compilation.max_cudagraph_capture_size = compilation.cudagraph_capture_sizes[-1]

    def run(self, metadata: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
        """The token that the model says after each of the batch's tokens."""
        if self.dummy:
            return self.dummy_layers(metadata, len(ids))
        batch = self.runner.input_batch
        starts = self.runner.query_start_loc.gpu[: batch.num_reqs + 1].tolist()
        following = self.layers(list(batch.req_ids[: batch.num_reqs]), starts, ids, metadata)
        self._note()
        return following

    def _note(self) -> None:
        """Remember what requests have said so far."""
        assert self.forward is not None
        self.texts = {name: text for name, text in self.texts.items() if name in self.runner.requests}
        for row in self.forward.rows:
            state = self.runner.requests[row.request]
            text = self.texts.get(row.request) or [*state.prompt_token_ids, *state.output_token_ids]
            first, own = row.computed, row.tokens
            self.texts[row.request] = [*text[:first], *own, *text[first + len(own) :]]

    def drafts_after(self, row: int, sampled: list[int]) -> list[int]:
        """Drafts for a row of the batch that sampled these tokens, none where it is still in its prompt."""
        assert self.forward is not None
        if not sampled:
            return []
        found = self.forward.rows[row]
        drafts = self.runner.scheduled.scheduled_spec_decode_tokens.get(found.request, ())
        known = self.texts[found.request][: found.computed + len(found.tokens) - len(drafts)]
        return self.plan(found.request, [*known, *sampled], self.settings.num_spec)


def _load_plugins_once() -> None:
    """A runner looks for processors of logits in the metadata of all installed packages, which stay the same."""
    module = sys.modules.get("vllm.v1.sample.logits_processor")
    load = getattr(module, "_load_logitsprocs_plugins", None)
    if load is not None and not hasattr(load, "cache_info"):
        vars(module)["_load_logitsprocs_plugins"] = functools.cache(load)


def _runner_of(released: Any) -> Any:
    """The release's runner without what it asks a GPU for, and with the memory of ours."""

    class Runner(released):
        worker: LiveWorkerV1
        scheduled: Any = None

        def _init_device_properties(self) -> None:
            self.num_sms = 1

        def _sync_device(self) -> None: ...

        def execute_model(self, scheduler_output: Any, *arguments: Any) -> Any:
            self.scheduled = scheduler_output
            return super().execute_model(scheduler_output, *arguments)

        def initialize_kv_cache_tensors(self, *_: Any, **__: Any) -> dict[str, Any]:
            caches = self.worker.memory.caches
            for name, cache in caches.items():
                self.compilation_config.static_forward_context[name].kv_cache = cache
            self.kv_caches.extend(self.worker.memory.pools)
            return self.worker.memory.pages if self.worker.settings.connector in RELEASED else caches

        def _zero_block_ids(self, block_ids: list[int]) -> None:
            self.worker.memory.zero(block_ids)

    return Runner


HOST = torch.device("cpu")


def one_rank() -> Any:
    return SimpleNamespace(is_first_rank=True, is_last_rank=True, world_size=1, ranks=[0], rank=0)


class _Done:
    """A stream or an event on which everything is done."""

    device = HOST

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    synchronize = wait = wait_stream = wait_event = record


class HostTorch(ModuleType):
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
            return CommonMetadata

        @staticmethod
        def get_kv_cache_shape(num_blocks: int, block_size: int, *_: Any, **__: Any) -> tuple[int, ...]:
            return (num_blocks, block_size, 2)

        @staticmethod
        def get_supported_kernel_block_sizes(*_: Any) -> list[Any]:
            return [find("vllm.v1.attention.backend:MultipleOf")(1)]

    return Backend


def layer_of(kind: str, inside: Inside) -> Any:
    """A layer as the runner looks at it."""
    base = find("vllm.model_executor.layers.attention_layer_base:AttentionLayerBase")
    backend = _attention() if kind == "attention" else inside.backend(kind)
    methods = {"get_attn_backend": lambda _: backend, "get_kv_cache_spec": lambda *_: None, "num_heads": 1}
    return type("Layer", (base,), methods)()


class FirstSampler:
    """Takes the drafts that are what the model says, and its next token. Both as sampler and in place of rejection."""

    def __init__(self, worker: Any) -> None:
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
            tokens = taken(proposed[first : first + count], said[at : at + count + 1])
            sampled[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
            self.last.append(tokens)
            first, at = first + count, at + count + 1
        return Output(sampled, None)


def planned_ngrams() -> Any:
    """The drafter that looks for n-grams, whose drafts are planned."""

    class NgramProposer:
        worker: Any

        def __init__(self, *_: Any) -> None: ...

        def load_model(self, *_: Any) -> None: ...

        def propose(self, _: int, sampled: list[list[int]], *__: Any, **___: Any) -> list[list[int]]:
            return [self.worker.drafts_after(row, tokens) for row, tokens in enumerate(sampled)]

    return SimpleNamespace(NgramProposer=NgramProposer)


def planned_model_drafts() -> Any:
    """The drafter with a model of its own, whose drafts are planned."""
    released = find("vllm.v1.spec_decode.eagle:EagleProposer")

    class Proposer(released):  # type: ignore[misc, valid-type]
        worker: Any

        def __init__(self, config: Any, device: Any, runner: Any) -> None:
            self.runner, self.device, self.vllm_config = runner, device, config
            self.speculative_config = config.speculative_config
            self.num_speculative_tokens = config.speculative_config.num_speculative_tokens
            self.kv_cache_gid = 0
            self.supports_mm_inputs = self.parallel_drafting = self.needs_extra_input_slots = False
            self.extra_slots_per_request, self.net_num_new_slots_per_request = 1, 0
            self.max_num_tokens = config.scheduler_config.max_num_batched_tokens
            self.backup_next_token_ids = runner._make_buffer(runner.max_num_reqs, dtype=torch.int32)

        def initialize_attn_backend(self, *_: Any, **__: Any) -> None: ...

        initialize_cudagraph_keys = initialize_attn_backend

        dummy_run = initialize_attn_backend

        def take_last_draft_probs(self) -> None: ...

        def propose(self, *_: Any, **__: Any) -> torch.Tensor:
            worker = self.worker
            sampled = worker.runner.sampler.last
            rows = [worker.drafts_after(row, tokens) for row, tokens in enumerate(sampled)]
            count = self.num_speculative_tokens
            return torch.tensor([[*row, *([0] * (count - len(row)))] for row in rows], dtype=torch.int32)

    return Proposer
