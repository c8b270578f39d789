"""The release's plans of a prefill, and its allocator of slots."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from subjects.kit.slots import allocated
from subjects.sglang.release import find

__all__ = ["TrackingPlan"]
_MAMBA = "sglang.srt.layers.attention.mamba"


class TrackingPlan:
    """The functions, by what they do."""

    @staticmethod
    def kept_states(
        boundaries: Sequence[int | None],
        tokens: Sequence[int],
        prefixes: Sequence[int],
        chunk_size: int,
        flat: bool,
    ) -> tuple[tuple[int, str, int], ...]:
        """(row, source, place) of each row that keeps a state.

        The release's scheduler names a boundary before the last token of a row by the token behind it.
        """
        lengths = [
            -1 if boundary is None else prefix + boundary + (boundary < count)
            for boundary, count, prefix in zip(boundaries, tokens, prefixes, strict=True)
        ]
        plan = find(f"{_MAMBA}.prefill_track_metadata:build_prefill_track_plan")(
            [boundary is not None for boundary in boundaries],
            lengths,
            list(tokens),
            list(prefixes),
            chunk_size,
            mamba2=flat,
        )
        found = [(row, "last", 0) for row in plan.final_rows]
        found += [(row, "chunk", at) for row, at in zip(plan.h_rows, plan.h_src, strict=True)]
        found += [
            (row, "computed", at)
            for row, at in zip(plan.recompute_rows, plan.recompute_end_locs, strict=True)
        ]
        return tuple(sorted(found))

    @staticmethod
    def logical_chunks(tokens: Sequence[int], chunk_size: int) -> tuple[tuple[int, int], ...]:
        """(chunk, offset) of each run of tokens of one row in one chunk."""
        starts = torch.tensor(list(accumulate(tokens, initial=0)), dtype=torch.int32)
        metadata = find(f"{_MAMBA}.mamba2_metadata:Mamba2Metadata")
        chunks, offsets = metadata._query_start_loc_to_chunk_indices_offsets(starts, chunk_size, sum(tokens))
        return tuple(zip(chunks.tolist(), offsets.tolist(), strict=True))

    @staticmethod
    def allocate(size: int, operations: Sequence[tuple[str, int]]) -> str:
        """The first error in the slots that the release's allocator gives out, when they are given and behind each later operation."""
        allocator = find("sglang.srt.mem_cache.allocator.mamba:MambaSlotAllocator")(size, "cpu")
        pool = {
            "alloc": allocator.alloc,
            "free": allocator.free,
            "clear": lambda _: allocator.clear(),
            "left": lambda _: allocator.available_size(),
            "begin": allocator.alloc_group_begin,
            "end": lambda _: allocator.alloc_group_end(),
        }
        return allocated(size, operations, pool, lambda slots: tuple(slots.tolist()))
