"""Answers about kernels of align mode that are launched by themselves (document 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle.align.decisions import Slots, advanced, after_step, precopy_moves
from oracle.align.pointers import memory_after
from statecheck.case.values import Attribute, Value
from statecheck.reference import answers
from statecheck.reference.align import Answer, moves_done, v1_postprocess, v2_postprocess
from statecheck.reference.align_lists import memcpy
from statecheck.reference.align_values import Context, Known, context_of, named_as, rewritten
from statecheck.subject.profile import Profile


@answers(
    "harness.launch",
    rule={
        "preprocess_mamba_align_fused_kernel": advanced,
        "precopy_mamba_align_fused_kernel": precopy_moves,
        "postprocess_mamba_fused_kernel": after_step,
        "batch_memcpy_kernel": memory_after,
    },
)
def launched(
    memory: Known,
    profile: Profile,
    kernel: str,
    grid: tuple[int, ...],
    arguments: dict[str, Value],
    constexprs: dict[str, Any],
) -> Answer:
    """What a kernel that is launched by itself changes."""
    match kernel:
        case "preprocess_mamba_align_fused_kernel":
            return None, _preprocess_kernel(grid, arguments, constexprs, memory, profile)
        case "precopy_mamba_align_fused_kernel":
            return None, _precopy_kernel(arguments, memory, profile)
        case "postprocess_mamba_fused_kernel":
            return None, _postprocess_kernel(arguments, constexprs, memory, profile)
        case "batch_memcpy_kernel":
            return memcpy(memory, profile, **arguments)
    raise AssertionError(f"there is no rule for the kernel {kernel}")


def _values(arguments: Mapping[str, Value], *names: str) -> list[tuple[int, ...]]:
    return [arguments[name].values() for name in names]


def _preprocess_kernel(
    grid: tuple[int, ...],
    arguments: Mapping[str, Value],
    constexprs: Mapping[str, int],
    known: Known,
    profile: Profile,
) -> dict[str, Value]:
    rows, per_program = arguments["num_reqs"], constexprs["BLOCK_SIZE"]
    assert grid[0] * per_program >= rows, f"{grid[0]} programs of {per_program} rows leave some of {rows} out"
    # The names that the vectors go by, in the order of the rule's fields.
    names = {
        "columns": "state_idx_ptr",
        "counts": "num_accepted_tokens_ptr",
        "src_col": "src_col_ptr",
        "bias": "src_off_ptr",
    }
    slots = Slots(*_values(arguments, *names.values()))
    mapping, starts, computed = _values(
        arguments, "idx_mapping_ptr", "query_start_loc_ptr", "num_computed_tokens_ptr"
    )
    block_size = {**arguments, **constexprs}["MAMBA_BLOCK_SIZE"]
    after = advanced(slots, mapping[:rows], starts, computed, block_size, profile)
    results = (after.columns, after.counts, after.src_col, after.src_off)
    return {
        named_as(name, arguments[argument], known): rewritten(arguments[argument], dict(enumerate(values)))
        for (name, argument), values in zip(names.items(), results, strict=True)
    }


def _launching(arguments: Mapping[str, Value]) -> Context:
    """The context whose vectors a kernel is handed, which is initialised."""
    owner = next(value.of for value in arguments.values() if isinstance(value, Attribute))
    context = context_of(owner)
    assert context is not None, "a context's vectors are those of a context"
    assert context.bound is not None, "a context without states has nothing to launch on"
    return context


def _mapping(arguments: Mapping[str, Value]) -> tuple[int, ...]:
    rows, mapping = arguments["num_reqs"], arguments["idx_mapping_ptr"]
    return tuple(range(rows)) if mapping is None else mapping.values()[:rows]


def _precopy_kernel(arguments: Mapping[str, Value], known: Known, profile: Profile) -> dict[str, Value]:
    names = ("mamba_state_idx_ptr", "src_col_ptr", "token_bias_ptr")
    columns, src_col, bias = _values(arguments, *names)
    moves = precopy_moves(_mapping(arguments), columns, src_col, bias, profile)
    return moves_done(_launching(arguments), moves, known, profile)


def _postprocess_kernel(
    arguments: Mapping[str, Value], constexprs: Mapping[str, Any], known: Known, profile: Profile
) -> dict[str, Value]:
    context, rows = _launching(arguments), arguments["num_reqs"]
    names = ["num_accepted_tokens_ptr", "mamba_state_idx_ptr", "num_computed_tokens_ptr"]
    if constexprs.get("PRECOMPUTED_NEW_COMPUTED", False):
        _, columns, computed = _values(arguments, *names)
        counts = arguments[names[0]]
        return v2_postprocess(context, _mapping(arguments), counts, columns, computed, known, profile)
    names[2:2] = ["num_scheduled_tokens_ptr"]
    vectors = _values(arguments, *names, "num_draft_tokens_ptr")
    after = v1_postprocess(context, [vector[:rows] for vector in vectors], known, profile)
    # The kernel is handed the vector that it writes counts to, where the driver has the context's.
    counts = after.pop(f"{context.path}.num_accepted_tokens_out")
    written = arguments["num_accepted_tokens_out_ptr"]
    stored = rewritten(written, dict(enumerate(counts.values()[:rows])))
    return {**after, named_as("counts_out", written, known): stored}
