"""Drafts: a corpus of n-grams that proposes what a scenario says, and the copy of the states of accepted ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from oracle.lifecycle.known_states import KnownStates
from subjects.kit.drafts import above, chain_of, tree_of
from subjects.kit.objects import names_in
from subjects.sglang.engine.eagle import eagle_arguments
from subjects.sglang.engine.settings import RadixSettings
from subjects.sglang.release import RELEASE, find

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
        """It learns nothing."""

    def erase_match_state(self, _: Any) -> None:
        """It remembers nothing."""

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
