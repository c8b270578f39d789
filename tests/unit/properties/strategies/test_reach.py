"""Strategies reach every named situation that they do not rule out, and every size."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from properties.situations.align import decisions
from properties.strategies import builders
from properties.strategies.align.batches import (
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
    far_batches_before_forward,
)
from properties.strategies.align.pointers import runs
from properties.strategies.align.requests import FLAWS
from properties.strategies.align.runner import runner_steps
from properties.strategies.align.sessions import histories
from properties.strategies.align.setup import setups as align_setups
from properties.strategies.batch import WIDE_BLOCKS, batches, block_tables, shuffled_batches, splittings
from properties.strategies.bounds import MANY_DRAFTS, MOST_CHUNKS, around
from properties.strategies.chunks import packed_sequences
from properties.strategies.layout import LAYOUTS, Copy, conv_copies, temporal_copies
from properties.strategies.shapes import PUBLISHED_MODELS, TP_SIZES, models
from properties.strategies.situations import all_situations
from tests.unit.properties.strategies.drawing import drawn

MANY_ROWS = {"more rows than a vector", "more rows than two vectors", "more rows than a tile"}
FAR = "ids and strides above 2^31"
SOUND = MANY_ROWS | {FAR, *FLAWS[1:]}
NEAR = MANY_ROWS | {FAR}
PLAIN = MANY_ROWS | {
    *FLAWS[1:],
    "no request",
    "more rows than eight",
    "spare rows",
    decisions.NO_SLOT.name,
    decisions.OUT_OF_ORDER.name,
    "stale blocks in a row",
    "relabelled blocks",
    "programs in another order",
    "programs interleaved",
}
RULED_OUT: dict[str, Collection[str]] = {
    "packed sequences": {"65,536 chunks or more in a sequence"},
    "batches": {"a prefill before a decode"},
    "afters": SOUND,
    "afters in place": SOUND
    | {"no boundary", decisions.PUBLISHED.name, "no draft accepted", "fresh request"},
    "flawed afters": NEAR,
    "far afters": PLAIN,
    "crowded afters": {FAR, *FLAWS[1:]},
    "befores": SOUND,
    "moving befores": SOUND | {"stays", decisions.FRESH.name},
    "flawed befores": NEAR,
    "far befores": PLAIN,
}
"""Situations that a strategy rules out, although the dataclass can name them."""
MEANT_FOR: dict[str, Collection[str]] = {
    "afters in place": {"conv rows shifted in place", decisions.COLLAPSED.name, "all drafts accepted"},
    "flawed afters": FLAWS[1:],
    "far afters": {
        FAR,
        decisions.PUBLISHED.name,
        decisions.PUBLISHED_BIAS.name,
        "conv rows shifted in place",
    },
    "crowded afters": MANY_ROWS | {decisions.PUBLISHED.name, decisions.PUBLISHED_BIAS.name},
    "moving befores": {"moves, bias 0", decisions.COMES_OFFSET.name, decisions.BACK.name},
    "flawed befores": FLAWS[1:],
    "far befores": {FAR, "moves, bias 0", decisions.COMES_OFFSET.name},
}
"""Situations that a special strategy has to reach. Other strategies have to reach every situation that they do not rule out."""
STRATEGIES: dict[str, SearchStrategy[Any]] = {
    "packed sequences": packed_sequences(),
    "long packed sequences": packed_sequences(most_chunks=MOST_CHUNKS),
    "batches": batches(),
    "shuffled batches": shuffled_batches(),
    "splittings": splittings(),
    "block tables": block_tables(),
    "conv copies": conv_copies(),
    "temporal copies": temporal_copies(),
    "models": models(),
    "builder setups": builders.setups(),
    "builder steps": builders.setups().flatmap(builders.steps),
    "align setups": align_setups(),
    "afters": batches_after_forward(),
    "crowded afters": batches_after_forward(crowded=True),
    "afters in place": batches_after_forward(in_place=True),
    "flawed afters": batches_after_forward(flawed=True),
    "far afters": far_batches_after_forward(),
    "befores": batches_before_forward(uncounted=True),
    "moving befores": batches_before_forward(moving=True),
    "flawed befores": batches_before_forward(flawed=True),
    "far befores": far_batches_before_forward(),
    "runner steps": runner_steps(),
    "histories": histories(),
    "runs": runs(),
}


RUNS, MOST_RUNS = 5, 60
"""Runs of 100 examples in which sizes are counted, and those in which a rare situation has to be reached."""


@cache
def drawn_by(strategy: str) -> tuple[Any, ...]:
    return drawn(STRATEGIES[strategy], range(RUNS))


def percent(values: Collection[Any], names: Callable[[Any], Iterable[Hashable]]) -> dict[Hashable, float]:
    """How many of a hundred drawn values have each name."""
    counted = Counter(name for value in values for name in set(names(value)))
    return {name: 100 * count / len(values) for name, count in counted.items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_situation_is_reached_or_ruled_out(strategy: str) -> None:
    every, ruled_out = all_situations(drawn_by(strategy)[0]), set(RULED_OUT.get(strategy, ()))
    missed = set(MEANT_FOR.get(strategy, every - ruled_out - {"more rows than eight"}))
    assert ruled_out | missed <= every
    for run in range(MOST_RUNS):
        seen = {name for value in drawn(STRATEGIES[strategy], [run]) for name in value.situations()}
        assert seen & ruled_out == set()
        missed -= seen
        if run >= RUNS and not missed:
            break
    assert missed == set()


def rejected(copy: Copy) -> int:
    return 1 + copy.num_spec - copy.num_accepted_tokens


COUNTS = set(itertools.product(range(3), range(3)))


@pytest.mark.parametrize(
    ("strategy", "value_of", "values", "least"),
    [
        ("models", lambda model: model.published, {"", *(one.name for one in PUBLISHED_MODELS)}, 0.5),
        ("models", lambda model: model.tp_size, set(TP_SIZES), 4),
        ("packed sequences", lambda packed: packed.chunk_size, {1, 2, 3, 4, 7, 8, 16, 64, 256}, 3),
        ("block tables", lambda table: table.block_size, {1, 2, 3, 4, 8}, 6),
        ("block tables", lambda table: table.block_size, set(WIDE_BLOCKS), 0.4),
        ("conv copies", lambda copy: (copy.num_accepted_tokens - 1, rejected(copy)), COUNTS, 2),
        ("temporal copies", lambda copy: (copy.num_accepted_tokens - 1, rejected(copy)), COUNTS, 2),
        ("temporal copies", lambda copy: copy.num_accepted_tokens - 1, set(around(MANY_DRAFTS)), 0.2),
        ("temporal copies", lambda copy: len(copy.state.block_shape), {1, 2, 3}, 10),
        ("conv copies", lambda copy: copy.num_accepted_tokens == stored_rows(copy), {True, False}, 10),
    ],
)
def test_every_size_and_bound_is_reached(
    strategy: str, value_of: Callable[[Any], Hashable], values: set[Hashable], least: float
) -> None:
    seen = percent(drawn_by(strategy), lambda drawn_value: [value_of(drawn_value)])
    assert {value: seen.get(value, 0) for value in values if seen.get(value, 0) < least} == {}


def stored_rows(copy: Copy) -> int:
    return copy.state.block_shape[LAYOUTS.index(copy.layout)]


def test_published_models_are_a_fair_share_but_not_all() -> None:
    assert 12 <= 100 - percent(drawn_by("models"), lambda model: [model.published])[""] <= 60
