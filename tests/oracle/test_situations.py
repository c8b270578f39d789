"""Which situations each call of a rule is: all of a topic that come up, by the names of their marks, and no others.

Two calls that differ in a token or a row stand side by side where that token or row makes the situation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from oracle import batch, chunks, layout, shapes, types
from oracle.align import context, decisions, pointers, runner
from oracle.align.context import CacheGroup, StateSpec, StateView, TableView
from oracle.align.decisions import Slots
from oracle.align.memory import Move, Place, StateTensor, copies_of, state_copy
from oracle.align.pointers import Entry
from oracle.align.runner import Forgotten, RunnerRequest
from oracle.builders.base import base_metadata, updated_block_table
from oracle.builders.batch import StepRow
from oracle.builders.gdn import gdn_metadata
from oracle.builders.mamba2 import position_chunks
from oracle.layout import StateGeometry, Unrepresentable
from oracle.lifecycle.blocks import BlockPool
from oracle.lifecycle.ledger import StateLedger
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import Geometry, ScheduledRequest, Wish
from oracle.lifecycle.scheduler import Scheduler, aligned_length
from oracle.lifecycle.tables import BlockList
from oracle.profile import DOCUMENTS
from oracle.situations.registry import Situation, take
from tests.oracle.test_align_examples import CONV, TEMPORAL
from tests.oracle.test_builder_examples import config, full, padding, row, step
from tests.oracle.test_lifecycle_blocks import registered_pool
from tests.oracle.test_lifecycle_examples import ALIGN, ALL
from tests.oracle.test_worked_examples import DS, IDS, SD, TABLE, split
from tests.oracle.test_worked_examples import TEMPORAL as STATE

Situations = tuple[str, Callable[[], object]]
"""The names of the marks, and the call."""


def named(topic: str) -> dict[str, str]:
    """The names of a topic's marks, such as NO_ROW or "INSIDE-SD-1", by what their situations are called."""
    names = {}
    for part in topic.split():
        for name, value in vars(import_module(f"oracle.situations.{part}")).items():
            if isinstance(value, Situation):
                names[value.name] = name
            elif isinstance(value, dict):
                for key, one in value.items():
                    if isinstance(one, Situation):
                        parts = key if isinstance(key, tuple) else (key,)
                        names[one.name] = "-".join(map(str, (name, *parts)))
    return names


def of(topic: str, *rows: Situations) -> list[Any]:
    return [pytest.param(topic, *one, id=f"{topic}-{one[0] or 'none'}") for one in rows]


F, T = False, True
UNIFORM = {"require_uniform": True}
FLAGS: dict[str, Any] = {"treat_short_extends_as_decodes": False, "is_prefilling": (F, T)}

SPLIT = of(
    "batch",
    ("NO_ROW", lambda: split(())),
    ("", lambda: split((1, 1))),
    ("PADDED_DECODE", lambda: split((1, 1, 0))),
    ("", lambda: split((0, 0))),
    ("TOKENS_TO_DECODES", lambda: split((1, 1), tokens=3)),
    ("", lambda: split((1, 5))),
    ("TOKENS_TO_PREFILLS", lambda: split((1, 5), tokens=7)),
    ("LATE_DECODE", lambda: split((1, 5, 1))),
    ("LATE_DECODE", lambda: split((5, 3), 3)),
    ("", lambda: split((5, 4), 3)),
    ("PADDED_PREFILL", lambda: split((1, 5, 0))),
    ("AT_THRESHOLD", lambda: split((3, 2), 3)),
    ("", lambda: split((2, 2), 3)),
    ("SHORT_CHUNK", lambda: split((1, 1), **FLAGS)),
    ("AT_THRESHOLD SHORT_CHUNK", lambda: split((3, 3), 3, **FLAGS, **UNIFORM)),
    ("AT_THRESHOLD LATE_DECODE UNEVEN", lambda: split((3, 2, 1), 3, **UNIFORM)),
    ("UNEVEN", lambda: split((2, 1), 3, **UNIFORM)),
    ("ONLY_PADDING PADDED_DECODE", lambda: split((2, 2, 0), 3, **UNIFORM)),
    ("", lambda: split((2, 2), 3, **UNIFORM)),
    ("", lambda: split((0, 0), 3, **UNIFORM)),
    ("PADDED_DECODE", lambda: split((1, 0), 1, **UNIFORM)),
    ("PADDED_DECODE", lambda: split((2, 0), 3)),
    ("PADDED_PREFILL", lambda: split((5, 0), 3, **UNIFORM)),
)


def gathers(seq_len: int, table: Sequence[Sequence[int]] = TABLE, mode: str = "align") -> object:
    return batch.block_table_rows(table, (seq_len,), 4, 2, mode)


