"""Drafts: a corpus of n-grams that proposes what a scenario says, and the copy of the states of accepted ones."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from oracle.lifecycle.known_states import KnownStates
from subjects.kit.drafts import above, chain_of, tree_of
from subjects.kit.objects import names_in
from subjects.sglang.engine.settings import RadixSettings
from subjects.sglang.release import RELEASE, NotOffered, find

_NAMES_A_DEVICE = (0, 5, 20)
"""The first release whose pools take the memory of their own device."""
_WORKER = "sglang.srt.speculative.ngram_worker"
_POOLS = "sglang.srt.mem_cache.memory_pool"
_SCATTER = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"


class _TorchOnCpu:
    """In the place of torch in the module of pools: releases before 0.5.20 ask for a GPU's memory for what drafts leave."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def zeros(*given: Any, device: Any = None, **named: Any) -> Any:
        return torch.zeros(*given, device="cpu" if device == "cuda" else device, **named)


class NamedCorpus:
    """In the place of the release's corpus of n-grams: so many drafts of a request are right as the scenario says.

    Args:
        draft_token_num: tokens that a step verifies for a request, the last token that is known among them.
        max_bfs_breadth: 1 for a chain of drafts; a wrong draft stands beside each right one where it is more.
    """

    def __init__(self, *, draft_token_num: int, max_bfs_breadth: int, **_: Any) -> None:
        self.count, self.branches = draft_token_num, max_bfs_breadth > 1
        self.known = KnownStates()
        self.accepted: Mapping[str, int] = {}
        """By request, how many of its drafts are right."""

    def batch_get(
        self, names: Sequence[str], tails: Sequence[Sequence[int]], lengths: Sequence[int]
    ) -> tuple[Any, Any]:
        """The drafts of each request behind its last token, and which nodes are above each."""
        drafts: list[int] = []
        masks = []
        for name, tail, length in zip(names, tails, lengths, strict=True):
            right = [self.known.requests[name].token(length + at) for at in range(self.count)]
            most = self.count - 1
            good = min(self.accepted.get(name, 0), most)
            tokens, parents = chain_of(right[:most], good), [-1, *range(most)]
            if self.branches:
                tokens, parents = tree_of(right, good, most)
            drafts += [tail[-1], *tokens]
            masks.append(above(parents).reshape(-1))
        return np.array(drafts, dtype=np.int64), np.concatenate(masks)

    def batch_put(self, _: Any) -> None:
        """No tokens are learned."""

    def erase_match_state(self, _: Any) -> None:
        """No match state is kept."""

    def synchronize(self) -> None:
        """Nothing waits."""

    def reset(self) -> None:
        """As a new one."""


def draft_arguments(settings: RadixSettings, model: str) -> dict[str, Any]:
    """The arguments of an engine that verifies so many tokens of a request in a step; none for one without drafts.

    Args:
        settings: of the engine.
        model: the folder with the description of its model, which is that of a draft model, too.
    """
    tokens = settings.num_draft_tokens
    if not tokens:
        return {}
    scatter = names_in(_SCATTER)
    for name in ("fused_mamba_state_scatter_with_mask", "fused_conv_window_scatter_with_mask"):
        scatter[name] = scatter_states
    scatter["_conv_multi_eligible"] = lambda _: False
    names_in("sglang.srt.arg_groups.speculative_hook")["_disable_overlap_schedule_for_cpu"] = lambda _: None
    if RELEASE < _NAMES_A_DEVICE:
        names_in(_POOLS)["torch"] = _TorchOnCpu()
    find(f"{_POOLS}:MHATokenToKVPool")._init_kv_copy_and_warmup = lambda _: None
    if settings.draft_method == "eagle":
        return eagle_arguments(tokens, model)
    names_in(_WORKER)["NgramCorpus"] = NamedCorpus
    return {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": tokens,
        "speculative_ngram_max_bfs_breadth": settings.draft_breadth,
    }


def scatter_states(target: Any, source: Any, slots: Any, steps: Any, rows: Any = None) -> None:
    """Copy the state after step `steps[row]` of each row to its slot, in all layers; rows whose step is -1 have none.

    `target` is (layers, slots, ...), `source` (layers, rows, steps, ...).
    """
    for at, (slot, step) in enumerate(zip(slots.tolist(), steps.tolist(), strict=False)):
        row = at if rows is None else int(rows[at])
        if step >= 0 and slot >= 0:
            target[:, slot] = torch.clone(source[:, row, step])


_OLDEST = (0, 5, 23)
"""The draft worker is another one in each of the releases before."""
_SPECULATIVE = "sglang.srt.speculative"


