"""Uniform random inputs over the documented ranges: each number is as likely as any other of its range.

A range depends on what was drawn before where the documents say so: a request accepts at most its drafts and a token more, a table
covers its requests, rows stand in the runner's order. Nothing is drawn more often because a defect may be there.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from properties.strategies.align.pointers import MovedRun, MovedRuns
from properties.strategies.align.requests import Sampled, Starting
from properties.strategies.batch import Batch, RequestRow, Splitting
from properties.strategies.builder_sessions import Session
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from properties.strategies.chunks import Packed
from properties.strategies.layout import Copy, PaddedState
from properties.strategies.shapes import FAMILIES, ShapeArguments
from tests.hunt.ways.inputs import (
    Capture,
    Division,
    HybridModel,
    Lookup,
    Preparing,
    Sampling,
    Specification,
    sizes_of,
)

TOKENS = 256
"""Of a prompt or of a request, at most."""
DTYPES = ("float32", "bfloat16", "uint8")
LAYOUTS = ("SD", "DS")
MODES = ("none", "align", "all")


def division(r: Random) -> Division:
    """Any numbers, or multiples of the divisor."""
    divisor = r.choice((-1, 1)) * r.randint(1, 2**15)
    unit = r.choice((1, divisor))
    return Division(tuple(unit * r.randint(-(2**15), 2**15) for _ in range(r.randint(1, 6))), divisor)


def specification(r: Random) -> Specification:
    shapes = tuple(tuple(r.randint(1, 64) for _ in range(r.randint(1, 3))) for _ in range(r.randint(1, 3)))
    mode = r.choice(MODES)
    return Specification(
        r.randint(1, 64),
        shapes,
        r.choice(DTYPES),
        r.randint(0, 4096),
        mode,
        r.randint(0, 4),
        r.randint(1, 4096),
    )


def packed(r: Random) -> Packed:
    return Packed(tuple(r.randint(0, TOKENS) for _ in range(r.randint(0, 8))), r.randint(1, 256))


def batch(r: Random) -> Batch:
    """Decodes of up to three drafts, then prompts."""
    decodes = [RequestRow(r.randint(1, 4), r.randint(1, TOKENS)) for _ in range(r.randint(0, 6))]
    prompts = [
        RequestRow(r.randint(1, TOKENS), r.randint(0, TOKENS), prefilling=True)
        for _ in range(r.randint(0, 3))
    ]
    return Batch((*decodes, *prompts), r.randint(0, 3), r.randint(0, 3))


def splitting(r: Random) -> Splitting:
    flags = r.choice((True, False)), r.choice((True, False))
    return Splitting(batch(r), r.randint(1, 4), *flags, slack=r.randint(0, 8))


def lookup(r: Random) -> Lookup:
    lens = tuple(r.randint(0, TOKENS) for _ in range(r.randint(0, 6)))
    return Lookup(lens, r.randint(1, 64), r.randint(0, 4), r.randint(1, 4), r.choice(MODES))


def copy(r: Random) -> Copy:
    """A state that is read from a block of its request, which has blocks for all of its drafts."""
    spec, layout, column = r.randint(0, 4), r.choice(LAYOUTS), r.randint(0, 8)
    blocks = r.sample(range(1, 64), column + 1 + spec)
    rows, channels = r.randint(1, 4) + spec, r.randint(1, 32)
    shape = (rows, channels) if layout == "SD" else (channels, rows)
    state = PaddedState(64, shape, r.choice(DTYPES), r.randint(0, 64), r.randint(0, 16))
    return Copy(state, tuple(blocks), column, r.randint(1, 1 + spec), spec, layout)


def shape_arguments(r: Random) -> ShapeArguments:
    """Counts that the ranks share evenly."""
    family, ranks = r.choice(FAMILIES), r.choice((1, 2, 4, 8))
    sizes = sizes_of(family)
    shared = [name.startswith("num_") or name in ("intermediate_size", "n_groups") for name in sizes]
    numbers = [
        r.randint(1, 64) * (ranks if each else 1) + ("kernel" in name)
        for name, each in zip(sizes, shared, strict=True)
    ]
    spec = 0 if family in ("linear_attention_state_shape", "mamba1_state_shape") else r.randint(0, 4)
    return ShapeArguments(family, tuple(zip(sizes, numbers, strict=True)), ranks, spec, r.choice(LAYOUTS))


def setup(r: Random) -> BuilderSetup:
    kind = r.choice(("mamba1", "mamba2", "gdn"))
    return BuilderSetup(
        kind=kind,
        mode=r.choice(MODES[:2] if kind == "gdn" else MODES),
        block_size=r.randint(1, 64),
        num_spec=0 if kind == "mamba1" else r.randint(0, 4),
        spare_blocks=r.randint(0, 2),
        max_num_seqs=r.randint(8, 32),
        max_cudagraph_capture_size=r.choice((None, r.randint(1, 64))),
        full_cudagraphs=r.choice((True, False)),
        max_model_len=2 * TOKENS + 8,
        chunk_size=r.randint(1, 64),
        parallel_drafting=r.choice((True, False)),
        decode_context_parallel_size=r.randint(1, 2),
    )


def _step(r: Random, model: BuilderSetup) -> BuildCall:
    """A step of a runner that tells the builder all that it knows."""
    spec, rows = model.num_spec, []
    for _ in range(r.randint(0, 5)):
        length = r.randint(1, 1 + spec)
        rows.append(StepRequest(length, r.randint(1, TOKENS), False, r.randint(1, 1 + spec), length - 1))
    going_on = sorted(r.randint(1, TOKENS) for _ in range(r.randint(0, 2)))
    rows += [StepRequest(length, r.randint(1, TOKENS), True) for length in going_on]
    rows += [StepRequest(r.randint(1, TOKENS), 0, True) for _ in range(r.randint(0, 2))]
    return BuildCall(tuple(rows), r.randint(0, 3), r.randint(0, 3), first_block=r.randint(1, 1000))


def session(r: Random) -> Session:
    model = setup(r)
    return Session(model, tuple(_step(r, model) for _ in range(r.randint(1, 3))))


def capture(r: Random) -> Capture:
    return Capture(setup(r), r.randint(0, 8), r.randint(0, 3))


def model(r: Random) -> HybridModel:
    spec = r.randint(0, 3)
    sizes = (
        r.randint(1, 2),
        r.randint(1, 2),
        r.randint(1, 4),
        r.randint(1, 8),
        r.randint(1, 3),
        r.randint(1, 4),
    )
    return HybridModel(r.randint(1 + spec, 32), spec, *sizes, r.choice(DTYPES), r.choice(LAYOUTS))


def sampling(r: Random) -> Sampling:
    """Decodes, some of whose drafts are accepted, and chunks of prompts."""
    of, rows = model(r), []
    for _ in range(r.randint(1, 4)):
        drafts = r.randint(0, of.num_spec)
        decode = Sampled(r.randint(1, TOKENS), 1 + drafts, drafts, r.randint(1, 1 + drafts))
        rows.append(r.choice((decode, Sampled(r.randint(0, TOKENS), r.randint(1, TOKENS)))))
    return Sampling(of, tuple(rows), r.randint(0, 1000))


def preparing(r: Random) -> Preparing:
    """Requests that go on, of which the last step rejected some drafts, and new ones."""
    of, rows = model(r), []
    for _ in range(r.randint(1, 4)):
        accepted = r.randint(0, of.num_spec)
        rejected = r.randint(0, of.num_spec - accepted)
        length = r.choice((r.randint(1, 1 + of.num_spec), r.randint(1, TOKENS)))
        going_on = Starting(r.randint(1, TOKENS), length, 1 + accepted, rejected)
        rows.append(r.choice((going_on, Starting(0, r.randint(1, TOKENS), remembered=False))))
    return Preparing(of, tuple(rows), r.randint(0, 1000))


def moved_runs(r: Random) -> MovedRuns:
    runs = (
        MovedRun(r.randint(1, 1024), r.randint(-1024, 1024), r.randint(0, 64)) for _ in range(r.randint(1, 3))
    )
    return MovedRuns(tuple(runs), r.randint(0, 3), r.randint(0, 1000))


DRAWN: dict[type[Any], Callable[[Random], Any]] = {
    Division: division,
    Specification: specification,
    Packed: packed,
    Batch: batch,
    Splitting: splitting,
    Lookup: lookup,
    Copy: copy,
    ShapeArguments: shape_arguments,
    Session: session,
    Capture: capture,
    Sampling: sampling,
    Preparing: preparing,
    MovedRuns: moved_runs,
}
"""By the class of an input, what draws one."""
