"""What the documented functions are called with, as plain data, and the calls that are made of it.

The data say what a call holds, as a caller of these functions knows it. How they are drawn is the business of each way to search;
the strategies of `properties/strategies` are used by none of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

from properties.strategies.align.afters import After
from properties.strategies.align.batches import BatchLayout
from properties.strategies.align.befores import Before
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.pointers import MovedRuns, do_copies
from properties.strategies.align.requests import Sampled, Starting
from properties.strategies.align.runner import postprocess
from properties.strategies.align.runner_steps import RunnerStep
from properties.strategies.align.setup import Setup
from properties.strategies.batch import Batch, Splitting, metadata
from properties.strategies.builder_sessions import Session, captured_step
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from properties.strategies.chunks import Packed, varlen_call
from properties.strategies.layout import Copy, environment
from properties.strategies.shapes import CALCULATOR, ShapeArguments
from properties.test_align_runner import (
    after_a_step,
    all_staged,
    cleaned_up_twice,
    sampled_rows,
    stage_columns,
    stage_metadata,
)
from properties.test_chunks import conv_call
from statecheck.case.values import Call, DType, Record, Step, Tensor, call, int32, record
from subjects import load

Steps = Sequence[Step]


@cache
def sizes_of(family: str) -> tuple[str, ...]:
    """The parameters of a family of shapes, beside ranks and drafts."""
    taken = inspect.signature(load("impl").resolve(f"{CALCULATOR}.{family}")).parameters
    return tuple(name for name in taken if name not in ("tp_world_size", "tp_size", "num_spec"))


@dataclass(frozen=True)
class Division:
    """Numbers to divide, and the divisor."""

    numbers: tuple[int, ...]
    divisor: int


@dataclass(frozen=True)
class Lookup:
    """Lengths to look up in a block table of distinct blocks that has `spare` columns more than they need."""

    seq_lens: tuple[int, ...]
    block_size: int
    num_speculative_blocks: int
    spare: int
    mode: str

    @property
    def width(self) -> int:
        longest = max((1, *self.seq_lens))
        return -(-longest // self.block_size) + self.num_speculative_blocks + self.spare

    def call(self) -> Call:
        rows, width = len(self.seq_lens), self.width
        table = Tensor("int32", (rows, width), tuple(range(1, rows * width + 1)))
        return call(
            "mamba_get_block_table_tensor",
            block_table=table,
            seq_lens=int32(self.seq_lens),
            kv_cache_spec=Specification(
                self.block_size, ((2, 3),), "float32", 0, self.mode, self.num_speculative_blocks
            ).record(),
            mamba_cache_mode=self.mode,
        )


@dataclass(frozen=True)
class Specification:
    """A `MambaSpec`, with `padding` bytes behind its states."""

    block_size: int
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    padding: int
    mode: str
    num_speculative_blocks: int
    max_model_len: int = 64

    def record(self) -> Record:
        size = sum(map(prod, self.shapes)) * {"float32": 4, "bfloat16": 2, "uint8": 1}[self.dtype]
        return record(
            "MambaSpec",
            block_size=self.block_size,
            shapes=self.shapes,
            dtypes=(DType(self.dtype),) * len(self.shapes),
            page_size_padded=size + self.padding if self.padding else None,
            mamba_cache_mode=self.mode,
            num_speculative_blocks=self.num_speculative_blocks,
        )

    def calls(self) -> Steps:
        config = record("VllmConfig", model_config=record("ModelConfig", max_model_len=self.max_model_len))
        return [
            call("MambaSpec.page_size_bytes.fget", self=self.record()),
            call("MambaSpec.max_memory_usage_bytes", self=self.record(), vllm_config=config),
        ]


@dataclass(frozen=True)
class Capture:
    """A builder that is to capture a graph for so many decodes and rows of padding."""

    setup: BuilderSetup
    rows: int
    padded: int


@dataclass(frozen=True)
class HybridModel:
    """Layers with a short convolution and a recurrent state each, in `groups` groups that have block tables of their own."""

    block_size: int
    num_spec: int
    groups: int
    layers: int
    conv_width: int
    channels: int
    heads: int
    head_dim: int
    dtype: str
    layout: str

    def setup(self) -> Setup:
        conv = self.conv_width + self.num_spec, self.channels
        states = (
            Kept("conv", conv if self.layout == "SD" else conv[::-1], self.dtype),
            Kept("temporal", (self.heads, self.head_dim, 2), self.dtype),
        )
        groups = (Group(states, self.layers),) * self.groups
        return Setup(groups, ("conv", "temporal"), self.block_size, self.num_spec, self.layout)


@dataclass(frozen=True)
class Sampling:
    """Requests of a model after a forward. `slots`: the seed of a shuffle of their slots."""

    model: HybridModel
    requests: tuple[Sampled, ...]
    slots: int

    def batch(self) -> After:
        return After(self.model.setup(), self.requests, BatchLayout(slots=self.slots))

    def in_rows(self) -> After:
        return After(self.model.setup(), self.requests)


@dataclass(frozen=True)
class Preparing:
    """Requests of a model before a forward. `slots`: as above."""

    model: HybridModel
    requests: tuple[Starting, ...]
    slots: int

    def batch(self) -> Before:
        return Before(self.model.setup(), self.requests, BatchLayout(slots=self.slots))

    def step(self) -> RunnerStep:
        return RunnerStep(self.model.setup(), self.requests)


@dataclass(frozen=True)
class Target:
    """A call to search: its name, the data that it is made of, and how.

    Args:
        launches: whether it executes kernels, which takes milliseconds an example.
    """

    name: str
    input: type[Any]
    steps: Callable[[Any], Steps]
    launches: bool = False


def _starts(packed: Packed) -> Tensor:
    return int32(packed.starts)


def _documented(session: Session) -> Session:
    """With room for all tokens, and with the host data that the documents ask the runner for."""
    lengths = [row.seq_len for step in session.steps for row in step.requests]
    longest = max((session.setup.max_model_len, *lengths)) + session.setup.num_spec
    setup = replace(session.setup, max_model_len=longest)
    return Session(setup, tuple(_documented_step(step, setup) for step in session.steps))


def _documented_step(step: BuildCall, setup: BuilderSetup) -> BuildCall:
    """A request accepts at most its drafts and a token more; a row of GDN that is not marked as one with drafts accepted one."""
    bounds = step.bounds or setup.kind == "mamba2" or setup.mode == "all"

    def accepted(row: StepRequest) -> int:
        unmarked = setup.kind == "gdn" and not (step.drafts and row.drafts >= 0)
        return 1 if unmarked else min(max(1, row.accepted), 1 + setup.num_spec)

    rows = tuple(replace(row, accepted=accepted(row)) for row in step.requests)
    return replace(step, requests=rows, bounds=bounds, marks=step.marks or not bounds)


def _built(session: Session) -> Steps:
    session = _documented(session)
    return [session.setup.construct(), *(one.build(session.setup) for one in session.steps)]


def _updated(session: Session) -> Steps:
    session = _documented(session)
    other = session.steps[-1].with_blocks_from(500)
    # The documents' builder of GDN has no update.
    updated = [] if session.setup.kind == "gdn" else [other.update(session.setup)]
    return [*_built(session), *updated]


def _copied(runs: MovedRuns) -> Steps:
    return [*runs.steps(), runs.collect(), do_copies(("pool0",))]


def _stored(sampling: Sampling) -> Steps:
    batch = sampling.in_rows()
    return [*after_a_step(batch), postprocess(batch.cache, sampled_rows(batch))]


def _staged(preparing: Preparing) -> Steps:
    step = preparing.step()
    return [*all_staged(step), stage_columns(step), stage_metadata(step)]


def _decided(preparing: Preparing) -> Steps:
    batch = preparing.batch()
    return [*batch.prepared(), *batch.advance(), batch.precopy()]


TARGETS = (
    Target("cdiv", Division, lambda one: [call("cdiv", x=x, y=one.divisor) for x in one.numbers]),
    Target("divide", Division, lambda one: [call("divide", x=x, y=one.divisor) for x in one.numbers]),
    Target("cdiv of a tensor", Division, lambda one: [call("cdiv", x=int32(one.numbers), y=one.divisor)]),
    Target("MambaSpec", Specification, Specification.calls),
    Target("compute_varlen_chunk_metadata", Packed, lambda one: [varlen_call(one)]),
    Target("compute_causal_conv1d_metadata", Packed, lambda one: [conv_call(_starts(one))]),
    Target("prepare_chunk_indices", Packed, lambda one: [call("prepare_chunk_indices", cu_seqlens=_starts(one), chunk_size=one.chunk_size)]),
    Target("prepare_chunk_offsets", Packed, lambda one: [call("prepare_chunk_offsets", cu_seqlens=_starts(one), chunk_size=one.chunk_size)]),
    Target("split_decodes_and_prefills", Splitting, lambda one: [one.call()]),
    Target("compute_num_computed_tokens", Batch, lambda one: [call("CommonAttentionMetadata.compute_num_computed_tokens", self=metadata(one))]),
    Target("naive_query_lens", Batch, lambda one: [call("CommonAttentionMetadata.naive_query_lens", self=metadata(one))]),
    Target("mamba_get_block_table_tensor", Lookup, lambda one: [one.call()]),
    Target("get_conv_copy_spec", Copy, lambda one: [one.call("get_conv_copy_spec")]),
    Target("get_temporal_copy_spec", Copy, lambda one: [one.call("get_temporal_copy_spec")]),
    Target("conv layout", Copy, lambda one: [call(name, environment=environment(one.layout)) for name in ("get_conv_state_layout", "is_conv_state_dim_first")]),
    Target("state shapes", ShapeArguments, lambda one: [one.call()]),
    Target("build", Session, _built),
    Target("update_block_table", Session, _updated),
    Target("build_for_cudagraph_capture", Capture, lambda one: [one.setup.construct(), captured_step(one.setup, one.rows, one.padded)]),
    Target("get_mamba_groups", Preparing, lambda one: [Call("get_mamba_groups", (("kv_cache_config", one.model.setup().config(4)),))]),
    Target("cleanup_mamba_state_idx", Preparing, lambda one: cleaned_up_twice(one.step())),
    Target("staging", Preparing, _staged),
    Target("run_fused_postprocess", Sampling, lambda one: [*one.in_rows().prepared(), *one.in_rows().rowwise()], launches=True),
    Target("run_fused_postprocess_align", Sampling, lambda one: [*one.batch().prepared(), *one.batch().slotwise()], launches=True),
    Target("run_fused_precopy", Preparing, lambda one: [*one.batch().prepared(), *one.batch().slotwise()], launches=True),
    Target("preprocess_mamba_align_fused_kernel", Preparing, _decided, launches=True),
    Target("preprocess_mamba", Preparing, lambda one: [*one.step().prepared(), one.step().preprocess()], launches=True),
    Target("postprocess_mamba_align_gpu", Sampling, _stored, launches=True),
    Target("do_mamba_copy_block", MovedRuns, _copied, launches=True),
)  # fmt: skip
"""What a user's tests of these functions would call, in the order of the documents."""
