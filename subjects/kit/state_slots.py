"""Kernels of SGLang that copy and clear slots of states, with the functions that launch them.

A process has a GPU and its kernels compiled, or none and its kernels executed by the harness; the functions ask whether tensors are on a GPU.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from statecheck.subject.subject import NotOffered, first_offered

__all__ = ["StateSlots"]
_MAMBA = "sglang.kernels.ops.mamba"
_SCATTER = f"{_MAMBA}.mamba_state_scatter_triton"
_FUSED = "sglang.srt.mem_cache.mamba_slot_fused"
_COMMIT = "fused_commit_track_indices"
_SPECULATION = "srt/speculative/spec_utils.py"
"""The module that calls it."""


class _AsOnGpu(torch.Tensor):
    """A tensor of which the functions think that it is on a GPU, where kernels are executed without one."""

    is_cuda = True


def _seen(tensor: Any) -> Any:
    return tensor if tensor is None or tensor.is_cuda else tensor.as_subclass(_AsOnGpu)


def is_called(kernel: str) -> bool:
    """Whether the release's module of speculative decoding names the kernel. The module is read: it imports the kernel in a function, and imports much itself."""
    spec = importlib.util.find_spec("sglang")
    folders = spec.submodule_search_locations if spec else None
    paths = [Path(folder, _SPECULATION) for folder in folders or ()]
    return any(path.is_file() and kernel in path.read_text(encoding="utf-8") for path in paths)


class StateSlots:
    """The functions, by what they do."""

    @staticmethod
    def clear(conv: Sequence[Any], slots: Any) -> None:
        """Fill slots of all convolutions with zeros."""
        describe = first_offered(f"{_FUSED}:build_conv_slot_descriptor")
        first_offered(f"{_FUSED}:fused_clear_conv_slots")(describe(list(conv)), slots)

    @staticmethod
    def copy(conv: Sequence[Any], sources: Any, targets: Any) -> None:
        """Copy slots of all convolutions."""
        describe = first_offered(f"{_FUSED}:build_conv_slot_descriptor")
        first_offered(f"{_FUSED}:fused_copy_conv_slots")(describe(list(conv)), sources, targets)

    @staticmethod
    def track(conv: Any, temporal: Any, sources: Any, mask: Any, targets: Any) -> None:
        """Copy the states of rows at a boundary, in all layers."""
        track = first_offered(f"{_SCATTER}:track_mamba_states_all_layers")
        track(conv, temporal, sources, mask, targets, len(mask), check_freed_slots=True)

    @staticmethod
    def scatter(
        conv: Sequence[Any],
        windows: Sequence[Any],
        temporal: Any,
        states: Any,
        slots: Any,
        drafts: Any,
        kept_slots: Any,
        kept_drafts: Any,
    ) -> None:
        """Copy the states after accepted drafts to slots."""
        caches = SimpleNamespace(
            conv=[_seen(memory) for memory in conv],
            intermediate_conv_window=[_seen(window) for window in windows],
            temporal=_seen(temporal),
            intermediate_ssm=_seen(states),
        )
        scatter = first_offered(f"{_SCATTER}:scatter_mamba_states_after_mtp_verify")
        scatter(caches, slots, drafts, kept_slots, kept_drafts)

    @staticmethod
    def last_accepted(accepted: Any, counts: Any, lengths: Any, drafts: int, interval: int) -> Any:
        """The last accepted drafts, and those at boundaries.

        Raises:
            NotOffered: the release has no such kernel, or does not call it, as 0.5.19.
        """
        commit = first_offered(f"{_SCATTER}:{_COMMIT}")
        if not is_called(_COMMIT):
            raise NotOffered(f"a caller of {_COMMIT}")
        return commit(accepted, counts, lengths, drafts, interval)

    @staticmethod
    def of_rows(rows: Any, slots: Any, out: Any, live: int) -> None:
        """Write the slots of a graph's rows to `out`."""
        fill = first_offered(f"{_MAMBA}.mamba_state_indices_triton:fused_replay_state_indices")
        fill(
            req_pool_indices=rows,
            mamba_index_mapping=slots,
            out_state_indices=out,
            valid_bs=live,
            total_bs=len(rows),
        )
