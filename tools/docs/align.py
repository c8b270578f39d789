"""Where the copies of align mode deviate from document 4, and why: more rows of docs/deviations.md."""

from __future__ import annotations

from dataclasses import replace

from properties.strategies.align.batches import After, BatchLayout, Before
from properties.strategies.align.cache import Cache
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
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.case.values import Fake, Let, Step, Value, View, int32, record

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

ROWS: tuple[tuple[str, str, str, str, tuple[Step, ...]], ...] = (
    (
        "document 4, `postprocess_mamba_fused_kernel`, counts in place",
        "requests in slots, 1 layer with a conv and a temporal state, blocks of 2; 1 draft accepted, up to the boundary of the running column",
        (
            "state 0's program sets the count to 1 while those of other states still decide from it: the temporal state "
            "is not copied, and the column is published one token short"
        ),
        "every program decides from the counts before the launch; the last one to finish sets them",
        _stored_by_slot(BOTH, ENDS_ITS_COLUMN, "interleaved:1"),
    ),
    (
        f"{_COPY}, layout SD, source and destination the same block",
        "3 conv rows of 301 channels; the same step",
        "no barrier between a tile's loads and stores: a warp reads what another one has already overwritten",
        "as through a temporary: programs share the row's bytes among them, and row follows row",
        _stored(WIDE_ROWS, ENDS_ITS_COLUMN),
    ),
    (
        f"{_COPY}, layout DS, source and destination the same block",
        "301 channels of 3 conv elements; the same step",
        "the same within a channel",
        "as through a temporary: every channel belongs to one program, with a barrier before its stores",
        _stored(WIDE_CHANNELS, ENDS_ITS_COLUMN),
    ),
    (
        f"{_COPY}, null block as destination",
        "1 request whose boundary is due, with the null block in that column",
        "block 0 is overwritten, which every request shares",
        "nothing is copied",
        _stored(TEMPORAL, replace(PASSES, flaw="null destination")),
    ),
    (
        f"{_COPY}, null block as source",
        "the same request, with the null block in its running column",
        "the column is published with whatever lies in block 0",
        "nothing is copied",
        _stored(TEMPORAL, replace(PASSES, flaw="null source")),
    ),
    (
        "document 4, `postprocess_mamba_fused_kernel`, no running column",
        "the same request with running column -1",
        "the block id in front of its table row: another request's state, or no table at all",
        "nothing is copied; -1 means that there is none, as for the precopy",
        _stored(TEMPORAL, replace(PASSES, flaw="no source column")),
    ),
    (
        f"{_COPY}, columns past the table",
        "1 request whose accepted state is in a column behind the last of the table",
        "the first block of the next row: another request's state is published",
        "nothing is copied; the kernels know the width",
        _stored(TEMPORAL, replace(ENDS_ITS_COLUMN, flaw="short row")),
    ),
    (
        "document 4, `preprocess_mamba_align_fused_kernel`",
        "1 row without a slot, -1 in the mapping as in the other two kernels",
        "reads or writes the entry in front of each of the five vectors",
        "the row is skipped",
        _advanced_without_slot(),
    ),
    (
        f"{_BIND}, addresses",
        "a state at address 2^63",
        "torch's error about an overflow, and never a context",
        "the same 64 bits as two's complement, which is what kernels add offsets to",
        _bound(TEMPORAL, Fake("uint8", (3, 1, 1, 1), None, 2**63)),
    ),
    (
        f"{_BIND}, states of one dimension",
        "1 temporal state of shape (2,), a number per block",
        "blocks are said to be 2 elements apart: every block but the null block lies outside of the tensor",
        "`ValueError` naming the layer's `kv_cache[0]`: a state has a block axis and at least one more",
        _bound(TEMPORAL, View("pool0", "uint8", (2,))),
    ),
    (
        f"{_BIND}, states with gaps inside of a block",
        "1 conv state of 2 rows, 1 channel, rows 2 elements apart",
        "copies the gaps, that behind the last row included: bytes that belong to the next state",
        "`ValueError` naming the layer's `kv_cache[0]`",
        _bound(CONV, View("pool0", "uint8", (1, 2, 1), (2, 2, 1))),
    ),
    (
        f"{_BIND}, a layer with more states than copy functions",
        "2 states, 1 copy function",
        "`IndexError`, with the vectors half written; `collect_mamba_copy_meta` leaves the second state out silently",
        "`ValueError` naming the layer's `kv_cache`, before anything is written, in both",
        _bound(BOTH, mamba_state_copy_funcs=BOTH.copy_functions[:1]),
    ),
    (
        "document 4, `MambaSpecDecodeGPUContext.create`, geometry",
        "1 speculative token, blocks of 1 token",
        "accepted; a step can pass two boundaries, and of these only the last one is stored",
        "`ValueError` naming `num_speculative_blocks`",
        _created(replace(TEMPORAL, block_size=1)),
    ),
    (
        "document 4, `MambaSpecDecodeGPUContext.create`, conv rows",
        "1 speculative token, conv states of 1 row",
        "accepted; a boundary behind the first token is published with no conv row at all",
        "`ValueError` naming `shapes[0]`",
        _created(NARROW),
    ),
    (
        "contract 1.7, `get_mamba_groups`",
        "2 groups, one with a conv and a temporal state, one with a conv state only",
        "`AssertionError`: all specifications have to be equal",
        "legal; only what the copies share has to be equal: block size, speculative blocks, mode",
        _created(TWO_SHAPES),
    ),
    (
        "document 4, the grid of the fused kernels",
        "1 request that passes no boundary",
        "a program for each request and state, of which each finds for itself that there is nothing to do",
        "a fixed number of programs, which look at all requests and share out the tiles of those that copy",
        _only_boundaries_passed(),
    ),
    (
        "contract 1.8, `batch_memcpy`",
        "1 run of 1,025 bytes that moves by 1 byte towards higher addresses",
        "the second tile of 1,024 bytes reads what the first one wrote; within a tile there is no barrier either",
        "as through a temporary, from the back where that is what it takes",
        _copied(MovedRun(1025, 1)),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, sizes",
        "1 temporal state of 2^31 bytes",
        "`OverflowError`: sizes are int32",
        "sizes are int64",
        _written_down(0, 1, size=2**31),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, columns",
        "source column -1 of 2",
        "the last column's state: a Python list counts from the end",
        "`ValueError` naming `src_col`",
        _written_down(-1, 1),
    ),
    (
        "contract 1.8, `collect_mamba_copy_meta`, room",
        "lists for 1 request, 2 requests",
        "`IndexError` in the middle of the second request; a caller that catches it has the first copy done",
        "`ValueError` naming `bufs.offset`, before anything of the request is written",
        _written_down(0, 1, times=2),
    ),
    (
        f"{_PREPROCESS}, failing",
        "2 requests, of which `requests` does not have the second",
        (
            "`KeyError` after the first one's column is remembered and its count is 1, with the copy not made: tried again, "
            "it reads a column that was never written"
        ),
        "`ValueError` naming `requests['r1']`, before anything is changed",
        _without_second(TWO_ROWS),
    ),
    (
        f"{_PREPROCESS}, accepted counts",
        "1 request that leaves its column, accepted count 0",
        "bias -1: the temporal state one column to the left, the last conv row as if it were all of them",
        "`ValueError` naming `num_accepted_tokens_cpu[0]`",
        _before(RunnerStep(TEMPORAL, (replace(LEAVES, accepted=0),))),
    ),
    (
        f"{_PREPROCESS}, layout DS",
        "1 conv state; 1 request that accepted a draft and leaves its column",
        "`NotImplementedError`: a pointer and a size cannot say it",
        "copied by the batch's block tables, in one launch; without these, `NotImplementedError` before anything is changed",
        _before(RunnerStep(CHANNELS_FIRST, (Starting(1, 1, 2),))),
    ),
    (
        "document 4, `stage_mamba_state_idx_to_gpu`",
        "2 requests, of which the second has no column",
        "`AssertionError` after the first row is written on the host",
        "`ValueError` naming `mamba_state_idx['r1']`, before anything is written",
        _staged({"r0": 1}),
    ),
    (
        "document 4, `postprocess_mamba_align_gpu`",
        "a step without requests, then one with a boundary that is due",
        "the first step binds to empty tables, whose address is 0; the second one reads block ids there",
        "a step without requests binds nothing",
        _after_an_empty_step(),
    ),
    (
        "document 4, `postprocess_mamba_fused_kernel` with a mapping, launched by itself",
        "1 request that ends its running column, no `counters_ptr`",
        (
            "each program resets the count after its own copy: a program that starts later reads 1, and copies from the "
            "wrong column"
        ),
        "the last program to finish resets the counts; to know the last one it needs `counters_ptr`, and does not compile without",
        _stored_by_slot(TEMPORAL, ENDS_ITS_COLUMN),
    ),
    (
        "contract 2.4, step 1, as released (V1, to 0.33.0)",
        "1 request that accepted a draft, was not scheduled for the step after, and leaves its column now",
        "its count is 1 again: it reads the state before its accepted draft, which breaks I1",
        "it has the count that it had before the pause",
        _before(RunnerStep(TEMPORAL, (Starting(1, 1, 2),))),
    ),
    (
        "document 4, every `assert` on an argument",
        "prefix caching off",
        "`AssertionError`, and nothing at all under `python -O`",
        "`ValueError` that names the argument, the value and the rule",
        _before(replace(TWO_ROWS, requests=(LEAVES,)), cache_config=NO_CACHING),
    ),
)
