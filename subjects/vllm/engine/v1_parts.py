"""What the worker with the first model runner has in place of layers, model, sampler, drafter and a device's streams."""

import contextlib
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from subjects.vllm.engine.inside import Inside
from subjects.vllm.engine.parts import CommonMetadata, taken
from subjects.vllm.release import find

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

        def take_last_draft_probs(self) -> None: ...

        def propose(self, *_: Any, **__: Any) -> torch.Tensor:
            worker = self.worker
            sampled = worker.runner.sampler.last
            rows = [worker.drafts_after(row, tokens) for row, tokens in enumerate(sampled)]
            count = self.num_speculative_tokens
            return torch.tensor([[*row, *([0] * (count - len(row)))] for row in rows], dtype=torch.int32)

    return Proposer
