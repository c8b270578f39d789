"""What one example may cost: on a CPU bytes to copy are seconds to wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from properties.strategies.align.pointers import MovedRuns, runs
from properties.strategies.align.runner_steps import runner_steps
from properties.strategies.align.sessions import History, histories
from properties.strategies.align.setup import Setup
from properties.strategies.align.steps import batches_after_forward, batches_before_forward

pytestmark = pytest.mark.slow


def drawn(strategy: SearchStrategy[Any], count: int = 200) -> list[Any]:
    found: list[Any] = []

    @seed(1)
    @settings(
        max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def note(example: Any) -> None:
        found.append(example)

    note()
    return found


def bytes_of(setup: Setup) -> int:
    """Bytes of all states, counted as often as those of a channel-first conv state are: their rows move one by one."""
    return sum(
        group.layers * state.nbytes * (4 if state.kind == "conv" and setup.layout == "DS" else 1)
        for group in setup.groups
        for state in group.states
    )


def copied(batch: Any) -> int:
    return bytes_of(batch.setup) * len(batch.requests)


def copies(batch: Any) -> int:
    return sum(group.layers * len(group.states) for group in batch.setup.groups) * len(batch.requests)


def copied_by_all_steps(history: History) -> int:
    turns = sum(len(request.turns) for request in history.requests)
    return bytes_of(history.setup) * turns


def copied_by_runs(found: MovedRuns) -> int:
    return sum(run.size for run in found.runs)


BATCHES: dict[str, SearchStrategy[Any]] = {
    "afters": batches_after_forward(),
    "afters by row": batches_after_forward(mapped=False),
    "afters in place": batches_after_forward(in_place=True),
    "flawed afters": batches_after_forward(flawed=True),
    "crowded afters": batches_after_forward(crowded=True),
    "befores": batches_before_forward(),
    "flawed befores": batches_before_forward(flawed=True),
    "crowded befores": batches_before_forward(crowded=True),
    "steps of a runner": runner_steps(),
}
REORDERED: dict[str, SearchStrategy[Any]] = {
    "afters": batches_after_forward(reordered=True),
    "befores": batches_before_forward(moving=True, reordered=True),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_has_few_bytes_to_copy_or_one_large_state(name: str) -> None:
    found = drawn(BATCHES[name])
    assert max(map(copied, found)) < 45_000
    assert max(map(copies, found)) <= 24


@pytest.mark.parametrize("name", REORDERED)
def test_a_batch_that_is_run_in_every_order_has_fewer(name: str) -> None:
    assert max(bytes_of(one.setup) * len(one.requests) for one in drawn(REORDERED[name])) < 20_000


def test_a_history_has_few_bytes_to_copy_in_all_its_steps() -> None:
    assert max(map(copied_by_all_steps, drawn(histories()))) < 100_000


@pytest.mark.parametrize(("reordered", "most"), [(False, 40_000), (True, 20_000)])
def test_a_run_of_many_bytes_is_copied_alone(reordered: bool, most: int) -> None:
    assert max(map(copied_by_runs, drawn(runs(reordered=reordered)))) < most


def test_large_states_are_still_drawn() -> None:
    """What is left out is no situation: states of several tiles, in both layouts."""
    large: list[Callable[[Setup], bool]] = [
        lambda setup: setup.layout == "DS" and setup.is_large,
        lambda setup: any(state.nbytes > 16384 for group in setup.groups for state in group.states),
    ]
    setups = [batch.setup for batch in drawn(batches_after_forward(), 1_500)]
    assert all(any(map(one, setups)) for one in large)
