"""Stand-ins in the V2 model runner for the parts that need a GPU, or a model, and have no part in states."""

import contextlib
import copy
import importlib
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from subjects.vllm.release import find

GPU_FOLDER = "vllm.v1.worker.gpu"


class HostBuffer:
    """Memory of the host that a device reads where it is."""

    read: ClassVar[list[tuple[torch.Tensor, tuple[int, ...]]] | None] = None
    """Views that a batch in preparation hands to its device, with their values at that time; None where no batch is observed."""

    def __init__(self, size: Any, dtype: torch.dtype) -> None:
        self.cpu = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()

    def uva(self, n: int | None = None) -> torch.Tensor:
        view = self.cpu if n is None else self.cpu[:n]
        if HostBuffer.read is not None:
            HostBuffer.read.append((view, tuple(view.flatten().tolist())))
        return view


class EarlyHostBuffer:
    """As 0.29 has it, which wants pinned memory."""

    def __init__(self, size: Any, dtype: torch.dtype) -> None:
        self.cpu = self.uva = torch.zeros(size, dtype=dtype)
        self.np = self.cpu.numpy()


def copied(
    x: Any,
    out: torch.Tensor | None = None,
    device: Any = None,  # noqa: ARG001 - the release's
) -> torch.Tensor:
    """A tensor that 0.29 copies to its device through pinned memory."""
    made = torch.as_tensor(x)
    return made.clone() if out is None else out.copy_(made)


def without_a_device() -> None:
    """Replace what the V2 model runner's modules have for copies to and from a device."""
    runner = vars(importlib.import_module(f"{GPU_FOLDER}.model_runner"))
    buffers = vars(importlib.import_module(f"{GPU_FOLDER}.buffer_utils"))
    runner["AsyncOutput"] = OutputV2
    if "NonUvaBuffer" in buffers:
        buffers["NonUvaBuffer"] = HostBuffer
    else:
        buffers["UvaBuffer"] = EarlyHostBuffer
        runner["async_copy_to_gpu"] = copied


@contextlib.contextmanager
def without_collection(module: Any) -> Iterator[None]:
    """Within, a module of the release neither waits for a device nor collects garbage, which takes longer than a scenario."""
    device = SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)
    before = dict(vars(module))
    vars(module).update(gc=SimpleNamespace(collect=lambda: 0), torch=WithAccelerator(before["torch"], device))
    try:
        yield
    finally:
        vars(module).update(gc=before["gc"], torch=before["torch"])


class WithAccelerator:
    """PyTorch as a module sees it that waits for an accelerator."""

    def __init__(self, plain: Any, accelerator: Any) -> None:
        self.plain, self.accelerator = plain, accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def with_groups_reversed(caches: Any) -> Any:
    """The configuration of caches with its groups in another order, as of a model that is not divided yet."""
    made = copy.copy(caches)
    made.kv_cache_groups = caches.kv_cache_groups[::-1]
    return made


class Unneeded:
    """Takes part in a step, and does nothing in it."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class NoLogprobs(Unneeded):
    def compute_prompt_logprobs(self, *_: Any) -> dict[str, Any]:
        return {}

    compute_prompt_token_id_logprobs = compute_prompt_logprobs


class CommonMetadata:
    """Backend and builder of the attention group: its metadata are the common ones."""

    supports_update_block_table = False
    requires_block_table_width = False
    reorder_batch_threshold = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    @classmethod
    def get_builder_cls(cls) -> Any:
        return cls

    @classmethod
    def full_cls_name(cls) -> tuple[str, str]:
        return cls.__module__, cls.__name__

    @classmethod
    def get_cudagraph_support(cls, *_: Any) -> Any:
        return find("vllm.v1.attention.backend:AttentionCGSupport").ALWAYS

    def set_kernel_block_size(self, *_: Any) -> None: ...

    def build(self, *given: Any, **named: Any) -> Any:
        return named.get("common_attn_metadata") or given[1]

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Any:
        return common_attn_metadata


def copies(conv_alone: bool) -> tuple[Any, ...]:
    """How the release copies a layer's states."""
    module = "vllm.model_executor.layers.mamba.mamba_utils"
    conv, temporal = find(f"{module}:get_conv_copy_spec"), find(f"{module}:get_temporal_copy_spec")
    return (conv,) if conv_alone else (conv, temporal)