GATHERED = of(
    "batch",
    ("GATHERED_PADDING", lambda: gathers(0)),
    ("", lambda: gathers(0, mode="none")),
    ("", lambda: gathers(1)),
    ("", lambda: gathers(-4)),
    ("FULL_BLOCK", lambda: gathers(4)),
    ("FULL_BLOCK", lambda: gathers(8)),
    ("TABLE_END", lambda: gathers(9)),
    ("FULL_BLOCK TABLE_END", lambda: gathers(12)),
    ("BEFORE_NULL", lambda: gathers(5, ((0, 2, 3, 4, 5),))),
    ("FULL_BLOCK", lambda: gathers(4, ((0, 2, 3, 4, 5),))),
    ("", lambda: gathers(5, ((1, 0, 3, 4, 5),))),
    ("", lambda: gathers(-4, ((0, 2, 3, 4, 5),))),
)
TYPES = of(
    "types",
    ("NEGATIVE", lambda: types.cdiv(-5, 4)),
    ("NEGATIVE", lambda: types.cdiv(-1, 4)),
    ("NEGATIVE", lambda: types.cdiv(5, -4)),
    ("", lambda: types.cdiv(-4, 4)),
    ("", lambda: types.cdiv(1, 4)),
    ("", lambda: types.page_size_bytes(((3, 8),), (2,))),
    ("", lambda: types.page_size_bytes(((3, 8),), (2,), 48)),
    ("PADDED", lambda: types.page_size_bytes(((3, 8),), (2,), 49)),
    ("PART", lambda: types.pages_per_request("all", 0, 4, 10, DOCUMENTS)),
    ("", lambda: types.pages_per_request("all", 0, 4, 8, DOCUMENTS)),
    ("", lambda: types.pages_per_request("align", 0, 4, 10, DOCUMENTS)),
)
CHUNKS = of(
    "chunks",
    ("NO_TOKENS", lambda: chunks.varlen_chunk_metadata((0,), 4)),
    ("EMPTY NO_TOKENS", lambda: chunks.varlen_chunk_metadata((0, 0), 4)),
    ("", lambda: chunks.varlen_chunk_metadata((0, 8), 4)),
    ("", lambda: chunks.varlen_chunk_metadata((0, 2, 6), 4)),
    ("ONE_TOKEN", lambda: chunks.varlen_chunk_metadata((0, 9), 4)),
    ("", lambda: chunks.varlen_chunk_metadata((0, 1), 1)),
    ("ONE_TOKEN", lambda: chunks.varlen_chunk_metadata((0, 1, 3), 2)),
    ("MEET", lambda: chunks.varlen_chunk_metadata((0, 8, 16), 4)),
    ("EMPTY MEET", lambda: chunks.varlen_chunk_metadata((0, 4, 4, 6), 4)),
    ("EMPTY", lambda: chunks.varlen_chunk_metadata((0, 4, 4), 4)),
    ("NO_PROGRAM", lambda: chunks.causal_conv1d_metadata((0, 0))),
    ("", lambda: chunks.causal_conv1d_metadata((0, 7))),
    ("FULL_TILE", lambda: chunks.causal_conv1d_metadata((0, 3, 11, 11))),
    ("", lambda: chunks.causal_conv1d_metadata((0, 3, 8))),
    ("LATER_START", lambda: chunks.causal_conv1d_metadata((1, 4))),
    ("FULL_TILE", lambda: chunks.causal_conv1d_metadata((0, 8192))),
    ("MANY_PROGRAMS", lambda: chunks.causal_conv1d_metadata((0, 8193))),
    ("", lambda: chunks.chunk_indices((0, 5, 5), 4)),
    ("EMPTY_NUMBER", lambda: chunks.chunk_indices((0, 5, 5, 7), 4)),
    ("FULL_CHUNK", lambda: chunks.chunk_indices((0, 8), 4)),
    ("", lambda: chunks.chunk_indices((0, 0), 4)),
)
SHAPES = of(
    "shapes",
    ("ONE_ROW", lambda: shapes.orient_conv_shape(8, 1, "SD")),
    ("", lambda: shapes.orient_conv_shape(1, 2, "SD")),
    ("", lambda: shapes.history_rows(4, 0)),
    ("DRAFT_ROWS", lambda: shapes.history_rows(4, 1)),
    ("", lambda: shapes.repeated_groups("n_groups", 2, "tp_size", 1)),
    ("SHARED", lambda: shapes.repeated_groups("n_groups", 2, "tp_size", 2)),
    ("REPEATED", lambda: shapes.repeated_groups("n_groups", 2, "tp_size", 4)),
    ("KEYS_AS_VALUES", lambda: shapes.kda_state_shape(1, 4, 8, layout="SD")),
    ("", lambda: shapes.kda_state_shape(1, 4, 8, 4, layout="SD")),
)
FAR = StateGeometry(num_blocks=2**12, block_shape=(5, 3), itemsize=2, block_stride_bytes=2**20)


