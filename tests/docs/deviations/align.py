"""Inputs on which the copies of align mode deviate from document 4: see docs/deviations.md."""

from __future__ import annotations

from dataclasses import replace

from properties.strategies.align.afters import After
from properties.strategies.align.batches import BatchLayout
from properties.strategies.align.befores import Before
from properties.strategies.align.cache import Cache
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.pointers import MovedRun, MovedRuns, collect, do_copies
from properties.strategies.align.requests import Sampled, Starting
from properties.strategies.align.runner import (
    Scheduled,
    buffers,
    copy_buffers,
    postprocess,
    requests_of,
    scheduler_output,
    stage,
)
from properties.strategies.align.runner_steps import RunnerStep
from properties.strategies.align.setup import Setup
from statecheck.case.values import Fake, Let, Step, Value, View, int32, record
from tests.docs.deviations import Row

TEMPORAL = Setup((Group((Kept("temporal", (1, 1, 1)),)),), block_size=2, num_spec=1)
CONV = replace(TEMPORAL, groups=(Group((Kept("conv", (2, 1)),)),), kinds=("conv",))
BOTH = Setup(
    (Group((Kept("conv", (2, 1)), Kept("temporal", (1,)))),), ("conv", "temporal"), block_size=2, num_spec=1
)
CHANNELS_FIRST = replace(CONV, groups=(Group((Kept("conv", (1, 2)),)),), layout="DS")
PASSES = Sampled(3, 2, 1, 1)
ENDS_ITS_COLUMN = Sampled(2, 2, 1, 2)
LEAVES = Starting(2, 1)


def _stored(setup: Setup, one: Sampled) -> tuple[Step, ...]:
    batch = After(setup, (one,))
    return *batch.prepared(), *batch.rowwise()


def _stored_by_slot(setup: Setup, one: Sampled, schedule: str = "") -> tuple[Step, ...]:
    batch = After(setup, (one,), schedule=schedule)
    return *batch.prepared(), *batch.slotwise()


def _advanced_without_slot() -> tuple[Step, ...]:
    return tuple(Before(TEMPORAL, (LEAVES,), BatchLayout(skipped=(0,))).advance())


def _created(setup: Setup) -> tuple[Step, ...]:
    return Let("config", setup.config(3)), setup.create(1)


def _bound(setup: Setup, *states: View | Fake, **changes: Value) -> tuple[Step, ...]:
    """Bind a context to a layer that has these states."""
    named = After(setup, ()).prepared()[:-1]
    layer = {"forward_context": {"layer0": record("Layer", kv_cache=list(states))}} if states else {}
    return *named, setup.initialize(**layer, **changes)


def _written_down(src_col: int, dst_col: int, *, times: int = 1, size: int = 1) -> tuple[Step, ...]:
    """Write down copies between the columns of a request with two blocks."""
    fake = {"layer0": record("Layer", kv_cache=[Fake("uint8", (3, 1, 1, size), None, 4096)])}
    once = collect(TEMPORAL, [[1, 2]], src_col, dst_col, 0, forward_context=fake)
    return Let("config", TEMPORAL.config(3)), copy_buffers(TEMPORAL, 1), *(once,) * times


def _copied(run: MovedRun) -> tuple[Step, ...]:
    runs = MovedRuns((run,))
    return *runs.steps(), runs.collect(), do_copies(["pool0"])


def _before(step: RunnerStep, **changes: Value) -> tuple[Step, ...]:
    return *step.prepared(), step.preprocess(**changes)


TWO_ROWS = RunnerStep(TEMPORAL, (LEAVES, LEAVES))
TWO_STAGED = (Scheduled("r0", 0, 2, 1), Scheduled("r1", 1, 2, 1))


def _without_second(step: RunnerStep) -> tuple[Step, ...]:
    known = requests_of(step.cache, step.rows)
    return _before(step, requests={"r0": known["r0"]})


def _staged(columns: dict[str, int]) -> tuple[Step, ...]:
    cache = Cache(TEMPORAL, ((0, 1), (0, 1)), (0, 1))
    staged = stage(cache, TWO_STAGED, scheduler_output(TWO_STAGED))
    return Let("config", TEMPORAL.config(3)), TEMPORAL.create(2), Let("state_idx", columns), staged


def _after_an_empty_step() -> tuple[Step, ...]:
    """A step without requests, then one of which a boundary is due."""
    batch, row = After(TEMPORAL, (PASSES,)), Scheduled("r0", 0, PASSES.computed, PASSES.length, PASSES.drafts)
    return (
        *batch.cache.steps(),
        buffers(TEMPORAL, 1),
        Let("state_idx", {"r0": 2}),
        Let("counts", int32([1])),
        Let("accepted", int32([9]).on_host()),
        postprocess(batch.cache, ()),
        stage(batch.cache, (row,), scheduler_output((row,)), "bufs.postprocess_align"),
        postprocess(batch.cache, (row,)),
    )


