"""The worker of the release's engine with its first model runner: the runner as it is, around a forward of ours.

The constructor and every method of the runner run. Ours are the layers, the sampler and the drafter. Streams and events of a
device, which there is none of, are replaced by ones that are done at once.
"""

import functools
import importlib
import sys
from typing import Any

import torch

from subjects.vllm.engine.connector import in_place
from subjects.vllm.engine.parts import ToyModel
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.v1_parts import (
    HOST,
    FirstSampler,
    HostTorch,
    layer_of,
    one_rank,
    planned_model_drafts,
    planned_ngrams,
)
from subjects.vllm.engine.worker import LiveWorker
from subjects.vllm.release import find

_FIRST_RUNNER = "vllm.v1.worker.gpu_model_runner"


class LiveWorkerV1(LiveWorker):
    """Of the release's first model runner."""

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
        """What is drafted for a row of the batch that sampled these tokens, none where it is still in its prompt."""
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
            return caches

        def _zero_block_ids(self, block_ids: list[int]) -> None:
            self.worker.memory.zero(block_ids)

    return Runner