def copies(geometry: StateGeometry, layout_name: str, accepted: int, ids: Sequence[int] = IDS) -> None:
    with suppress(Unrepresentable):
        layout.conv_copy_run(geometry, layout_name, ids, 1, accepted)


LAYOUT = of(
    "layout",
    ("UNSET", lambda: layout.conv_state_layout({})),
    ("", lambda: layout.conv_state_layout({layout.LAYOUT_VARIABLE: "DS"})),
    ("", lambda: copies(SD, "SD", 1)),
    ("SKIPPED_ROWS", lambda: copies(SD, "SD", 2)),
    ("LAST_ROW SKIPPED_ROWS", lambda: copies(SD, "SD", 5, (0, 1, 1, 1, 1, 1))),
    ("", lambda: copies(StateGeometry(4, (1, 3), 2, 64), "SD", 1)),
    ("", lambda: copies(DS, "DS", 1)),
    ("IN_PIECES", lambda: copies(DS, "DS", 2)),
    ("FAR_BLOCK", lambda: copies(FAR, "SD", 1, (0, 2048))),
    ("", lambda: copies(FAR, "SD", 1, (0, 2047))),
    ("", lambda: layout.temporal_copy_run(STATE, IDS, 1, 1)),
    ("DRAFTED_COLUMN", lambda: layout.temporal_copy_run(STATE, IDS, 1, 2)),
    ("DRAFTED_COLUMN LAST_COLUMN", lambda: layout.temporal_copy_run(STATE, IDS, 1, 3)),
    ("LAST_COLUMN", lambda: layout.temporal_copy_run(STATE, IDS, 3, 1)),
    ("FAR_BLOCK", lambda: layout.temporal_copy_run(FAR, (2048, 1), 0, 1)),
    ("", lambda: layout.temporal_copy_run(FAR, (2047, 1), 0, 1)),
)
MEMORY = {"pool": bytes(4096), "other": bytes(8)}


def entry(distance: int, size: int, pool: str = "pool") -> object:
    """The memory after an entry."""
    first = 2048 if pool == "pool" else 0
    listed = Entry(Place(pool, first), Place("pool", first + distance), size)
    return pointers.memory_after(MEMORY, [listed])


def all_columns(*groups: int) -> None:
    states = [StateTensor("pool", CONV.geometry, "conv", group) for group in groups]
    pointers.require_all_columns([[1], [1]], states, 0, 0, 0)


POINTERS = of(
    "align.pointers",
    ("SHARED_SPECS", lambda: all_columns(0, 1)),
    ("", lambda: all_columns(0, 0)),
    ("FULL", lambda: pointers.require_capacity(1, 3, 4)),
    ("", lambda: pointers.require_capacity(1, 2, 4)),
    ("", lambda: pointers.require_capacity(4, 0, 4)),
    ("ONE_BYTE", lambda: entry(9, 1)),
    ("", lambda: entry(-1024, 1024)),
    ("TILES", lambda: entry(-1025, 1025)),
    ("TO_BACK", lambda: entry(3, 4)),
    ("TO_FRONT", lambda: entry(-3, 4)),
    ("ONTO_ITSELF", lambda: entry(0, 4)),
    ("", lambda: entry(4, 4)),
    ("", lambda: entry(-4, 4)),
    ("", lambda: entry(0, 4, "other")),
)


def forgets(**gone: Sequence[str]) -> object:
    return runner.cleaned({"a": 1}, Forgotten(**{"preempted": (), **gone}))


def steps(**columns: int) -> object:
    """A step to column 1 of requests that ran in these columns."""
    requests = dict.fromkeys(columns, RunnerRequest(((1, 2),), 4))
    scheduled, counts = dict.fromkeys(columns, 1), [1] * len(columns)
    return runner.preprocess(
        columns, Forgotten(preempted=()), list(columns), counts, scheduled, requests, 4, 0, 4
    )


