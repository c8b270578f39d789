"""Which situations each call of a rule is: all of a topic that come up, by the names of their marks, and no others.

Two calls that differ in a token or a row stand side by side where that token or row makes the situation.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from oracle import batch, chunks, layout, shapes, shards, slots, tracking, types
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
from oracle.lifecycle.requests import Geometry, ScheduledRequest, ScheduleRequest
from oracle.lifecycle.scheduler import Scheduler, aligned_length
from oracle.lifecycle.tables import BlockList
from oracle.profile import DOCUMENTS
from oracle.situations.registry import Situation, declared, situations_of, take
from tests.oracle.test_align_examples import CONV, TEMPORAL
from tests.oracle.test_builder_examples import config, full, padding, row, step
from tests.oracle.test_lifecycle_blocks import registered_pool
from tests.oracle.test_lifecycle_examples import ALIGN, ALL
from tests.oracle.test_worked_examples import DS, IDS, ROOT, SD, TABLE, split
from tests.oracle.test_worked_examples import TEMPORAL as STATE


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


def of(topic: str, function: Callable[..., object], *rows: tuple[Any, ...]) -> list[Any]:
    """Calls of a function: the names of the marks, and the arguments; a dictionary has those with names."""
    calls = []
    for names, *given in rows:
        keywords = given.pop() if given and isinstance(given[-1], dict) else {}
        about = f"{topic}-{names or 'none'}"
        calls.append(pytest.param(topic, names, partial(function, *given, **keywords), id=about))
    return calls


F, T = False, True
UNIFORM = {"require_uniform": True}
FLAGS: dict[str, Any] = {"treat_short_extends_as_decodes": False, "is_prefilling": (F, T)}


FAR = StateGeometry(num_blocks=2**12, block_shape=(5, 3), itemsize=2, block_stride_bytes=2**20)


def copies(geometry: StateGeometry, layout_name: str, accepted: int, ids: Sequence[int] = IDS) -> None:
    with suppress(Unrepresentable):
        layout.conv_copy_run(geometry, layout_name, ids, 1, accepted)


CHANNELS = {"channels": 4, "conv_kernel": 2}
ONE_GROUP = {"n_groups": 1, "num_heads": 4, "head_dim": 1, "state_size": 1, "conv_kernel": 2}
SLOT_MEMORY = {"pool": bytes(range(4)), "steps": bytes(range(2))}
SLOT_VIEW = slots.StateView("pool", 1, (1, 4), (4, 1), 0)
SLOT_STEPS = slots.StateView("steps", 1, (1, 2, 1), (2, 1, 1), 0)
MEMORY = {"pool": bytes(4096), "other": bytes(8)}


def entry(distance: int, size: int, pool: str = "pool") -> object:
    """The memory after an entry."""
    first = 2048 if pool == "pool" else 0
    listed = Entry(Place(pool, first), Place("pool", first + distance), size)
    return pointers.memory_after(MEMORY, [listed])


def all_columns(*groups: int) -> None:
    states = [StateTensor("pool", CONV.geometry, "conv", group) for group in groups]
    pointers.require_all_columns([[1], [1]], states, 0, 0, 0)


def steps(**columns: int) -> object:
    """A step to column 1 of requests that ran in these columns."""
    requests = dict.fromkeys(columns, RunnerRequest(((1, 2),), 4))
    scheduled, counts = dict.fromkeys(columns, 1), [1] * len(columns)
    return runner.preprocess(
        columns, Forgotten(preempted=()), list(columns), counts, scheduled, requests, 4, 0, 4
    )


BARE = StateTensor("pool", StateGeometry(4, (4, 2), 1, 8), "conv")
TURNED = StateTensor("pool", StateGeometry(4, (2, 4), 1, 8), "conv")
WORDS = StateTensor("pool", StateGeometry(4, (2,), 2, 4), "temporal", 1)


def copied(state: StateTensor, bias: int, blocks: Sequence[int] = (1, 2, 3), to: int = 1) -> object:
    """A copy from column 0 to column `to`."""
    return state_copy(state, "DS" if state is TURNED else "SD", blocks, Move(0, 0, to, bias), DOCUMENTS)


def at(offset: int) -> StateTensor:
    """A window of three rows of four bytes, of which the block in column 0 begins at an offset."""
    return StateTensor("pool", StateGeometry(4, (3, 1), 4, 16, offset - 16), "conv")


def advances(column: int, count: int, computed: int, *others: int) -> object:
    """Slot 0, with one token scheduled and so many computed; `others` are slots of rows behind it."""
    slots = Slots((column,), (count,), (9,), (9,))
    return decisions.advanced(slots, [0, *others], [0, 1, 2], [computed], 4, DOCUMENTS)


MAMBA, OTHER = StateSpec(4, ((3, 2),)), StateSpec(4, ((3, 4),))
VIEW = StateView((4, 3), (3, 1), 2)


DECODE = row(1, 4, prefilling=F)
PAD = padding(prefilling=F)


def spec(query_len: int, **given: Any) -> StepRow:
    return row(query_len, 9, **{"prefilling": F, "accepted": 1, **given})


DRAFTED, PROMPT = spec(3, drafts=2), row(5, accepted=1, prefilling=T)
SPEC_PAD = padding(prefilling=F, accepted=1)


def scheduled(computed: int, length: int, drafts: int = 0) -> ScheduledRequest:
    return ScheduledRequest("a", computed, length, (0,) * drafts, (), (), ())


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
        step = engine.schedule([ScheduleRequest(name, 64) for name in names])
        engine.commit(step, {one.id: [7] if one.samples else [] for one in step.rows})
    return engine


def ends(*steps: str) -> None:
    """Request a ends after these steps."""
    engine = requests(*steps)
    take()
    engine.finish("a")


def resets(*steps: str) -> None:
    engine = requests(*steps)
    take()
    engine.reset()


CALLS = [
    *of(
        "batch",
        split,
        ("NO_ROW", ()),
        ("", (1, 1)),
        ("PADDED_DECODE", (1, 1, 0)),
        ("", (0, 0)),
        ("TOKENS_TO_DECODES", (1, 1), {"tokens": 3}),
        ("", (1, 5)),
        ("TOKENS_TO_PREFILLS", (1, 5), {"tokens": 7}),
        ("LATE_DECODE", (1, 5, 1)),
        ("LATE_DECODE", (5, 3), 3),
        ("", (5, 4), 3),
        ("PADDED_PREFILL", (1, 5, 0)),
        ("AT_THRESHOLD", (3, 2), 3),
        ("", (2, 2), 3),
        ("SHORT_CHUNK", (1, 1), FLAGS),
        ("AT_THRESHOLD SHORT_CHUNK", (3, 3), 3, {**FLAGS, **UNIFORM}),
        ("AT_THRESHOLD LATE_DECODE UNEVEN", (3, 2, 1), 3, UNIFORM),
        ("UNEVEN", (2, 1), 3, UNIFORM),
        ("ONLY_PADDING PADDED_DECODE", (2, 2, 0), 3, UNIFORM),
        ("", (2, 2), 3, UNIFORM),
        ("", (0, 0), 3, UNIFORM),
        ("PADDED_DECODE", (1, 0), 1, UNIFORM),
        ("PADDED_DECODE", (2, 0), 3),
        ("PADDED_PREFILL", (5, 0), 3, UNIFORM),
        ("SHORT_CHUNK", (1, 3), 3, FLAGS),
        ("AT_THRESHOLD ONLY_PADDING PADDED_DECODE", (2, 2, 0), 2, UNIFORM),
    ),
    *of(
        "batch",
        lambda seq_len, table=TABLE, mode="align": batch.block_table_rows(table, (seq_len,), 4, 2, mode),
        ("GATHERED_PADDING", 0),
        ("", 0, {"mode": "none"}),
        ("", 1),
        ("", -4),
        ("FULL_BLOCK", 4),
        ("FULL_BLOCK", 8),
        ("TABLE_END", 9),
        ("FULL_BLOCK TABLE_END", 12),
        ("BEFORE_NULL", 5, ((0, 2, 3, 4, 5),)),
        ("FULL_BLOCK", 4, ((0, 2, 3, 4, 5),)),
        ("", 5, ((1, 0, 3, 4, 5),)),
        ("", -4, ((0, 2, 3, 4, 5),)),
    ),
    *of("batch", batch.block_table_rows, ("FULL_BLOCK", TABLE, (1,), 1, 2, "align")),
    *of(
        "types",
        types.cdiv,
        ("NEGATIVE", -5, 4),
        ("NEGATIVE", -1, 4),
        ("NEGATIVE", 5, -4),
        ("", -4, 4),
        ("", 1, 4),
    ),
    *of(
        "types",
        types.page_size_bytes,
        ("", ((3, 8),), (2,)),
        ("", ((3, 8),), (2,), 48),
        ("PADDED", ((3, 8),), (2,), 49),
        ("HUGE_PAGE", ((2**16, 2**15),), (1,), None),
    ),
    *of(
        "types",
        types.pages_per_request,
        ("PART", "all", 0, 4, 10, DOCUMENTS),
        ("", "all", 0, 4, 8, DOCUMENTS),
        ("", "align", 0, 4, 10, DOCUMENTS),
    ),
    *of(
        "chunks",
        chunks.varlen_chunk_metadata,
        ("NO_TOKENS", (0,), 4),
        ("EMPTY NO_TOKENS", (0, 0), 4),
        ("", (0, 8), 4),
        ("", (0, 2, 6), 4),
        ("ONE_TOKEN", (0, 9), 4),
        ("", (0, 1), 1),
        ("ONE_TOKEN", (0, 1, 3), 2),
        ("MEET", (0, 8, 16), 4),
        ("EMPTY MEET", (0, 4, 4, 6), 4),
        ("EMPTY", (0, 4, 4), 4),
        ("", (0, 255), 1),
        ("BYTE_OF_CHUNKS", (0, 256), 1),
        ("BYTE_OF_CHUNKS WORD_OF_CHUNKS", (0, 65_536), 1),
        ("", (0, 2**24), 2**24),
        ("INEXACT_LENGTH ONE_TOKEN", (0, 2**24 + 1), 2**24),
        ("HALF_OF_INT32 INEXACT_LENGTH ONE_TOKEN", (0, 2**30 + 1), 2**30),
        ("MANY_SEQUENCES ONE_TOKEN", tuple(range(257)), 1000),
    ),
    *of(
        "chunks",
        chunks.causal_conv1d_metadata,
        ("NO_PROGRAM", (0, 0)),
        ("", (0, 7)),
        ("FULL_TILE", (0, 3, 11, 11)),
        ("", (0, 3, 8)),
        ("LATER_START", (1, 4)),
        ("FULL_TILE LEAST_BUFFER", (0, 8192)),
        ("FULL_TILE MANY_PROGRAMS WORD_OF_PROGRAMS", (0, 8 * 65_536)),
        ("MANY_PROGRAMS", (0, 8193)),
    ),
    *of(
        "chunks",
        chunks.chunk_indices,
        ("", (0, 5, 5), 4),
        ("EMPTY_NUMBER", (0, 5, 5, 7), 4),
        ("FULL_CHUNK", (0, 8, 11), 4),
        ("", (0, 0), 4),
        ("", (0, 0, 0), 4),
    ),
    *of("shapes", shapes.orient_conv_shape, ("ONE_ROW", 8, 1, "SD"), ("", 1, 2, "SD")),
    *of(
        "shapes", shapes.history_rows, ("", 4, 0), ("DRAFT_ROWS", 4, 1), ("DRAFT_ROWS MANY_DRAFT_ROWS", 4, 5)
    ),
    *of(
        "shapes",
        shapes.repeated_groups,
        ("", "n_groups", 2, "tp_size", 1),
        ("SHARED", "n_groups", 2, "tp_size", 2),
        ("REPEATED", "n_groups", 2, "tp_size", 4),
    ),
    *of(
        "shapes",
        shapes.kda_state_shape,
        ("KEYS_AS_VALUES", 1, 4, 8, {"layout": "SD"}),
        ("", 1, 4, 8, 4, {"layout": "SD"}),
    ),
    *of(
        "shards",
        shards.sent_states,
        ("EQUAL", "short_conv", CHANNELS, 2, 2),
        ("GATHERED", "short_conv", CHANNELS, 2, 1),
        ("SCATTERED", "short_conv", CHANNELS, 2, 4),
        ("EQUAL SHARED_UNIT", "mamba2", ONE_GROUP, 2, 2),
        ("GATHERED SHARED_IN_ONE SHARED_UNIT", "mamba2", ONE_GROUP, 2, 1),
        ("SCATTERED SHARED_UNIT", "mamba2", ONE_GROUP, 2, 4),
    ),
    *of(
        "slots",
        slots.copied_slots,
        ("NOTHING", SLOT_MEMORY, [SLOT_VIEW], [], []),
        ("", SLOT_MEMORY, [SLOT_VIEW], [1], [2]),
        ("SEVERAL", SLOT_MEMORY, [SLOT_VIEW], [0, 1], [2, 3]),
    ),
    *of(
        "slots",
        slots.cleared_slots,
        ("", SLOT_MEMORY, [SLOT_VIEW], [1]),
        ("CLEARED", SLOT_MEMORY, [SLOT_VIEW], [1, 2]),
    ),
    *of(
        "slots",
        slots.accepted_states,
        ("", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3,), (0,))]),
        ("REJECTED", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3, 1), (0, -1))]),
        ("NOTHING", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3,), (-1,))]),
        ("KEPT SEVERAL", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3,), (0,)), ((1,), (0,))]),
        ("REJECTED", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3,), (0,)), ((1,), (-1,))]),
        ("KEPT REJECTED SEVERAL", SLOT_MEMORY, [SLOT_VIEW], [SLOT_STEPS], [((3,), (0,)), ((1, 2), (0, -1))]),
    ),
    *of(
        "slots",
        slots.last_accepted,
        ("", ((0, 1, 2),), (3,), None, 3, 4),
        ("", ((0, 1, 2),), (3,), (4,), 3, 4),
        ("BOUNDARY", ((0, 1, 2),), (3,), (2,), 3, 4),
        ("AT_BOUNDARY", ((0, 1, 2),), (3,), (1,), 3, 4),
        ("AT_BOUNDARY", ((0, 1, 2),), (1,), (3,), 3, 4),
    ),
    *of(
        "tracking",
        tracking.kept_states,
        ("LAST", (4,), (4,), 2, False),
        ("OF_CHUNK", (2,), (3,), 2, True),
        ("NOT_KEPT OF_CHUNK", (None, 2), (1, 3), 2, False),
        ("COMPUTED NOT_KEPT", (None, 2), (1, 3), 2, True),
    ),
    *of("tracking", tracking.logical_chunks, ("", (4, 2), 4), ("CUT", (3, 2), 4)),
    *of("layout", layout.conv_state_layout, ("UNSET", {}, {}), ("", {layout.LAYOUT_VARIABLE: "DS"}, {})),
    *of(
        "layout",
        copies,
        ("", SD, "SD", 1),
        ("SKIPPED_ROWS", SD, "SD", 2),
        ("LAST_ROW SKIPPED_ROWS", SD, "SD", 5, (0, 1, 1, 1, 1, 1)),
        ("LAST_ROW SKIPPED_ROWS", StateGeometry(4, (2, 3), 2, 64), "SD", 2),
        ("", StateGeometry(4, (1, 3), 2, 64), "SD", 1),
        ("", DS, "DS", 1),
        ("IN_PIECES", DS, "DS", 2),
        ("FAR_BLOCK", FAR, "SD", 1, (0, 2048)),
        ("", FAR, "SD", 1, (0, 2047)),
    ),
    *of(
        "layout",
        layout.temporal_copy_run,
        ("", STATE, IDS, 1, 1),
        ("DRAFTED_COLUMN", STATE, IDS, 1, 2),
        ("DRAFTED_COLUMN LAST_COLUMN", STATE, IDS, 1, 3),
        ("LAST_COLUMN", STATE, IDS, 3, 1),
        ("FAR_BLOCK", FAR, (2048, 1), 0, 1),
        ("", FAR, (2047, 1), 0, 1),
    ),
    *of("align.pointers", all_columns, ("SHARED_SPECS", 0, 1), ("", 0, 0)),
    *of("align.pointers", pointers.require_capacity, ("FULL", 1, 3, 4), ("", 1, 2, 4), ("", 4, 0, 4)),
    *of(
        "align.pointers",
        entry,
        ("ONE_BYTE", 9, 1),
        ("", -1024, 1024),
        ("TILES", -1025, 1025),
        ("TO_BACK", 3, 4),
        ("TO_FRONT", -3, 4),
        ("ONTO_ITSELF", 0, 4),
        ("", 4, 4),
        ("", -4, 4),
        ("", 0, 4, "other"),
    ),
    *of(
        "align.runner",
        lambda **gone: runner.cleaned({"a": 1}, Forgotten(**{"preempted": (), **gone})),
        ("", {"finished": ("b",), "preempted": ("c",), "resumed": ("d",)}),
        ("FINISHED", {"finished": ("a",)}),
        ("PREEMPTED", {"preempted": ("a",)}),
        ("RESUMED", {"resumed": ("a",)}),
    ),
    *of("align.runner", runner.cleaned, ("NOT_SAID", {"a": 1}, Forgotten())),
    *of(
        "align.runner",
        runner.previous_column,
        ("NOT_REMEMBERED", {}, "a", 1, 4),
        ("", {}, "a", 0, 4),
        ("", {"a": 0}, "a", 1, 4),
    ),
    *of(
        "align.runner",
        steps,
        ("NO_ROW",),
        ("", {"a": 0}),
        ("", {"a": 1, "b": 1}),
        ("SOME_MOVE", {"a": 1, "b": 0}),
    ),
    *of("align.runner", runner.staged_rows, ("SOME_STAGED", ["a", "b"], 1, 2), ("", ["a", "b"], 2, 2)),
    *of(
        "align.memory",
        state_copy,
        ("SENTINEL", CONV, "SD", (1, 2), Move(0, -1, 1), DOCUMENTS),
        ("SENTINEL", CONV, "SD", (1, 2), Move(0, 0, -1), DOCUMENTS),
        ("NO_SOURCE", CONV, "SD", (1, 2), Move(0, 2, 0), DOCUMENTS),
        ("NO_TARGET", CONV, "SD", (1, 2), Move(0, 0, 2), DOCUMENTS),
    ),
    *of(
        "align.memory",
        copied,
        ("NO_SOURCE", TEMPORAL, 2, (1, 2), 0),
        ("NULL_SOURCE", CONV, 0, (0, 2)),
        ("NULL_SOURCE", CONV, 0, (-1, 2)),
        ("NULL_SOURCE", TEMPORAL, 1, (1, 0, 2), 2),
        ("NULL_TARGET", CONV, 0, (1, 0)),
        ("NULL_SOURCE NULL_TARGET", CONV, 0, (0, 0)),
        ("", BARE, 0),
        ("STRIDED", CONV, 0),
        ("INSIDE-SD-1 OVERLAP", BARE, 1, {"to": 0}),
        ("APART INSIDE-SD-2", BARE, 2, {"to": 0}),
        ("APART INSIDE-SD-3 LAST_ROW", BARE, 3, {"to": 0}),
        ("APART INSIDE-SD-3 LAST_ROW", CONV, 4, {"to": 0}),
        ("BETWEEN-SD", BARE, 1),
        ("", BARE, 4),
        ("INSIDE-DS-1 OVERLAP", TURNED, 1, {"to": 0}),
        ("APART INSIDE-DS-2", TURNED, 2, {"to": 0}),
        ("APART INSIDE-DS-3 LAST_ROW", TURNED, 3, {"to": 0}),
        ("BETWEEN-DS", TURNED, 1),
        ("", WORDS, 0),
        ("DRAFTED", WORDS, 1, {"to": 2}),
        ("ONTO_ITSELF", WORDS, 0, {"to": 0}),
        ("DRAFTED ONTO_ITSELF", WORDS, 1),
        ("BEHIND STRIDED UNALIGNED", TEMPORAL, 0),
        ("BEHIND DRAFTED", StateTensor("pool", StateGeometry(4, (4,), 1, 8, 4), "temporal"), 1, {"to": 2}),
        ("", StateTensor("pool", StateGeometry(4, (8,), 1, 8, 8), "temporal"), 0),
        ("TILES", StateTensor("pool", StateGeometry(4, (1025,), 1, 1025), "temporal"), 0),
        ("", StateTensor("pool", StateGeometry(4, (1024,), 1, 1024), "temporal"), 0),
        (
            "BEHIND DRAFTED UNALIGNED",
            StateTensor("pool", StateGeometry(4, (7,), 1, 8, 1), "temporal"),
            1,
            {"to": 2},
        ),
        ("INSIDE-SD-1 OVERLAP", at(2**31 - 12), 1, {"to": 0}),
        ("BETWEEN-SD", at(2**31 - 24), 1),
        ("FAR INSIDE-SD-1 OVERLAP", at(2**31 - 8), 1, {"to": 0}),
        ("BETWEEN-SD FAR", at(2**31 - 20), 1),
        ("FAR INSIDE-SD-1 OVERLAP", at(2**32 - 12), 1, {"to": 0}),
        ("FAR INSIDE-SD-1 OVERLAP VERY_FAR", at(2**32 - 8), 1, {"to": 0}),
    ),
    *of(
        "align.memory",
        lambda *second: copies_of(Move(0, 0, 1), (BARE, WORDS), "SD", [[(1, 2)], [second]], DOCUMENTS),
        ("GROUPS", 1, 2),
        ("NULL_TARGET", 1, 0),
    ),
    *of(
        "align.decisions",
        lambda run, first, last: decisions.after_step(0, run, first, last, last - first + 1, 4),
        ("", 3, 14, 14),
        ("ONE_BEHIND PUBLISHED_BIAS", 3, 11, 13),
        ("COLLAPSED ON_BOUNDARY", 1, 6, 8),
        ("AT_FRONT ON_BOUNDARY", 1, 8, 8),
        ("AT_FRONT ONE_BEHIND", 2, 12, 13),
        ("ON_BOUNDARY PUBLISHED", 5, 20, 20),
        ("PUBLISHED SEVERAL_BEHIND", 3, 12, 14),
        ("PUBLISHED SEVERAL_BEHIND", 3, 12, 15),
    ),
    *of(
        "align.decisions",
        lambda scheduled, computed, drafts: decisions.after_v1_steps(
            [1], [9], [scheduled], [computed], [drafts], 4
        ),
        ("ON_BOUNDARY PROMPT_CHUNK PUBLISHED", 5, 3, 0),
        ("ON_BOUNDARY PROMPT_CHUNK PUBLISHED", 2, 2, 0),
        ("ON_BOUNDARY PUBLISHED", 1, 3, 0),
        ("", 2, 2, 1),
        ("", 3, 2, 0),
    ),
    *of(
        "align.decisions",
        decisions.live_rows,
        ("", [0, 1]),
        ("NO_SLOT", [0, -1]),
        ("OUT_OF_ORDER", [1, 0]),
        ("NO_SLOT OUT_OF_ORDER", [1, -1, 0]),
    ),
    *of(
        "align.decisions",
        decisions.before_step,
        ("FRESH", 0, -1, 2, 3),
        ("STAYS_OFFSET", 0, 3, 3, 2),
        ("", 0, 3, 3, 1),
        ("", 0, 2, 3, 1),
        ("COMES_OFFSET", 0, 2, 3, 2),
        ("BACK", 0, 2, 1, 1),
        ("LEAPS", 0, 0, 2, 1),
        ("COMES_OFFSET LEAPS", 0, 0, 2, 2),
    ),
    *of(
        "align.decisions",
        advances,
        ("STAYS_OFFSET", 1, 2, 4),
        ("UNCOUNTED", 1, 0, 4),
        ("", 1, 1, 4),
        ("NO_SLOT", 1, 1, 4, -1),
        ("LEAPS", 0, 1, 8),
    ),
    *of(
        "align.decisions",
        lambda source, column, bias, slot=0: decisions.precopy_moves(
            [slot], [column], [source], [bias], DOCUMENTS
        ),
        ("COMES_OFFSET", 2, 3, 1),
        ("", 2, 3, 0),
        ("FRESH", -1, 3, 0),
        ("NO_SLOT", 2, 3, 1, -1),
    ),
    *of(
        "align.decisions",
        lambda scheduled, num_spec, **columns: decisions.last_scheduled_columns(
            columns, {"a": (4, scheduled)}, 4, num_spec
        ),
        ("ALL_DRAFTS", 3, 2, {"a": 1}),
        ("ALL_DRAFTS", 2, 1),
        ("FORGOTTEN", 2, 2, {"a": 1}),
        ("", 2, 2),
        ("", 1, 0),
    ),
    *of(
        "align.context",
        lambda *specs: context.mamba_groups([CacheGroup(("layer",), spec) for spec in specs]),
        ("", MAMBA, MAMBA, None),
        ("OTHER_GROUP", None, MAMBA),
        ("OTHER_GROUP", MAMBA, None, MAMBA),
        ("OTHER_SHAPES", MAMBA, OTHER),
    ),
    *of("align.context", context.require_one_boundary, ("JUST_A_BLOCK", 3, 3), ("", 3, 4)),
    *of(
        "align.context",
        context.require_conv_shape,
        ("JUST_ROWS", "shape", (3, 1), 3, 3),
        ("", "shape", (4, 1), 4, 3),
    ),
    *of(
        "align.context",
        context.require_tables,
        ("WIDER_TABLE", [TableView("int32", (2, 4), (8, 1))], 1),
        ("", [TableView("int32", (2, 4), (4, 1))], 1),
        ("", [], 0),
    ),
    *of("align.context", context.require_states, ("FEWER_STATES", "layer", [], 1), ("", "layer", [VIEW], 1)),
    *of("align.context", context.metadata, ("UNUSED", [], "SD", 1), ("", [TEMPORAL], "SD", 1)),
    *of("align.context", context.as_int64, ("HIGH_BIT", 2**63), ("", 0)),
    *of(
        "builders.batch builders.base",
        base_metadata,
        ("NO_ROW", step(), config()),
        ("UNKNOWN", step(row(1, 4)), config()),
        ("", step(DECODE, DECODE), config()),
        ("ONE_TOKEN_PROMPT", step(row(1, prefilling=T)), config()),
        ("ONE_TOKEN_CHUNK", step(row(1, 1, prefilling=T)), config()),
        ("", step(DECODE, row(2, prefilling=T)), full(max_num_seqs=1)),
        ("OPTIMISTIC", step(row(1, 0, seq_len_upper_bound=2)), config()),
        ("NO_COUNTS PADDED_PROMPTS", step(row(3, prefilling=T), padding(prefilling=T)), config(num_spec=1)),
        ("", step(row(2, prefilling=T)), config()),
        ("NO_COUNTS SPEC_LIKE_CHUNK", step(row(2, prefilling=T)), config(num_spec=1)),
        ("NO_COUNTS", step(row(3, prefilling=T)), config(num_spec=1)),
        ("OPTIMISTIC", step(row(1, 4, seq_len_upper_bound=6)), config()),
        ("", step(row(1, 4, seq_len_upper_bound=5)), config()),
        ("", step(row(1, 4, seq_len_upper_bound=5), padding(seq_len_upper_bound=3)), config()),
        ("", step(row(1, 4, seq_len_upper_bound=6, prefilling=F), has_upper_bound=F), config()),
        ("ON_DEVICE", step(DECODE, on_host=F), config()),
        ("MORE_BLOCKS", step(DECODE), config(num_speculative_blocks=1)),
        ("READS_ONE_WRITES_NEXT", step(DECODE), config("all", num_speculative_blocks=1)),
        ("PADDED_PROMPTS", step(row(2, prefilling=T), PAD), config()),
        ("PADDED_GRAPH", step(DECODE, PAD), full()),
        ("", step(DECODE, PAD), config()),
        ("", step(PAD), full()),
        ("", step(DECODE, DECODE), full(max_num_seqs=2)),
        ("TOO_MANY_ROWS", step(DECODE, DECODE), full(max_num_seqs=1)),
        ("", step(DECODE, DECODE), config(max_num_seqs=1)),
        ("", step(spec(1)), config(num_spec=2)),
        ("OFFSET", step(spec(1, accepted=2)), config(num_spec=2)),
        ("LAST_OFFSET", step(spec(1, accepted=3)), config(num_spec=2)),
        ("", step(spec(1), padding(prefilling=F, accepted=2)), config(num_spec=2)),
        ("", step(spec(4, accepted=2, prefilling=T)), config(num_spec=2)),
        ("", step(spec(1)), config()),
        ("", step(row(1, 4)), full(), {"capture": T}),
        ("PADDED_CAPTURE PADDED_GRAPH", step(row(1, 4), padding()), full(), {"capture": T}),
        ("LAST_OFFSET SPEC_CAPTURE", step(row(2, 4)), full(num_spec=1), {"capture": T}),
        ("", step(row(1, 5, prefilling=F)), config("all")),
        ("SEVERAL_KEPT", step(row(5, prefilling=T)), config("all")),
        ("", step(row(4, prefilling=T)), config("all")),
        ("KEPT_WIDE", step(row(1, 5)), full("all", max_model_len=8), {"capture": T}),
        ("", step(row(1, 5)), full("all", max_model_len=12), {"capture": T}),
        ("NO_ROW", step(), full("all", max_model_len=8)),
        ("UNKNOWN", step(row(1, 5)), config("all", max_model_len=8)),
        ("", step(row(4, prefilling=T)), full("all", max_model_len=8)),
    ),
    *of(
        "builders.batch builders.base",
        updated_block_table,
        ("OTHER_TABLE", step(DECODE), config(), ((1, 2),)),
    ),
    *of(
        "builders.batch builders.gdn",
        gdn_metadata,
        ("UNKNOWN", step(row(1, 4)), config()),
        ("PADDED_CAPTURE PADDED_GRAPH", step(row(1, 4), padding()), full(), T),
        ("SPEC_CAPTURE", step(row(3, 9)), config(num_spec=2), T),
        ("", step(DRAFTED), config(num_spec=2)),
        ("ON_DEVICE", step(DRAFTED, on_host=F), config(num_spec=2)),
        ("SPEC_NONE", step(spec(1, drafts=0)), config(num_spec=2)),
        ("NO_COUNTS UNKNOWN", step(row(1, 4)), config(num_spec=2)),
        ("SPEC_ALONE", step(DRAFTED, spec(1, drafts=-1)), config(num_spec=2)),
        ("SPEC_MIXED", step(DRAFTED, PROMPT), config(num_spec=2)),
        ("SPEC_BEHIND SPEC_MIXED", step(PROMPT, DRAFTED), config(num_spec=2)),
        ("SPEC_BEHIND SPEC_MIXED", step(DRAFTED, PROMPT, DRAFTED), config(num_spec=2)),
        ("SPEC_MIXED SPEC_PADDED_MIXED", step(DRAFTED, PROMPT, SPEC_PAD), config(num_spec=2)),
        ("", step(DRAFTED, SPEC_PAD), config(num_spec=2)),
        ("SPEC_PADDED", step(DRAFTED, SPEC_PAD), full(num_spec=2)),
        ("", step(DRAFTED), full(num_spec=2, max_num_seqs=1)),
        ("SPEC_TOO_MANY", step(DRAFTED, DRAFTED), full(num_spec=2, max_num_seqs=1)),
        ("", step(DRAFTED, DRAFTED), config(num_spec=2, max_num_seqs=1)),
        ("SPEC_MIXED", step(DRAFTED, DRAFTED, PROMPT), full(num_spec=2, max_num_seqs=1)),
        ("PLAIN_DECODE SPEC_MIXED", step(DRAFTED, spec(1), has_prefilling=F), config(num_spec=2)),
        ("SPEC_MIXED", step(DRAFTED, spec(2), has_prefilling=F), config(num_spec=2)),
        ("ONE_TOKEN_CHUNK SPEC_MIXED", step(DRAFTED, spec(1, prefilling=T)), config(num_spec=2)),
    ),
    *of(
        "builders.mamba2",
        position_chunks,
        ("SHORT_FIRST", [row(3)], [2], 4),
        ("", [row(1)], [6], 4),
        ("", [row(2)], [2], 4),
        ("", [row(5)], [4], 4),
        ("NO_STATES", [row(5)], [0], 4),
        ("NO_CHUNK NO_STATES", [row(1), padding()], [0, 4], 4),
        ("NO_STATES", [padding(), row(1)], [4, 0], 4),
        ("SOME_STATES", [row(1), row(1)], [0, 1], 4),
        ("", [padding()], [0], 4),
    ),
    *of(
        "lifecycle.blocks",
        of_pool,
        ("EVICTED", "take", 3),
        ("", "take", 2),
        ("HIT_FREE", "hold", 1),
        ("SHARED", "hold", 1, {"held": True}),
        ("TWICE", "register", 2, (0, 9)),
        ("", "register", 1, (0, 9)),
        ("", "register", 2, (1, 9)),
    ),
    *of(
        "lifecycle.ledger",
        lambda computed, length: StateLedger(ALL, Prefixes()).boundaries_on_the_way(
            scheduled(computed, length)
        ),
        ("", 0, 3),
        ("ON_ITS_WAY", 0, 4),
        ("SEVERAL_ON_ITS_WAY", 0, 8),
    ),
    *of(
        "lifecycle.ledger",
        StateLedger(ALIGN, Prefixes()).boundary_among,
        ("", scheduled(2, 3, 2), 1),
        ("PUBLISHED", scheduled(2, 3, 2), 2),
    ),
    *of("lifecycle.prefixes", window, ("BEFORE_FIRST", 2, 3), ("BEFORE_FIRST", 1, 2), ("", 2, 2), ("", 0, 3)),
    *of(
        "lifecycle.tables",
        extended,
        ("", 3),
        ("SKIPPED", 4),
        ("KEPT_HIT", 5, {"hit": 2}),
        ("", 5, {"hit": 5}),
        ("KEPT_HIT SKIPPED", 6, {"hit": 2}),
        ("", 3, 3),
        ("", 3, 4),
        ("MOVED", 3, 5),
        ("MOVED SKIPPED", 3, 7),
    ),
    *of("lifecycle.tables", drops, ("DROPPED_STATE",)),
    *of(
        "lifecycle.scheduler",
        aligned_length,
        ("LAST_CUT", 0, 10, 10, 4),
        ("LAST_CUT", 4, 6, 10, 4),
        ("", 0, 8, 10, 4),
        ("", 8, 2, 10, 4),
    ),
    *of("lifecycle.scheduler", ends, ("WAITING_ENDS",), ("", "a")),
    *of("lifecycle.scheduler", resets, ("RESET_HELD", "a"), ("",)),
    *of(
        "lifecycle.scheduler",
        requests,
        ("", "a"),
        ("LAST_CUT SAME_STEP", "ab", {"prompt": 5}),
        ("NO_ROOM", "a", {"num_blocks": 2}),
        ("PREEMPTED_ITSELF", "a", "a", {"num_blocks": 3}),
        ("PREEMPTED_ANOTHER", "ab", "a", {"num_blocks": 5}),
        ("SEVERAL_GROUPS", "a", "a", "b", {"prompt": 5, "num_groups": 2}),
        ("", "a", "a", "b", {"prompt": 5}),
    ),
]


def test_the_package_declares_the_situations_of_all_its_modules() -> None:
    code = (
        "import oracle.situations.registry as r; print(*sorted({one.topic for one in r.declared().values()}))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {
        part for topic, *_ in (one.values for one in CALLS) for part in topic.split()
    }


def test_a_situation_has_a_name_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"a name of its own.*\[situation\]"):
        situations_of("types")(next(iter(declared())))


@pytest.mark.parametrize(("topic", "names", "call"), CALLS)
def test_a_call_is_in_these_situations_of_its_topic(
    topic: str, names: str, call: Callable[[], object]
) -> None:
    known = named(topic)
    take()
    call()
    assert sorted(known[one] for one in take() if one in known) == names.split()
