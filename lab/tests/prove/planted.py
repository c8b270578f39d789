"""Subjects with planted defects: the kernel of impl that comes before a step, and then what no kernel should do."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import triton
import triton.language as tl

from statecheck.subject import Subject, load
from statecheck.subject.loading import adapted

KERNEL = "preprocess_mamba_align_fused_kernel"
intact = load("impl").resolve(KERNEL)


def subject_with(defect: Any) -> Subject:
    """A subject that has nothing but the kernel, with a defect behind its end."""

    @triton.jit
    def kernel(  # type: ignore[no-untyped-def]
        idx_mapping_ptr,
        state_idx_ptr,
        num_computed_tokens_ptr,
        query_start_loc_ptr,
        num_accepted_tokens_ptr,
        src_col_ptr,
        src_off_ptr,
        num_reqs,
        BLOCK_SIZE: tl.constexpr,
        MAMBA_BLOCK_SIZE,
    ):
        intact(
            idx_mapping_ptr, state_idx_ptr, num_computed_tokens_ptr, query_start_loc_ptr, num_accepted_tokens_ptr,
            src_col_ptr, src_off_ptr, num_reqs, BLOCK_SIZE, MAMBA_BLOCK_SIZE,
        )  # fmt: skip
        defect(
            tl.load(idx_mapping_ptr), num_computed_tokens_ptr, query_start_loc_ptr, src_col_ptr, src_off_ptr
        )

    module = ModuleType("planted")
    setattr(module, KERNEL, kernel)
    return adapted(module)


@triton.jit
def do_nothing(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    pass


@triton.jit
def leave_memory(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """For every input."""
    tl.store(column_ptr, tl.load(starts_ptr - 1))


@triton.jit
def race_and_leave_memory(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """Two lanes exchange their elements without a barrier; after that, as `leave_memory`."""
    lanes = tl.arange(0, 2)
    tl.store(starts_ptr + 1 - lanes, tl.load(starts_ptr + lanes))
    tl.store(column_ptr, tl.load(starts_ptr - 1))


@triton.jit
def leave_memory_unless_7_are_computed(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """Then the bias is wrong."""
    if slot >= 0:
        computed = tl.load(computed_ptr + slot)
        far = tl.load(starts_ptr + tl.where(computed == 7, 0, 1 << 50))
        tl.store(bias_ptr + slot, tl.load(bias_ptr + slot) + tl.where(far == 5, 1, 2))


@triton.jit
def write_an_input(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """Computed tokens are read only."""
    if slot >= 0:
        tl.store(computed_ptr + slot, 3)


@triton.jit
def change_two_biases(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """That of a request of which nothing is computed, and of one of which 7 tokens are; one path has both."""
    if slot >= 0:
        computed, bias = tl.load(computed_ptr + slot), tl.load(bias_ptr + slot)
        tl.store(bias_ptr + slot, tl.where((computed == 0) | (computed == 7), bias + 1, bias))


@triton.jit
def add_atomically(slot, computed_ptr, starts_ptr, column_ptr, bias_ptr):  # type: ignore[no-untyped-def]
    """The sum of a positive column and the largest int32 does not fit."""
    if slot >= 0:
        tl.atomic_add(column_ptr + slot, 2147483647)