RUNNER = of(
    "align.runner",
    ("", lambda: forgets(finished=("b",), preempted=("c",), resumed=("d",))),
    ("FINISHED", lambda: forgets(finished=("a",))),
    ("PREEMPTED", lambda: forgets(preempted=("a",))),
    ("RESUMED", lambda: forgets(resumed=("a",))),
    ("NOT_SAID", lambda: runner.cleaned({"a": 1}, Forgotten())),
    ("NOT_REMEMBERED", lambda: runner.previous_column({}, "a", 1, 4)),
    ("", lambda: runner.previous_column({}, "a", 0, 4)),
    ("", lambda: runner.previous_column({"a": 0}, "a", 1, 4)),
    ("NO_ROW", steps),
    ("", lambda: steps(a=0)),
    ("", lambda: steps(a=1, b=1)),
    ("SOME_MOVE", lambda: steps(a=1, b=0)),
    ("SOME_STAGED", lambda: runner.staged_rows(["a", "b"], 1, 2)),
    ("", lambda: runner.staged_rows(["a", "b"], 2, 2)),
)
BARE = StateTensor("pool", StateGeometry(4, (4, 2), 1, 8), "conv")
TURNED = StateTensor("pool", StateGeometry(4, (2, 4), 1, 8), "conv")
WORDS = StateTensor("pool", StateGeometry(4, (2,), 2, 4), "temporal", 1)


def copied(state: StateTensor, bias: int, blocks: Sequence[int] = (1, 2, 3), to: int = 1) -> object:
    """A copy from column 0 to column `to`."""
    return state_copy(state, "DS" if state is TURNED else "SD", blocks, Move(0, 0, to, bias), DOCUMENTS)


def at(offset: int) -> StateTensor:
    """A window of which the block in column 0 begins at an offset."""
    return StateTensor("pool", StateGeometry(4, (2, 1), 4, 16, offset - 16), "conv")


def two_groups(*second: int) -> object:
    return copies_of(Move(0, 0, 1), (BARE, WORDS), "SD", [[(1, 2)], [second]], DOCUMENTS)


COPIED = of(
    "align.memory",
    ("SENTINEL", lambda: state_copy(CONV, "SD", (1, 2), Move(0, -1, 1), DOCUMENTS)),
    ("SENTINEL", lambda: state_copy(CONV, "SD", (1, 2), Move(0, 0, -1), DOCUMENTS)),
    ("NO_SOURCE", lambda: state_copy(CONV, "SD", (1, 2), Move(0, 2, 0), DOCUMENTS)),
    ("NO_TARGET", lambda: state_copy(CONV, "SD", (1, 2), Move(0, 0, 2), DOCUMENTS)),
    ("NO_SOURCE", lambda: copied(TEMPORAL, 2, (1, 2), 0)),
    ("NULL_SOURCE", lambda: copied(CONV, 0, (0, 2))),
    ("NULL_SOURCE", lambda: copied(CONV, 0, (-1, 2))),
    ("NULL_SOURCE", lambda: copied(TEMPORAL, 1, (1, 0, 2), 2)),
    ("NULL_TARGET", lambda: copied(CONV, 0, (1, 0))),
    ("NULL_SOURCE NULL_TARGET", lambda: copied(CONV, 0, (0, 0))),
    ("", lambda: copied(BARE, 0)),
    ("STRIDED", lambda: copied(CONV, 0)),
    ("INSIDE-SD-1 OVERLAP", lambda: copied(BARE, 1, to=0)),
    ("APART INSIDE-SD-2", lambda: copied(BARE, 2, to=0)),
    ("APART INSIDE-SD-3 LAST_ROW", lambda: copied(BARE, 3, to=0)),
    ("APART INSIDE-SD-3 LAST_ROW", lambda: copied(CONV, 4, to=0)),
    ("BETWEEN-SD", lambda: copied(BARE, 1)),
    ("", lambda: copied(BARE, 4)),
    ("INSIDE-DS-1 OVERLAP", lambda: copied(TURNED, 1, to=0)),
    ("APART INSIDE-DS-2", lambda: copied(TURNED, 2, to=0)),
    ("APART INSIDE-DS-3 LAST_ROW", lambda: copied(TURNED, 3, to=0)),
    ("BETWEEN-DS", lambda: copied(TURNED, 1)),
    ("", lambda: copied(WORDS, 0)),
    ("DRAFTED", lambda: copied(WORDS, 1, to=2)),
    ("ONTO_ITSELF", lambda: copied(WORDS, 0, to=0)),
    ("DRAFTED ONTO_ITSELF", lambda: copied(WORDS, 1)),
    ("BEHIND STRIDED UNALIGNED", lambda: copied(TEMPORAL, 0)),
    (
        "BEHIND DRAFTED",
        lambda: copied(StateTensor("pool", StateGeometry(4, (4,), 1, 8, 4), "temporal"), 1, to=2),
    ),
    ("", lambda: copied(StateTensor("pool", StateGeometry(4, (8,), 1, 8, 8), "temporal"), 0)),
    ("TILES", lambda: copied(StateTensor("pool", StateGeometry(4, (1028,), 1, 1028), "temporal"), 0)),
    ("", lambda: copied(StateTensor("pool", StateGeometry(4, (1024,), 1, 1024), "temporal"), 0)),
    # Of a window of two rows of four bytes, only the last row's place counts.
    ("APART INSIDE-SD-1 LAST_ROW", lambda: copied(at(2**31 - 8), 1, to=0)),
    ("APART FAR INSIDE-SD-1 LAST_ROW", lambda: copied(at(2**31 - 4), 1, to=0)),
    ("BETWEEN-SD FAR LAST_ROW", lambda: copied(at(2**31 - 16), 1)),
    ("APART FAR INSIDE-SD-1 LAST_ROW", lambda: copied(at(2**32 - 8), 1, to=0)),
    ("APART FAR INSIDE-SD-1 LAST_ROW VERY_FAR", lambda: copied(at(2**32 - 4), 1, to=0)),
    ("GROUPS", lambda: two_groups(1, 2)),
    ("NULL_TARGET", lambda: two_groups(1, 0)),
)


