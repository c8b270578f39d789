"""Drafts of a model: the release's worker for EAGLE, with a stand-in for the draft model and its attention.

The release's draft worker asks for an attention backend that a CPU does not have. Its place takes one that proposes what a scenario says: verifying, and what
a step hands to the next one, are the release's.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.known_states import KnownStates
from subjects.kit.drafts import chain_of
from subjects.kit.objects import names_in
from subjects.sglang.release import RELEASE, NotOffered, find

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
        """What the first step behind a prompt drafts from."""
        made = find(f"{_SPECULATIVE}.eagle_info:EagleDraftInput")(
            bonus_tokens=tokens, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        self._fill(made, len(batch.seq_lens), hidden)
        return made

    def _draft_extend_for_decode(self, batch: Any, result: Any, **_: Any) -> None:
        """What the next step drafts from."""
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
