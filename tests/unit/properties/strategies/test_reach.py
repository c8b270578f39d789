"""Strategies reach every named situation, and often enough to matter in a run of 100 examples."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis.strategies import SearchStrategy

from oracle.situations.align import decisions, pointers, runner
from properties.strategies import builder_sessions, builders
from properties.strategies.align.kept import DTYPES as STATE_DTYPES
from properties.strategies.align.pointers import runs
from properties.strategies.align.requests import FLAWS
from properties.strategies.align.runner_steps import runner_steps
from properties.strategies.align.sessions import histories
from properties.strategies.align.setups import setups as align_setups
from properties.strategies.align.steps import (
    batches_after_forward,
    batches_before_forward,
    far_batches_after_forward,
    far_batches_before_forward,
)
from properties.strategies.batch import batches, shuffled_batches, splittings
from properties.strategies.block_tables import WIDE_BLOCKS, block_tables
from properties.strategies.bounds import MANY_DRAFTS, MOST_CHUNKS, around
from properties.strategies.chunks import packed_sequences
from properties.strategies.layout import DTYPES, LAYOUTS, Copy, conv_copies, temporal_copies
from properties.strategies.published_models import PUBLISHED_MODELS
from properties.strategies.shapes import TP_SIZES, models
from properties.strategies.situations import all_situations
from tests.unit.properties.strategies.drawing import drawn

ANYTIME = -1.0
"""A situation that the strategy neither aims at nor rules out."""
NEVER = 0.0
"""A situation that the strategy rules out, although the dataclass can name it."""

# Of stateless functions and builders.

BATCHES = {
    "empty batch": 1,
    "padding only": 1,
    "decodes only": 20,
    "prefills only": 7,
    "decodes before prefills": 12,
    "a prefill before a decode": NEVER,
    "a decode with drafts": 25,
    "first chunk": 15,
    "chunked prefill": 12,
    "one-token prompt chunk": 10,
    "uniform speculative decodes": 7,
    "uniform speculative decodes before padding": 2,
    "zero-length rows at the back": 18,
    "padded tokens": 22,
    "a decode with five drafts or more": 0.8,
    "more rows than 64": 1.5,
    "a request of more than 2^24 tokens": 1,
    "a request of more than 2^30 tokens": 0.4,
}
COPIES = {
    "no drafts": 10,
    "no draft accepted": 9,
    "some drafts accepted": 15,
    "all drafts accepted": 10,
    "five drafts accepted or more": 1,
    "null blocks before the running one": 25,
    "blocks out of order": 20,
    "page padding": 20,
    "behind another state of the page": 12,
    "addresses above 2^31": 6,
    "channel-first layout": 20,
    "channel-first layout with accepted drafts": 12,
    **{f"dtype {name}": 4 for name in DTYPES},
}

# Of align mode.

SETUPS: dict[str, float] = {
    "channel-first layout": 20,
    "conv states": 30,
    "temporal states": 30,
    "two conv states in a layer": 6,
    "several layers in a group": 12,
    "two groups": 20,
    "shared pool": 7,
    "a group of another kind before": 8,
    "fewer states than copy functions": 6,
    "page padding": 25,
    "state behind another one": 15,
    "unaligned": 15,
    "several channels": 15,
    "several lanes": 8,
    "several tiles": 1,
    "speculation": 30,
    "block as long as the drafts allow": 6,
    "five drafts or more": 1,
    "blocks of millions of tokens": 1,
    **{f"dtype {name}": 6 for name in STATE_DTYPES},
}
MODELS = {f"model: {name}": least for name, least in SETUPS.items()}
NO_MODELS = dict.fromkeys(MODELS, ANYTIME)
SOUND = dict.fromkeys(("ids and strides above 2^31", *FLAWS[1:]), NEVER)
ORDERS: dict[str, float] = {
    "no request": 0.4,
    "more rows than eight": ANYTIME,
    "more rows than a vector": NEVER,
    "more rows than two vectors": NEVER,
    "more rows than a tile": NEVER,
    "spare rows": 15,
    decisions.NO_SLOT.name: 10,
    decisions.OUT_OF_ORDER.name: 5,
    "stale blocks in a row": 10,
    "relabelled blocks": 25,
    "programs in another order": 15,
    "programs interleaved": 8,
}
AFTERS: dict[str, float] = {
    decisions.PUBLISHED.name: 8,
    decisions.PUBLISHED_BIAS.name: 4,
    decisions.AT_FRONT.name: 25,
    decisions.COLLAPSED.name: 8,
    "conv rows shifted in place": 5,
    "no boundary": 15,
    decisions.ON_BOUNDARY.name: 30,
    decisions.ONE_BEHIND.name: 7,
    decisions.PROMPT_CHUNK.name: 12,
    "all drafts accepted": 12,
    "some drafts accepted": 4,
    "no draft accepted": 4,
    "fresh request": 6,
}
BEFORES: dict[str, float] = {
    "moves, bias 0": 25,
    decisions.COMES_OFFSET.name: 10,
    "stays": 6,
    decisions.STAYS_OFFSET.name: 1.5,
    decisions.FRESH.name: 10,
    "request with a hit": 10,
    decisions.BACK.name: 3,
    decisions.LEAPS.name: 8,
    "self copy of the temporal state": 5,
    decisions.UNCOUNTED.name: 8,
    "several programs": 6,
}
FLAWED = dict.fromkeys(FLAWS[1:], 8.0)
FAR = dict.fromkeys(ORDERS, NEVER) | NO_MODELS | dict.fromkeys(FLAWS[1:], NEVER)
LEAST_PERCENT: dict[str, Mapping[str, float]] = {
    "builder setups": {
        "mamba1": 15,
        "mamba2": 15,
        "gdn": 15,
        "mode none": 15,
        "mode align": 15,
        "mode all": 8,
        "speculation": 20,
        "full graphs": 20,
        "buffers smaller than the batch may be": 10,
        "spare speculative blocks": 10,
        "parallel drafting": 20,
        "decode context parallelism": 20,
        "five drafts or more": 2,
        "room for more requests than 64": 0.8,
        "requests of more than 2^24 tokens": 0.8,
        "requests of more than 2^30 tokens": 0.4,
    },
    "builder steps": {
        "no row": 1,
        "decodes only": 6,
        "prefills only": 8,
        "decodes before prefills": 15,
        "one-token first chunk": 0.8,
        "one-token prompt tail": 2,
        "drafted nothing after accepting several": 3,
        "some drafted and some did not": 3,
        "padding rows": 25,
        "padding rows behind prefills": 15,
        "padded tokens": 25,
        "no prompt marks": 20,
        "no host lengths": 10,
        "no host knowledge of prompts": 5,
        "optimistic bounds": 4,
        "no counts": 10,
        "a row without drafts between rows with drafts": 0.6,
        "a decode with five drafts or more": 0.8,
        "five drafts accepted or more": 0.8,
        "more rows than 64": 0.4,
        "a prompt chunk of 255 tokens or more": 0.4,
        "a row of more than 2^24 tokens": 0.4,
        "a row of more than 2^30 tokens": 0.2,
    },
    "packed sequences": {
        "no sequence": 1,
        "only empty sequences": 0.5,
        "an empty sequence at the front": 4,
        "an empty sequence between others": 6,
        "zero-length rows at the back": 5,
        "a length at k * chunk_size": 20,
        "a length at k * chunk_size + 1": 20,
        "a length at k * chunk_size - 1": 20,
        "a start inside a physical chunk": 30,
        "several chunks in a sequence": 40,
        "more sequences than 64": 1,
        "more sequences than 256": 0.4,
        "256 chunks or more in a sequence": 2,
        "65,536 chunks or more in a sequence": NEVER,
        "a length above 2^24": 1,
        "a length above 2^30": 0.4,
    },
    "batches": BATCHES,
    "shuffled batches": BATCHES | {"a prefill before a decode": 10},
    "splittings": {
        "a threshold above one": 20,
        "a query at the threshold": 20,
        "a query one above the threshold": 5,
        "every query within the threshold": 20,
        "a long first query": 8,
        "decodes before a long query": 4,
        "a bound above the threshold that no query reaches": 4,
        "even decodes where uniform ones are required": 2,
        "uneven decodes where uniform ones are required": 1,
        "padded decodes where uniform ones are required": 2,
        "a short prompt chunk where those are prefills": 4,
    },
    "block tables": {
        "no row": 2,
        "rows of different lengths": 20,
        "a padded row": 10,
        "fewer lengths than rows": 15,
        "null blocks before the running one": 15,
        "wider than needed": 25,
        "poisoned columns": 30,
        "strided view": 20,
        "a view that starts inside its storage": 10,
        "a length at k * block_size": 10,
        "a length at k * block_size + 1": 10,
        "a length at k * block_size - 1": 10,
        "speculative blocks": 30,
        "ids above 2^30": 15,
        "ids of 64 bits": 15,
        "five speculative blocks or more": 1,
        "more rows than 64": 0.8,
        "a length above 2^24": 1,
        "a length above 2^30": 0.2,
    },
    "conv copies": COPIES,
    "temporal copies": COPIES,
    "models": {
        "linear_attention_state_shape": 4,
        "mamba1_state_shape": 4,
        "mamba2_state_shape": 10,
        "short_conv_state_shape": 4,
        "gated_delta_net_state_shape": 7,
        "kda_state_shape": 7,
        "published model": 12,
        "several ranks": 30,
        "speculative tokens": 20,
        "groups replicated": 5,
        "groups shared": 3,
        "arguments left to their defaults": 6,
        "channel-first layout": 12,
        "five speculative tokens or more": 2,
        "a size above 2^16": 0.6,
    },
    "align setups": SETUPS,
    "afters": AFTERS | ORDERS | SOUND | MODELS,
    "afters in place": dict.fromkeys(AFTERS, NEVER)
    | ORDERS
    | SOUND
    | NO_MODELS
    | {
        "conv rows shifted in place": 80,
        decisions.COLLAPSED.name: 80,
        decisions.ON_BOUNDARY.name: 80,
        "all drafts accepted": 80,
        "model: channel-first layout": 20,
        "model: several channels": 15,
        "model: several lanes": 7,
    },
    "flawed afters": dict.fromkeys(AFTERS, ANYTIME)
    | ORDERS
    | {"ids and strides above 2^31": NEVER}
    | NO_MODELS
    | FLAWED,
    "far afters": dict.fromkeys(AFTERS, ANYTIME)
    | FAR
    | {
        "ids and strides above 2^31": 100,
        decisions.PUBLISHED.name: 7,
        decisions.PUBLISHED_BIAS.name: 4,
        "conv rows shifted in place": 5,
        "model: conv states": 15,
        "model: temporal states": 15,
    },
    "crowded afters": dict.fromkeys(AFTERS, ANYTIME)
    | ORDERS
    | SOUND
    | NO_MODELS
    | {
        "more rows than a vector": 50,
        "more rows than two vectors": 25,
        "more rows than a tile": 1,
        decisions.PUBLISHED.name: 2,
        decisions.PUBLISHED_BIAS.name: 2,
    },
    "befores": BEFORES | ORDERS | SOUND | MODELS,
    "moving befores": dict.fromkeys(BEFORES, ANYTIME)
    | ORDERS
    | SOUND
    | NO_MODELS
    | {
        "stays": NEVER,
        decisions.FRESH.name: NEVER,
        "moves, bias 0": 40,
        decisions.COMES_OFFSET.name: 10,
        decisions.BACK.name: 5,
    },
    "flawed befores": dict.fromkeys(BEFORES, ANYTIME)
    | ORDERS
    | {"ids and strides above 2^31": NEVER}
    | NO_MODELS
    | FLAWED,
    "far befores": dict.fromkeys(BEFORES, ANYTIME)
    | FAR
    | {
        "ids and strides above 2^31": 100,
        "moves, bias 0": 20,
        decisions.COMES_OFFSET.name: 15,
        "model: conv states": 15,
        "model: temporal states": 15,
    },
    "runner steps": {
        runner.NO_ROW.name: 0.4,
        "no request moves": 8,
        runner.SOME_MOVE.name: 8,
        decisions.COMES_OFFSET.name: 8,
        "self copy of the temporal state": 4,
        decisions.BACK.name: 3,
        decisions.FRESH.name: 12,
        "resumed request with a column of before": 7,
        "remembers one that is gone, finished": 6,
        "remembers one that is gone, preempted": 6,
        "remembers one that is gone, resumed": 6,
        "remembers one that is gone, nothing": 6,
        "spare rows": 20,
        "pointer lists": 10,
        "channel-first layout": 20,
        "channel-first layout with a bias": 2,
        "two groups": 15,
        "shared pool": 6,
        "a group of another kind before": 8,
        "stale blocks in a row": 10,
        "more requests than eight": 0.4,
        "five drafts accepted or more": 0.4,
    },
    "histories": {
        "several steps": 30,
        "several requests": 15,
        "a request ends before another": 8,
        "a prefix hit": 12,
        "stored in another column": 10,
        "shifted in place": 2,
        decisions.COMES_OFFSET.name: 3,
        decisions.STAYS_OFFSET.name: 4,
        decisions.BACK.name: 0.6,
        "channel-first layout": 20,
        "two groups": 15,
        "slots out of order": 20,
        "more requests than eight": 0.2,
        "five drafts accepted or more": 0.4,
    },
    "runs": {
        pointers.TO_FRONT.name: 15,
        pointers.TO_BACK.name: 15,
        "by one byte": 10,
        pointers.ONTO_ITSELF.name: 5,
        "apart": 10,
        "adjacent": 4,
        "several tiles, overlapping": 4,
        "several runs": 20,
        "more runs than 64": 0.4,
        "unused entries": 7,
        "aligned": 1.5,
    },
}
LEAST_PERCENT["long packed sequences"] = dict(LEAST_PERCENT["packed sequences"]) | {
    "65,536 chunks or more in a sequence": 0.4
}
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
    "builder steps": builders.setups().flatmap(builder_sessions.steps),
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


RUNS, MORE_RUNS = 5, 20
"""Runs of 100 examples, and those in which situations are counted again where the first runs have too few of them."""
RARE = 2.0
"""Percent. Below it a situation has to be reached once: Hypothesis repeats parts of examples, so that what is rare comes several times
in a run, or never, and a share of it is no stable number."""
RARE_RUNS = 60
"""Runs in which a rare situation has to be reached; they end with the last one that was missing."""


@cache
def drawn_by(strategy: str) -> tuple[Any, ...]:
    return drawn(STRATEGIES[strategy], range(RUNS))


def percent(values: Collection[Any], names: Callable[[Any], Iterable[Hashable]]) -> dict[Hashable, float]:
    """How many of a hundred drawn values have each name."""
    counted = Counter(name for value in values for name in set(names(value)))
    return {name: 100 * count / len(values) for name, count in counted.items()}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_situation_is_reached_often_enough_or_ruled_out(strategy: str) -> None:
    table, values = LEAST_PERCENT[strategy], list(drawn_by(strategy))
    assert all_situations(values[0]) == set(table)

    def missed() -> dict[str, tuple[float, float]]:
        seen = percent(values, lambda value: value.situations())
        assert {name for name, least in table.items() if least == NEVER} & seen.keys() == set()
        least_of = {name: least if least >= RARE else min(least, 1e-9) for name, least in table.items()}
        return {
            name: (seen.get(name, 0), least) for name, least in least_of.items() if seen.get(name, 0) < least
        }

    for more in (range(RUNS, MORE_RUNS), *([run] for run in range(MORE_RUNS, RARE_RUNS))):
        if not missed():
            return
        values += drawn(STRATEGIES[strategy], more)
    assert missed() == {}, f"% seen, wanted [{strategy}]"


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