def after(run: int, first: int, last: int) -> object:
    return decisions.after_step(0, run, first, last, last - first + 1, 4)


def after_v1(scheduled: int, computed: int, drafts: int) -> object:
    return decisions.after_v1_steps([1], [9], [scheduled], [computed], [drafts], 4)


def advances(column: int, count: int, computed: int, *others: int) -> object:
    """Slot 0, with one token scheduled and so many computed; `others` are slots of rows behind it."""
    slots = Slots((column,), (count,), (9,), (9,))
    return decisions.advanced(slots, [0, *others], [0, 1, 2], [computed], 4, DOCUMENTS)


def precopies(source: int, column: int, bias: int, slot: int = 0) -> object:
    return decisions.precopy_moves([slot], [column], [source], [bias], DOCUMENTS)


def remembers(scheduled: int, num_spec: int, **columns: int) -> object:
    return decisions.last_scheduled_columns(columns, {"a": (4, scheduled)}, 4, num_spec)


DECIDED = of(
    "align.decisions",
    ("", lambda: after(3, 14, 14)),
    ("ONE_BEHIND PUBLISHED_BIAS", lambda: after(3, 11, 13)),
    ("COLLAPSED ON_BOUNDARY", lambda: after(1, 6, 8)),
    ("AT_FRONT ON_BOUNDARY", lambda: after(1, 8, 8)),
    ("AT_FRONT ONE_BEHIND", lambda: after(2, 12, 13)),
    ("ON_BOUNDARY PUBLISHED", lambda: after(5, 20, 20)),
    ("PUBLISHED SEVERAL_BEHIND", lambda: after(3, 12, 14)),
    ("PUBLISHED SEVERAL_BEHIND", lambda: after(3, 12, 15)),
    ("ON_BOUNDARY PROMPT_CHUNK PUBLISHED", lambda: after_v1(2, 2, 0)),
    ("ON_BOUNDARY PUBLISHED", lambda: after_v1(1, 3, 0)),
    ("", lambda: after_v1(2, 2, 1)),
    ("", lambda: after_v1(3, 2, 0)),
    ("", lambda: decisions.live_rows([0, 1])),
    ("NO_SLOT", lambda: decisions.live_rows([0, -1])),
    ("OUT_OF_ORDER", lambda: decisions.live_rows([1, 0])),
    ("NO_SLOT OUT_OF_ORDER", lambda: decisions.live_rows([1, -1, 0])),
    ("FRESH", lambda: decisions.before_step(0, -1, 2, 3)),
    ("STAYS_OFFSET", lambda: decisions.before_step(0, 3, 3, 2)),
    ("", lambda: decisions.before_step(0, 3, 3, 1)),
    ("", lambda: decisions.before_step(0, 2, 3, 1)),
    ("COMES_OFFSET", lambda: decisions.before_step(0, 2, 3, 2)),
    ("BACK", lambda: decisions.before_step(0, 2, 1, 1)),
    ("LEAPS", lambda: decisions.before_step(0, 0, 2, 1)),
    ("COMES_OFFSET LEAPS", lambda: decisions.before_step(0, 0, 2, 2)),
    ("STAYS_OFFSET", lambda: advances(1, 2, 4)),
    ("UNCOUNTED", lambda: advances(1, 0, 4)),
    ("", lambda: advances(1, 1, 4)),
    ("NO_SLOT", lambda: advances(1, 1, 4, -1)),
    ("LEAPS", lambda: advances(0, 1, 8)),
    ("COMES_OFFSET", lambda: precopies(2, 3, 1)),
    ("", lambda: precopies(2, 3, 0)),
    ("FRESH", lambda: precopies(-1, 3, 0)),
    ("NO_SLOT", lambda: precopies(2, 3, 1, -1)),
    ("ALL_DRAFTS", lambda: remembers(3, 2, a=1)),
    ("FORGOTTEN", lambda: remembers(2, 2, a=1)),
    ("", lambda: remembers(2, 2)),
    ("", lambda: remembers(1, 0)),
)
MAMBA, OTHER = StateSpec(4, ((3, 2),)), StateSpec(4, ((3, 4),))
VIEW = StateView((4, 3), (3, 1), 2)