class NamedDraftWorker:
    """In the place of the release's `EagleDraftWorker`: so many drafts of a request are right as the scenario says."""

    draft_swa_window = 0
    weight_load_time = 0.0
    preloaded_weights_bytes = 0

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:  # noqa: ARG002
        self.target_worker = target_worker
        self.known = KnownStates()
        self.accepted: Mapping[str, int] = {}
        spec = find("sglang.srt.runtime_context:get_spec")()
        self.count = spec.speculative_num_draft_tokens
        self.draft_runner = target_worker.model_runner
        self.draft_extend_attn_backend = None
        self.parallel_layout = SimpleNamespace(tp_group=None, local_dp=False)
        self.graph_memory_usage: dict[str, float] = {}
        self.graph_time_usage: dict[str, float] = {}

    @property
    def draft_attn_backend(self) -> Any:
        return self.draft_runner.attn_backend

    @property
    def draft_runners(self) -> list[Any]:
        """The stand-in has no model of its own."""
        return []

    def alloc_memory_pool(self, **_: Any) -> None: ...

    init_attention_backends = init_cuda_graphs = alloc_memory_pool

    def draft(self, batch: Any, **_: Any) -> Any:
        """The drafts of each request behind its last token, one behind the other."""
        steps = self.count - 1
        chains = []
        for request, length in zip(batch.reqs, batch.seq_lens.tolist(), strict=True):
            right = [self.known.requests[request.rid].token(length + 1 + at) for at in range(steps)]
            good = min(self.accepted.get(request.rid, 0), steps)
            chains.append(chain_of(right, good))
        rows = len(chains)
        parents = torch.arange(-1, steps - 1).repeat(rows, 1)
        build = find(f"{_SPECULATIVE}.eagle_worker_common:build_eagle_verify_input")
        return build(
            batch,
            batch.spec_info,
            parents,
            torch.arange(steps).repeat(rows, 1),
            torch.tensor(chains, dtype=torch.int64),
            None,
            target_worker=self.target_worker,
            topk=1,
            num_steps=steps,
            num_draft_tokens=self.count,
            tree_mask_mode=find(f"{_SPECULATIVE}.eagle_utils:default_tree_mask_mode")(),
            device="cpu",
        )

    def _draft_extend_for_prefill(self, batch: Any, hidden: Any, tokens: Any, *_: Any, **__: Any) -> Any:
        """Inputs of the drafts in the first step behind a prompt."""
        made = find(f"{_SPECULATIVE}.eagle_info:EagleDraftInput")(
            bonus_tokens=tokens, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        self._fill(made, len(batch.seq_lens), hidden)
        return made

    def _draft_extend_for_decode(self, batch: Any, result: Any, **_: Any) -> None:
        """Inputs of the drafts in the next step."""
        self._fill(result.next_draft_input, len(batch.seq_lens), result.logits_output.hidden_states)

    def _fill(self, made: Any, rows: int, hidden: Any) -> None:
        made.topk_p, made.topk_index = torch.ones(rows, 1), torch.zeros(rows, 1, dtype=torch.int64)
        made.hidden_states = torch.zeros(rows, hidden.shape[-1])


def build_chain(
    _parents: Any,
    _scores: Any,
    lengths: Any,
    _mask: Any,
    positions: Any,
    index: Any,
    children: Any,
    siblings: Any,
    topk: int,
    _steps: int,
    count: int,
    *_: Any,
) -> None:
    """Where each draft of a chain stands, and the one behind it: the release's kernel for that needs a GPU.

    Raises:
        NotImplementedError: the drafts are in a tree.
    """
    if topk != 1:
        raise NotImplementedError("trees of drafts of a model")
    for row, length in enumerate(lengths.tolist()):
        for at in range(count):
            positions[row * count + at] = length + at
            index[row, at] = row * count + at
            children[row, at] = at + 1 if at + 1 < count else -1
            siblings[row, at] = -1


def eagle_arguments(tokens: int, model: str) -> dict[str, Any]:
    """The arguments of an engine that verifies so many tokens of a request, with drafts of a model.

    Raises:
        NotOffered: the adapter does not know the release's worker.
    """
    if RELEASE < _OLDEST:
        raise NotOffered("drafts of a model")
    names_in(f"{_SPECULATIVE}.eagle_worker_v2")["EagleDraftWorker"] = NamedDraftWorker
    names_in(f"{_SPECULATIVE}.eagle_utils")["build_tree_kernel_efficient_func"] = build_chain
    return {
        "speculative_algorithm": "EAGLE",
        "speculative_draft_model_path": model,
        "speculative_num_steps": tokens - 1,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": tokens,
    }