class ToyModel(torch.nn.Module):
    """The model that a runner calls: its worker's layers."""

    worker: Any

    def __init__(self, worker: Any) -> None:
        super().__init__()
        object.__setattr__(self, "worker", worker)

    def forward(self, input_ids: Any = None, **_: Any) -> torch.Tensor:
        context = find("vllm.forward_context:get_forward_context")()
        settings = self.worker.settings
        # In some settings alone: a scenario ends with the first step that is replayed wrongly, which is a declared defect.
        if settings.layers > 1 and not settings.prefix_caching:
            full = find("vllm.config:CUDAGraphMode").FULL
            self.worker.replays_decodes = context.cudagraph_runtime_mode == full
        following: torch.Tensor = self.worker.run(context.attn_metadata, input_ids)
        return following

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def get_mamba_state_copy_func(self) -> tuple[Any, ...]:
        return copies(self.worker.settings.kinds[0] == "short_conv")

    def get_mamba_state_copy_funcs(self, types: Any) -> dict[Any, Any]:
        return {kind: copies("SHORT" in str(kind.name)) for kind in types}


def taken(drafts: list[int], said: list[int]) -> list[int]:
    """Tokens that a step samples: the drafts that the model agrees with, and its next token."""
    agree = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(drafts, said, strict=False))
    return said[: 1 + len(list(agree))]


class GraphsV2:
    """Full graphs of decodes, with rows of padding."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def dispatch(
        self, num_reqs: int, num_tokens: int, uniform_token_count: Any = None, *_: Any, **__: Any
    ) -> Any:
        Descriptor = find(f"{GPU_FOLDER}.cudagraph_utils:BatchExecutionDescriptor")
        modes = find("vllm.config:CUDAGraphMode")
        settings = self.worker.settings
        rows = min(num_reqs + settings.padding, settings.max_num_seqs)
        # As graphs are captured: for rows of all drafts alone.
        if settings.padding and uniform_token_count == settings.num_spec + 1:
            return Descriptor(modes.FULL, rows * uniform_token_count, rows, uniform_token_count)
        return Descriptor(modes.NONE, num_tokens, num_reqs)

    def run_fullgraph(self, _: Any) -> torch.Tensor:
        following: torch.Tensor = self.worker.run(self.worker.metadata)
        return following


class SamplerV2(Unneeded):
    """Takes the drafts that are what the model says, and its next token."""

    compute_nans = False

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.penalties_state = SimpleNamespace(output_bin_counts=None)
        nothing = SimpleNamespace(gpu=None)
        self.sampling_states = SimpleNamespace(temperature=nothing, seeds=nothing)

    def __call__(self, following: torch.Tensor, batch: Any, *_: Any) -> Any:
        runner = self.worker.runner
        bounds = batch.cu_num_logits_np.tolist()
        places = batch.logits_indices.tolist()
        ids, said = batch.input_ids.tolist(), following.tolist()
        # As the release's: one column where no row has drafts.
        width = self.worker.settings.num_spec + 1 if bounds[batch.num_reqs] > batch.num_reqs else 1
        sampled = torch.zeros(batch.num_reqs, width, dtype=torch.int64)
        counts = torch.zeros(batch.num_reqs, dtype=torch.int32)
        for row, (first, last) in enumerate(itertools.pairwise(bounds[: batch.num_reqs + 1])):
            drafts = [ids[at + 1] for at in places[first : last - 1]]
            tokens = taken(drafts, said[first:last])
            sampled[row, : len(tokens)] = torch.tensor(tokens)
            counts[row] = len(tokens)
        counts, rejected = find(f"{GPU_FOLDER}.input_batch:get_num_sampled_and_rejected")(
            counts, batch.seq_lens, batch.cu_num_logits, batch.idx_mapping, runner.req_states.prefill_len.gpu
        )
        Output = find(f"{GPU_FOLDER}.sample.output:SamplerOutput")
        return Output(sampled, None, None, counts, rejected)


class DraftsV2(Unneeded):
    """Proposes what the model will say, as far as the plan wants it accepted, and then something else."""

    draft_logits = None
    supports_mm_inputs = False

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def propose(self, input_batch: Any, *_: Any, dummy_run: bool = False, **__: Any) -> torch.Tensor:
        batch, count = input_batch, self.worker.settings.num_spec
        if dummy_run:
            return torch.zeros(batch.num_reqs, count, dtype=torch.int64)
        states = self.worker.runner.req_states
        totals, ids = states.total_len.gpu.tolist(), states.all_token_ids.gpu
        drafts = torch.zeros(batch.num_reqs, count, dtype=torch.int64)
        for row, name in enumerate(batch.req_ids):
            slot = int(batch.idx_mapping[row])
            known = ids[slot, : totals[slot]].tolist()
            drafts[row] = torch.tensor(self.worker.plan(name, known, count))
        return drafts


class OutputV2:
    """The sampled tokens, without a copy from a device."""

    def __init__(
        self, model_runner_output: Any, sampler_output: Any, num_sampled_tokens: Any, **_: Any
    ) -> None:
        self.output = model_runner_output
        tokens, counts = sampler_output.sampled_token_ids.tolist(), num_sampled_tokens.tolist()
        self.output.sampled_token_ids = [row[:count] for row, count in zip(tokens, counts, strict=True)]

    def get_output(self) -> Any:
        return self.output