def group(*specs: StateSpec | None) -> object:
    return context.mamba_groups([CacheGroup(("layer",), spec) for spec in specs])


CONTEXT = of(
    "align.context",
    ("", lambda: group(MAMBA, MAMBA, None)),
    ("OTHER_GROUP", lambda: group(None, MAMBA)),
    ("OTHER_GROUP", lambda: group(MAMBA, None, MAMBA)),
    ("OTHER_SHAPES", lambda: group(MAMBA, OTHER)),
    ("JUST_A_BLOCK", lambda: context.require_one_boundary(3, 3)),
    ("", lambda: context.require_one_boundary(3, 4)),
    ("JUST_ROWS", lambda: context.require_conv_shape("shape", (3, 1), 3, 3)),
    ("", lambda: context.require_conv_shape("shape", (4, 1), 4, 3)),
    ("WIDER_TABLE", lambda: context.require_tables([TableView("int32", (2, 4), (8, 1))], 1)),
    ("", lambda: context.require_tables([TableView("int32", (2, 4), (4, 1))], 1)),
    ("FEWER_STATES", lambda: context.require_states("layer", [], 1)),
    ("", lambda: context.require_states("layer", [VIEW], 1)),
    ("UNUSED", lambda: context.metadata([], "SD", 1)),
    ("", lambda: context.metadata([TEMPORAL], "SD", 1)),
    ("HIGH_BIT", lambda: context.as_int64(2**63)),
    ("", lambda: context.as_int64(0)),
)
base, gdn = partial(partial, base_metadata), partial(partial, gdn_metadata)
DECODE, CHUNK = row(1, 4, prefilling=F), row(1, 4, prefilling=T)
PAD = padding(prefilling=F)


def spec(query_len: int, **given: Any) -> StepRow:
    return row(query_len, 9, **{"prefilling": F, "accepted": 1, **given})


