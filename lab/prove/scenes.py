"""Calls of align mode with every number left open, and what the oracle expects of them.

A scene has one request. Its numbers, its block table, the number of blocks, the width of the table and the tokens of a block are
symbols; what layers keep of a block is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.prove.inputs import BLOCK_SIZE, DRAFTS, INT32, STRIDE, Inputs, within
from lab.prove.memory import APART, MovedBytes, Region
from lab.prove.numbers import Numbers, answered, term_of
from lab.prove.paths import Path, Term, as_term
from oracle.align import decisions, pointers
from oracle.align.memory import Piece, StateTensor, copies_of
from oracle.layout import StateGeometry
from properties.strategies.align.batches import OUT, BatchAfterForward, BatchBeforeForward
from properties.strategies.align.requests import RequestAfterStep, RequestBeforeStep
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.case.values import Step
from statecheck.subject.profile import Profile

POOL = 1 << APART
"""Where the pool begins."""
COLUMNS = 8
"""Of the table of a case."""

TEMPORAL = Kept("temporal", (2, 7))
SETUPS = {
    "SD": Setup(
        (Group((Kept("conv", (DRAFTS + 2, 4)), TEMPORAL), padding=2),), ("conv", "temporal"), 1, DRAFTS, "SD"
    ),
    "DS": Setup(
        (Group((Kept("conv", (4, DRAFTS + 2)), TEMPORAL), padding=2),), ("conv", "temporal"), 1, DRAFTS, "DS"
    ),
    "fewer states": Setup(
        (Group((Kept("conv", (DRAFTS + 2, 4)),), padding=16),), ("conv", "temporal"), 1, DRAFTS, "SD"
    ),
}
"""What layers keep: by the layout of conv states, and where a layer has fewer states than there are copy functions."""


class _Everywhere:
    """A request that has a block in each column of its table."""

    def columns(self, setup: Setup) -> tuple[int, ...]:  # noqa: ARG002 - whatever the model
        return tuple(range(COLUMNS))


@dataclass(frozen=True)
class _After(_Everywhere, RequestAfterStep):
    pass


@dataclass(frozen=True)
class _Before(_Everywhere, RequestBeforeStep):
    pass


@dataclass(frozen=True)
class Expected:
    """What the oracle says: the numbers of the vectors that may change, by name, and the copies."""

    vectors: Mapping[str, Callable[[Term], Term]]
    copies: tuple[MovedBytes, ...] = ()


@dataclass(frozen=True)
class SymbolicScene:
    """A call with open numbers.

    `domain` assumes what is documented of them, `expect` asks the oracle. `vectors` are the names of the vectors.
    """

    name: str
    property_id: str
    function: str
    vectors: tuple[str, ...]
    domain: Callable[[Inputs], None]
    expect: Callable[[Inputs, Setup], Expected]
    steps: Callable[[Setup, Profile], list[Step]]
    by_slot: bool = True
    moves: bool = True
    sized: bool = True
    """Whether it depends on the tokens of a block."""

    def inputs(self, path: Path, profile: Profile, prefix: str = "", block_size: Term = BLOCK_SIZE) -> Inputs:
        """Args: block_size: tokens of a block, where they are given."""
        found = Inputs(path, profile, self.by_slot, prefix, block_size)
        self.domain(found)
        return found

    def regions(self, inputs: Inputs, setup: Setup) -> list[Region]:
        """Vectors, the block table and the pool; each apart from the others."""
        rows = as_term(1) if not self.by_slot else inputs.slots
        found = [
            Region(name, 0, 4 * (rows + (name == "starts")), 4, _reader(inputs, name))
            for name in self.vectors
        ]
        if OUT not in self.vectors:
            found.append(Region(OUT, 0, 4 * rows, 4, _reader(inputs, OUT)))
        if self.moves:
            found.append(Region("table0", 0, 4 * inputs.width, 4, inputs.cell, first=4 * STRIDE * inputs.row))
        found = [replace(region, start=(2 + number) << APART) for number, region in enumerate(found)]
        size = inputs.blocks * setup.pages()["pool0"]
        return [*found, Region("pool0", POOL, size, 1)]


def _reader(inputs: Inputs, name: str) -> Callable[[Term], Term]:
    return lambda index: inputs.at(name, index)


def states_at(setup: Setup, start: int, blocks: Any) -> list[StateTensor]:
    """The states of the only layer, whose pool begins at an address."""
    group = setup.groups[0]
    page = setup.pages()["pool0"]
    return [
        StateTensor("", StateGeometry(blocks, kept.shape, kept.itemsize, page, start + offset), kept.kind)  # type: ignore[arg-type]
        for kept, offset in zip(group.states, group.offsets, strict=True)
    ]


def _pieces(inputs: Inputs, setup: Setup, moves: list[Any]) -> tuple[MovedBytes, ...]:
    """What the oracle copies for moves."""
    states = states_at(setup, POOL, inputs.number(inputs.blocks))
    found: list[MovedBytes] = []
    for move in moves:
        copies = answered(copies_of, move, states, setup.layout, inputs.table(), inputs.profile)
        found += [run_of(inputs.path, piece) for copy in copies for piece in copy]
    return tuple(found)


def run_of(path: Path, piece: Piece | pointers.Entry) -> MovedBytes:
    source, target, length = piece
    return MovedBytes(term_of(source.offset), term_of(target.offset), path.only(term_of(length)))


def _decode(inputs: Inputs, count: Any, running: Any) -> None:
    """Accepted tokens, and a running column such that all of them have columns in the table."""
    inputs.path.assume(*within(count, 1, 1 + DRAFTS))
    if inputs.profile.skips_missing_states:
        inputs.path.assume(*within(running, -INT32 - 1, INT32 - DRAFTS))
    else:
        inputs.path.assume(*within(running, 0, inputs.width - count))


def _v1_domain(inputs: Inputs) -> None:
    count, drafts, scheduled, computed = map(inputs.own, ("counts", "drafts", "scheduled", "computed"))
    _decode(inputs, count, inputs.own("columns"))
    inputs.path.assume(
        *within(drafts, count - 1, DRAFTS),
        *within(scheduled, 1 + drafts, INT32),
        # A kernel adds the accepted tokens before it takes one off.
        *within(computed, 0, INT32 - 1 - scheduled),
    )


def _v1(inputs: Inputs, setup: Setup) -> Expected:
    names = ("counts", "columns", "scheduled", "computed", "drafts")
    size = inputs.number(inputs.block_size)
    decided = answered(decisions.after_v1_steps, *map(inputs.vector, names), size)
    return _after(inputs, setup, OUT, {as_term(0): decided[0]})


def _v2_domain(inputs: Inputs) -> None:
    count, computed = inputs.own("counts"), inputs.own("computed")
    _decode(inputs, count, inputs.own("columns"))
    # The first accepted token's state is that of one token at least.
    inputs.path.assume(*within(computed, count, INT32))


def _v2(inputs: Inputs, setup: Setup) -> Expected:
    names = ("mapping", "counts", "columns", "computed")
    size = inputs.number(inputs.block_size)
    decided = answered(decisions.after_v2_steps, *map(inputs.vector, names), size, inputs.profile)
    return _after(inputs, setup, "counts", {term_of(slot): step for slot, step in decided.items()})


def _after(inputs: Inputs, setup: Setup, name: str, decided: Mapping[Any, Any]) -> Expected:
    """Accepted counts in a vector by index, and the copies."""
    counts = Numbers(inputs.path, lambda index: inputs.at(name, index), 1)
    for index, step in decided.items():
        counts[inputs.number(index)] = step.accepted
    moves = [step.move for step in decided.values() if step.move is not None]
    return Expected({name: counts.at}, _pieces(inputs, setup, moves))


def _precopy_domain(inputs: Inputs) -> None:
    inputs.path.assume(*within(inputs.own("bias"), 0, DRAFTS), inputs.own("src_col") <= INT32 - DRAFTS)
    if not inputs.profile.skips_missing_states:
        source, target = inputs.own("src_col"), inputs.own("columns")
        inputs.path.assume(*within(source, -1, inputs.width - 1), *within(target, 0, inputs.width - 1))


def _precopy(inputs: Inputs, setup: Setup) -> Expected:
    names = ("mapping", "columns", "src_col", "bias")
    moves = answered(decisions.precopy_moves, *map(inputs.vector, names), inputs.profile)
    return Expected({}, _pieces(inputs, setup, moves))


def _lists(inputs: Inputs, setup: Setup) -> Expected:
    """What a request's copy adds to lists of pointers, where the precopy's rules see a copy."""
    names = ("mapping", "columns", "src_col", "bias")
    states = states_at(setup, POOL, inputs.number(inputs.blocks))
    found: list[MovedBytes] = []
    for move in answered(decisions.precopy_moves, *map(inputs.vector, names), inputs.profile):
        row = inputs.table()[0][move.row]
        listed = answered(
            pointers.entries, states, setup.layout, [row], move.src_col, move.dst_col, move.bias
        )
        found += [run_of(inputs.path, entry) for entry in listed]
    return Expected({}, tuple(found))


def _preprocess_domain(inputs: Inputs) -> None:
    computed, begin, end = inputs.own("computed"), inputs.at("starts", 0), inputs.at("starts", 1)
    inputs.path.assume(
        *within(inputs.own("counts"), 0, 1 + DRAFTS),
        *within(begin, 0, INT32),
        *within(end, begin, INT32),
        # A kernel adds the end before it takes the beginning off, and rounds up before it divides.
        *within(computed, 0, INT32 - end - inputs.block_size),
    )


def _preprocess(inputs: Inputs, setup: Setup) -> Expected:  # noqa: ARG001 - it copies nothing
    names = ("columns", "counts", "src_col", "bias")
    slots = decisions.Slots(*map(inputs.vector, names))  # type: ignore[arg-type]
    rest = map(inputs.vector, ("mapping", "starts", "computed"))
    size = inputs.number(inputs.block_size)
    after = answered(decisions.advanced, slots, *rest, size, inputs.profile)
    found = (after.columns, after.counts, after.src_col, after.src_off)
    return Expected({name: one.at for name, one in zip(names, found, strict=True)})


def _by_row(setup: Setup, profile: Profile) -> list[Step]:
    batch = BatchAfterForward(setup, (_After(3, 4, 2, 2),), profile=profile)
    return [*batch.prepared(), *batch.postprocess_by_row()]


def _by_slot(setup: Setup, profile: Profile) -> list[Step]:
    batch = BatchAfterForward(setup, (_After(3, 4, 2, 2),), profile=profile)
    return [*batch.prepared(), *batch.postprocess_by_slot()]


def _before(setup: Setup, profile: Profile) -> list[Step]:
    batch = BatchBeforeForward(setup, (_Before(6, 4, 2),), profile=profile)
    return [*batch.prepared(), *batch.precopy_by_slot()]


def _advance(setup: Setup, profile: Profile) -> list[Step]:
    return BatchBeforeForward(setup, (_Before(6, 4, 2),), profile=profile).preprocess_by_slot()


V1 = SymbolicScene(
    "V1 postprocess", "v1-postprocess/boundary", "run_fused_postprocess",
    ("counts", "columns", "scheduled", "computed", "drafts", OUT),
    _v1_domain, _v1, _by_row, by_slot=False,
)  # fmt: skip
V2 = SymbolicScene(
    "V2 postprocess", "v2-postprocess/boundary", "run_fused_postprocess_align",
    ("counts", "columns", "computed", "mapping"), _v2_domain, _v2, _by_slot,
)  # fmt: skip
PRECOPY = SymbolicScene(
    "precopy", "precopy/running-column", "run_fused_precopy",
    ("columns", "src_col", "bias", "mapping"), _precopy_domain, _precopy, _before, sized=False,
)  # fmt: skip
LISTS = replace(PRECOPY, name="precopy and pointer lists", expect=_lists)
PREPROCESS = SymbolicScene(
    "preprocess", "preprocess-kernel/columns", "preprocess_mamba_align_fused_kernel",
    ("columns", "computed", "counts", "src_col", "bias", "mapping", "starts"),
    _preprocess_domain, _preprocess, _advance, moves=False,
)  # fmt: skip