def _only_boundaries_passed() -> tuple[Step, ...]:
    return _stored(TEMPORAL, Sampled(2, 1))


NO_CACHING: Value = record("CacheConfig", enable_prefix_caching=False)
NARROW = replace(CONV, groups=(Group((Kept("conv", (1, 1)),)),))
WIDE_ROWS = replace(CONV, groups=(Group((Kept("conv", (3, 301)),)),))
WIDE_CHANNELS = replace(CHANNELS_FIRST, groups=(Group((Kept("conv", (301, 3)),)),))
TWO_SHAPES = replace(BOTH, groups=(*BOTH.groups, Group(BOTH.groups[0].states[:1])))

_COPY = "document 4, `_copy_mamba_state_block`"
_BIND = "document 4, `initialize_from_forward_context`"
_PREPROCESS = "document 4, `preprocess_mamba`"

ROWS: tuple[Row, ...] = (
    (
        "document 4, `postprocess_mamba_fused_kernel`, counts in place",
        _stored_by_slot(BOTH, ENDS_ITS_COLUMN, "interleaved:1"),
    ),
    (
        f"{_COPY}, layout SD, source and destination the same block",
        _stored(WIDE_ROWS, ENDS_ITS_COLUMN),
    ),
    (
        f"{_COPY}, layout DS, source and destination the same block",
        _stored(WIDE_CHANNELS, ENDS_ITS_COLUMN),
    ),
    (
        f"{_COPY}, null block as destination",
        _stored(TEMPORAL, replace(PASSES, flaw="null destination")),
    ),
    (
        f"{_COPY}, null block as source",
        _stored(TEMPORAL, replace(PASSES, flaw="null source")),
    ),
    (
        "document 4, `postprocess_mamba_fused_kernel`, no running column",
        _stored(TEMPORAL, replace(PASSES, flaw="no source column")),
    ),
    (
        f"{_COPY}, columns past the table",
        _stored(TEMPORAL, replace(ENDS_ITS_COLUMN, flaw="short row")),
    ),
    (
        "document 4, `preprocess_mamba_align_fused_kernel`",
        _advanced_without_slot(),
    ),
    (
        f"{_BIND}, addresses",
        _bound(TEMPORAL, Fake("uint8", (3, 1, 1, 1), None, 2**63)),
    ),
    (
        f"{_BIND}, states of one dimension",
        _bound(TEMPORAL, View("pool0", "uint8", (2,))),
    ),
    (
        f"{_BIND}, states with gaps inside of a block",
        _bound(CONV, View("pool0", "uint8", (1, 2, 1), (2, 2, 1))),
    ),
    (
        f"{_BIND}, a layer with more states than copy functions",
        _bound(BOTH, mamba_state_copy_funcs=BOTH.copy_functions[:1]),
    ),
    (
        "document 4, `MambaSpecDecodeGPUContext.create`, geometry",
        _created(replace(TEMPORAL, block_size=1)),
    ),
    (
        "document 4, `MambaSpecDecodeGPUContext.create`, conv rows",
        _created(NARROW),
    ),
    (
        "contract 1.7, `get_mamba_groups`",
        _created(TWO_SHAPES),
    ),
    (
        "document 4, the grid of the fused kernels",
        _only_boundaries_passed(),
    ),
    (
        "contract 1.8, `batch_memcpy`",
        _copied(MovedRun(1025, 1)),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, sizes",
        _written_down(0, 1, size=2**31),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, columns",
        _written_down(-1, 1),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, room",
        _written_down(0, 1, times=2),
    ),
    (
        f"{_PREPROCESS}, failing",
        _without_second(TWO_ROWS),
    ),
    (
        f"{_PREPROCESS}, accepted counts",
        _before(RunnerStep(TEMPORAL, (replace(LEAVES, accepted=0),))),
    ),
    (
        f"{_PREPROCESS}, layout DS",
        _before(RunnerStep(CHANNELS_FIRST, (Starting(1, 1, 2),))),
    ),
    (
        "document 4, `stage_mamba_state_idx_to_gpu`",
        _staged({"r0": 1}),
    ),
    (
        "document 4, `postprocess_mamba_align_gpu`",
        _after_an_empty_step(),
    ),
    (
        "document 4, `postprocess_mamba_fused_kernel` with a mapping, launched by itself",
        _stored_by_slot(TEMPORAL, ENDS_ITS_COLUMN),
    ),
    (
        "contract 2.4, step 1, as released (V1, to 0.33.0)",
        _before(RunnerStep(TEMPORAL, (Starting(1, 1, 2),))),
    ),
    (
        "document 4, every `assert` on an argument",
        _before(replace(TWO_ROWS, requests=(LEAVES,)), cache_config=NO_CACHING),
    ),
)