DRAFTED, WHOLE, PROMPT = spec(3, drafts=2), spec(3, drafts=2, accepted=3), row(5, accepted=1, prefilling=T)
SPEC_PAD = padding(prefilling=F, accepted=1)
BUILT = of(
    "builders.batch builders.base",
    ("NO_ROW", base(step(), config())),
    ("UNKNOWN", base(step(row(1, 4)), config())),
    ("", base(step(DECODE, DECODE), config())),
    ("ONE_TOKEN_PROMPT", base(step(row(1, prefilling=T)), config())),
    ("ONE_TOKEN_CHUNK", base(step(CHUNK), config())),
    ("", base(step(row(2, prefilling=T)), config())),
    ("NO_COUNTS SPEC_LIKE_CHUNK", base(step(row(2, prefilling=T)), config(num_spec=1))),
    ("NO_COUNTS", base(step(row(3, prefilling=T)), config(num_spec=1))),
    ("OPTIMISTIC", base(step(row(1, 4, seq_len_upper_bound=6)), config())),
    ("", base(step(row(1, 4, seq_len_upper_bound=5)), config())),
    ("", base(step(row(1, 4, seq_len_upper_bound=5), padding(seq_len_upper_bound=3)), config())),
    ("", base(step(row(1, 4, seq_len_upper_bound=6, prefilling=F), has_upper_bound=F), config())),
    ("ON_DEVICE", base(step(DECODE, on_host=F), config())),
    ("MORE_BLOCKS", base(step(DECODE), config(num_speculative_blocks=1))),
    ("READS_ONE_WRITES_NEXT", base(step(DECODE), config("all", num_speculative_blocks=1))),
    ("PADDED_PROMPTS", base(step(row(2, prefilling=T), PAD), config())),
    ("PADDED_GRAPH", base(step(DECODE, PAD), full())),
    ("", base(step(DECODE, PAD), config())),
    ("", base(step(PAD), full())),
    ("", base(step(DECODE, DECODE), full(max_num_seqs=2))),
    ("TOO_MANY_ROWS", base(step(DECODE, DECODE), full(max_num_seqs=1))),
    ("", base(step(DECODE, DECODE), config(max_num_seqs=1))),
    ("", base(step(spec(1)), config(num_spec=2))),
    ("OFFSET", base(step(spec(1, accepted=2)), config(num_spec=2))),
    ("LAST_OFFSET", base(step(spec(1, accepted=3)), config(num_spec=2))),
    ("", base(step(spec(1), padding(prefilling=F, accepted=2)), config(num_spec=2))),
    ("", base(step(spec(4, accepted=2, prefilling=T)), config(num_spec=2))),
    ("", base(step(spec(1)), config())),
    ("", base(step(row(1, 4)), full(), capture=T)),
    ("PADDED_CAPTURE PADDED_GRAPH", base(step(row(1, 4), padding()), full(), capture=T)),
    ("LAST_OFFSET SPEC_CAPTURE", base(step(row(2, 4)), full(num_spec=1), capture=T)),
    ("", base(step(row(1, 5, prefilling=F)), config("all"))),
    ("SEVERAL_KEPT", base(step(row(5, prefilling=T)), config("all"))),
    ("", base(step(row(4, prefilling=T)), config("all"))),
    ("KEPT_WIDE", base(step(row(1, 5)), full("all", max_model_len=8), capture=T)),
    ("", base(step(row(1, 5)), full("all", max_model_len=12), capture=T)),
    ("NO_ROW", base(step(), full("all", max_model_len=8))),
    ("UNKNOWN", base(step(row(1, 5)), config("all", max_model_len=8))),
    ("", base(step(row(4, prefilling=T)), full("all", max_model_len=8))),
    ("OTHER_TABLE", lambda: updated_block_table(step(DECODE), config(), ((1, 2),))),
) + of(
    "builders.batch builders.gdn",
    ("UNKNOWN", gdn(step(row(1, 4)), config())),
    ("PADDED_CAPTURE PADDED_GRAPH", gdn(step(row(1, 4), padding()), full(), T)),
    ("SPEC_CAPTURE", gdn(step(row(3, 9)), config(num_spec=2), T)),
    ("", gdn(step(DRAFTED), config(num_spec=2))),
    ("ON_DEVICE", gdn(step(DRAFTED, on_host=F), config(num_spec=2))),
    ("SPEC_NONE", gdn(step(spec(1, drafts=0)), config(num_spec=2))),
    ("SPEC_ALONE", gdn(step(DRAFTED, spec(1, drafts=-1)), config(num_spec=2))),
    ("SPEC_MIXED", gdn(step(DRAFTED, PROMPT), config(num_spec=2))),
    ("SPEC_BEHIND SPEC_MIXED", gdn(step(PROMPT, DRAFTED), config(num_spec=2))),
    ("SPEC_MIXED SPEC_PADDED_MIXED", gdn(step(DRAFTED, PROMPT, SPEC_PAD), config(num_spec=2))),
    ("", gdn(step(DRAFTED, SPEC_PAD), config(num_spec=2))),
    ("SPEC_PADDED", gdn(step(DRAFTED, SPEC_PAD), full(num_spec=2))),
    ("", gdn(step(DRAFTED), full(num_spec=2, max_num_seqs=1))),
    ("SPEC_TOO_MANY", gdn(step(DRAFTED, DRAFTED), full(num_spec=2, max_num_seqs=1))),
    ("", gdn(step(DRAFTED, DRAFTED), config(num_spec=2, max_num_seqs=1))),
    ("SPEC_MIXED", gdn(step(DRAFTED, DRAFTED, PROMPT), full(num_spec=2, max_num_seqs=1))),
    ("PLAIN_DECODE SPEC_MIXED", gdn(step(DRAFTED, spec(1), has_prefilling=F), config(num_spec=2))),
    ("SPEC_MIXED", gdn(step(DRAFTED, spec(2), has_prefilling=F), config(num_spec=2))),
    ("ONE_TOKEN_CHUNK SPEC_MIXED", gdn(step(DRAFTED, spec(1, prefilling=T)), config(num_spec=2))),
) + of(
    "builders.mamba2",
    ("SHORT_FIRST", lambda: position_chunks([row(3)], [2], 4)),
    ("", lambda: position_chunks([row(2)], [2], 4)),
    ("", lambda: position_chunks([row(5)], [4], 4)),
    ("NO_STATES", lambda: position_chunks([row(5)], [0], 4)),
    ("NO_CHUNK NO_STATES", lambda: position_chunks([row(1), padding()], [0, 4], 4)),
    ("NO_STATES", lambda: position_chunks([padding(), row(1)], [4, 0], 4)),
    ("SOME_STATES", lambda: position_chunks([row(1), row(1)], [0, 1], 4)),
    ("", lambda: position_chunks([padding()], [0], 4)),
)  # fmt: skip


def scheduled(computed: int, length: int, drafts: int = 0) -> ScheduledRequest:
    return ScheduledRequest("a", computed, length, (0,) * drafts, (), (), ())


def passed(computed: int, length: int) -> object:
    return StateLedger(ALL, Prefixes()).boundaries_on_the_way(scheduled(computed, length))


def window(tokens: int, rows: int) -> object:
    prefixes = Prefixes()
    return prefixes.last([0, *prefixes.path(0, range(tokens))][-1], rows)


