"""The common part of the workers of both model runners: the release's runner, and the forward that stands in for its model."""

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.observed import GroupAccess, ObservedStep
from subjects.vllm.engine.connector import in_place, worker_connector
from subjects.vllm.engine.forward import LiveForward
from subjects.vllm.engine.inside import Inside
from subjects.vllm.engine.kernels import KernelForward
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.release import find


class LiveWorker:
    """Executes steps. A subclass makes the `runner`, whose model sets `forward`."""

    runner: Any
    replays_decodes = False
    """Whether the step replays a graph that was captured of decodes."""

    def __init__(
        self, settings: LiveSettings, config: Any, caches: Any, memory: LiveMemory, plan: Any
    ) -> None:
        self.settings, self.config, self.caches, self.memory = settings, config, caches, memory
        self.plan = plan
        self.inside = Inside(settings)
        self.forward: LiveForward | None = None
        self.connector = worker_connector(config, caches)
        self.former: list[Any] = []
        """Block tables of earlier caches, kept so that their addresses are not used again."""

    dummy = False
    """Whether the batch is a dummy batch."""

    def initialize_again(self) -> None:
        """Take caches away and initialise them, first as the release measures its graphs with them, then as they are. A subclass knows how."""
        raise NotImplementedError

    def execute_dummy_batch(self) -> list[GroupAccess]:
        """Run a batch of no request, and return what its rows did."""
        worker = SimpleNamespace(model_runner=self.runner, randomize_dummy_inputs=False)
        config = find("vllm.config:set_current_vllm_config")(self.config)
        self.forward = LiveForward(self.memory, [], [0], [])
        self.dummy = True
        try:
            with config, self.inside.functions(), in_place(self.connector):
                find("vllm.v1.worker.gpu_worker:Worker").execute_dummy_batch(worker)
        finally:
            self.dummy = False
        return self.forward.stray

    def dummy_layers(self, metadata: Any, count: int) -> torch.Tensor:
        """Run the layers of a dummy batch of so many tokens: they write where its metadata point. Without metadata they write nothing, as the release's."""
        assert self.forward is not None
        for number, layers in enumerate(self.memory.groups):
            if not metadata:
                break
            found = metadata[self.caches.kv_cache_groups[number].layer_names[0]]
            if self.settings.groups[number] == "attention":
                self.forward.write_unknown(number, layers, found)
            else:
                self.forward.recurrent(number, layers, found)
        return torch.zeros(count, dtype=torch.int64)

    @property
    def released(self) -> Any:
        """The object of the release that takes in a step."""
        return self.runner

    def execute(self, scheduled: Any, seen: ObservedStep) -> Any:
        """The model runner's output of the step; rows and rows of padding are put into `seen`."""
        self.forward = None
        config = find("vllm.config:set_current_vllm_config")(self.config)
        with config, self.inside.functions(), in_place(self.connector):
            done = self.released.execute_model(scheduled)
            if done is None:
                done = self.released.sample_tokens(None)
        if self.forward is not None:
            seen.rows, seen.stray = self.forward.rows, self.forward.stray
        return done

    def layers(self, names: list[str], starts: list[int], ids: torch.Tensor, metadata: Any) -> torch.Tensor:
        """Run the layers of a batch: rows of these requests, which start there.

        Returns:
            the token that the model says after each of `ids`; 0 behind the last row.
        """
        tokens = ids.tolist()[: starts[-1]]
        self.run_layers(names, starts, tokens, metadata, padding=len(ids) - len(tokens))
        assert self.forward is not None
        following = torch.zeros(len(ids), dtype=torch.int64)
        following[: len(tokens)] = torch.tensor(self.forward.following, dtype=torch.int64)
        return following

    def run_layers(
        self,
        names: list[str],
        starts: list[int],
        tokens: list[int],
        metadata: Any,
        handed: Sequence[int] = (),
        padding: int = 0,
    ) -> None:
        """Run the layers of a batch of these tokens and of some of padding; `handed` are the states that the stage before has made of them."""
        Forward = functools.partial(KernelForward, padding) if self.settings.kernels else LiveForward
        self.forward = Forward(self.memory, names, starts, tokens, handed)
        for number, layers in enumerate(self.memory.groups):
            found = metadata[self.caches.kv_cache_groups[number].layer_names[0]]
            if self.settings.groups[number] == "attention":
                self.forward.attention(number, layers, found)
            # The graph reads buffers that builders fill in steps without prefills alone: beside a prefill its layers pass each state over.
            elif not (self.replays_decodes and found.num_prefills):
                self.forward.recurrent(number, layers, found)

    def drafts(self) -> Any:
        return self.runner.take_draft_token_ids()
