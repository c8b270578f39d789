"""The release's plans of a prefill, and its allocator of slots."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from oracle.tracking import broken_allocation
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
            [one is not None for one in boundaries],
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
        """What is wrong with the slots that the release's allocator gives out, when they are given and behind each later operation."""
        allocator = find("sglang.srt.mem_cache.allocator.mamba:MambaSlotAllocator")(size, "cpu")
        given: list[Any] = []
        held: dict[int, Any] = {}
        read_again: list[dict[int, tuple[int, ...]]] = []
        asked: list[tuple[str, int]] = []
        for operation, argument in operations:
            match operation:
                case "begin":
                    allocator.alloc_group_begin(argument)
                case "end":
                    allocator.alloc_group_end()
                case "alloc":
                    slots = allocator.alloc(argument)
                    given.append(None if slots is None else tuple(slots.tolist()))
                    if slots is not None:
                        held[len(asked)] = slots
                case "free":
                    if argument in held:
                        # The tensor that was given, as a request gives it back.
                        allocator.free(held.pop(argument))
                    given.append(None)
                case "clear":
                    allocator.clear()
                    held.clear()
                    given.append(None)
                case _:
                    given.append((allocator.available_size(),))
            # So that an allocation keeps its number.
            given += [None] * (len(asked) + 1 - len(given))
            asked.append((operation, argument))
            read_again.append({number: tuple(slots.tolist()) for number, slots in held.items()})
        return broken_allocation(size, asked, given, read_again)