def extended(*needed: int, hit: int = 0) -> None:
    """The last of several steps that need so many columns, of a request with two drafts."""
    pool = BlockPool(40)
    blocks = BlockList(pool.take(hit))
    for number in needed:
        take()
        blocks.extend_aligned(pool, number, 2)


def drops() -> None:
    pool = BlockPool(4)
    BlockList(pool.take(1), last_state=0).drop_last_state(pool)


def of_pool(what: str, *values: Any, held: bool = False) -> object:
    """Of a pool whose block 1 is registered as (0, 9)."""
    pool = registered_pool()
    if held:
        pool.hold(1)
    take()
    return getattr(pool, what)(*values)


def requests(*steps: str, num_blocks: int = 64, prompt: int = 4, **geometry: Any) -> Scheduler:
    """Two requests with prompts alike, after steps of those that are named."""
    engine = Scheduler(Geometry(block_size=4, num_spec=1, num_blocks=num_blocks, **geometry))
    for name in "ab":
        engine.arrive(name, range(prompt))
    for names in steps:
        take()
        step = engine.schedule([Wish(name, 64) for name in names])
        engine.commit(step, {one.id: [7] if one.samples else [] for one in step.rows})
    return engine


def ends(engine: Scheduler, name: str) -> None:
    take()
    engine.finish(name)


def resets(engine: Scheduler) -> None:
    take()
    engine.reset()


LIFE = of(
    "lifecycle.blocks",
    ("EVICTED", lambda: of_pool("take", 3)),
    ("", lambda: of_pool("take", 2)),
    ("HIT_FREE", lambda: of_pool("hold", 1)),
    ("SHARED", lambda: of_pool("hold", 1, held=True)),
    ("TWICE", lambda: of_pool("register", 2, (0, 9))),
    ("", lambda: of_pool("register", 1, (0, 9))),
    ("", lambda: of_pool("register", 2, (1, 9))),
) + of(
    "lifecycle.ledger",
    ("", lambda: passed(0, 3)),
    ("ON_ITS_WAY", lambda: passed(0, 4)),
    ("SEVERAL_ON_ITS_WAY", lambda: passed(0, 8)),
    ("", lambda: StateLedger(ALIGN, Prefixes()).boundary_among(scheduled(2, 3, 2), 1)),
    ("PUBLISHED", lambda: StateLedger(ALIGN, Prefixes()).boundary_among(scheduled(2, 3, 2), 2)),
) + of(
    "lifecycle.prefixes",
    ("BEFORE_FIRST", lambda: window(2, 3)),
    ("", lambda: window(2, 2)),
    ("", lambda: window(0, 3)),
) + of(
    "lifecycle.tables",
    ("", lambda: extended(3)),
    ("SKIPPED", lambda: extended(4)),
    ("KEPT_HIT", lambda: extended(5, hit=2)),
    ("KEPT_HIT SKIPPED", lambda: extended(6, hit=2)),
    ("", lambda: extended(3, 3)),
    ("", lambda: extended(3, 4)),
    ("MOVED", lambda: extended(3, 5)),
    ("MOVED SKIPPED", lambda: extended(3, 7)),
    ("DROPPED_STATE", drops),
) + of(
    "lifecycle.scheduler",
    ("LAST_CUT", lambda: aligned_length(0, 10, 10, 4)),
    ("", lambda: aligned_length(0, 8, 10, 4)),
    ("", lambda: aligned_length(8, 2, 10, 4)),
    ("WAITING_ENDS", lambda: ends(requests(), "a")),
    ("", lambda: ends(requests("a"), "a")),
    ("RESET_HELD", lambda: resets(requests("a"))),
    ("", lambda: resets(requests())),
    ("", lambda: requests("a")),
    ("LAST_CUT SAME_STEP", lambda: requests("ab", prompt=5)),
    ("NO_ROOM", lambda: requests("a", num_blocks=2)),
    ("PREEMPTED_ITSELF", lambda: requests("a", "a", num_blocks=3)),
    ("PREEMPTED_ANOTHER", lambda: requests("ab", "a", num_blocks=5)),
    ("SEVERAL_GROUPS", lambda: requests("a", "a", "b", prompt=5, num_groups=2)),
    ("", lambda: requests("a", "a", "b", prompt=5)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "names", "call"),
    [*SPLIT, *GATHERED, *TYPES, *CHUNKS, *SHAPES, *LAYOUT, *POINTERS, *RUNNER, *COPIED, *DECIDED, *CONTEXT]
    + [*BUILT, *LIFE],
)
def test_a_call_is_in_these_situations_of_its_topic(
    topic: str, names: str, call: Callable[[], object]
) -> None:
    known = named(topic)
    take()
    call()
    assert sorted(known[one] for one in take() if one in known) == names.split()
