"""Actions of a scenario by itself: requests end that are as long as they may get, and a real model's text is held to one run's."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings

from oracle.lifecycle.requests import Stage
from properties.engine.driver import Engine
from properties.engine.flaws import Violation
from properties.engine.recurrent import Recurrent
from properties.engine.scenarios import GreedyScenario, Scenario, Turn
from properties.engine.world import World
from properties.strategies.align.runner import PREPROCESS
from statecheck.execution.example import ExecutionContext
from statecheck.execution.in_process import InProcess
from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import load_properties
from statecheck.execution.run import Run
from subjects import load
from tests.unit.properties.engine.driven import Tampered, nothing_copied, world

PROVES = Turn(drafts=2, accepted=2)
LONGEST = world(max_model_len=40)


@pytest.fixture
def port(trial: ExecutionContext) -> InProcess:
    return InProcess(load("impl"), trial.port.device)


def stepped(port: InProcess, prompt: Iterable[int], turn: Turn, steps: int) -> Scenario:
    scenario = Scenario(LONGEST, port.execute)
    scenario.arrive("x", tuple(prompt))
    for _ in range(steps):
        scenario.step({"x": turn})
    return scenario


def test_a_request_that_is_as_long_as_it_may_get_ends_by_itself(port: InProcess) -> None:
    request = stepped(port, range(7), PROVES, 30).engine.scheduler.requests["x"]
    assert request.stage is Stage.FINISHED
    assert 38 <= len(request.tokens) <= 40


def test_a_prompt_leaves_room_for_a_token_and_its_drafts(port: InProcess) -> None:
    request = stepped(port, range(100), Turn(), 3).engine.scheduler.requests["x"]
    assert request.num_prompt == 36
    assert len(request.tokens) > request.num_prompt


def test_a_state_that_was_not_precopied_shows_in_the_text(port: InProcess) -> None:
    recurrent = Recurrent(
        1, num_spec=2, block_size=4, layout="SD", gdn_layers=1, mamba2_layers=1, vocabulary=24
    )
    real = World(recurrent.setup, ("gdn", "mamba2"), num_blocks=40, max_num_seqs=3, max_model_len=40)
    tampered = Tampered(port.execute, PREPROCESS, 1, nothing_copied())
    scenario = GreedyScenario(real, tampered, recurrent=recurrent)
    scenario.arrive("x", (1, 2, 3, 4, 5, 6))
    scenario.arrive("y", (7, 5, 3))
    scenario.step({})
    with pytest.raises(Violation) as caught:
        scenario.step({})
    request = scenario.engine.scheduler.requests["x"]
    said, one_run = request.tokens[request.num_prompt], [next(recurrent.continued((1, 2, 3, 4, 5, 6)))]
    assert str(caught.value) == (
        f"after step 1, what x says after 6 tokens = {said}, but should be {one_run[0]}, "
        "as in one run without batches, chunks, drafts and caches"
    )
    timeline = scenario.engine.story.timeline(caught.value.flaw)
    assert timeline.finding is not None
    moment, name, group, column = timeline.finding.spot
    (row,) = [
        shown for shown in timeline.moments[moment].rows if (shown.request, shown.group) == (name, group)
    ]
    assert timeline.moments[moment].title.startswith("step 1, before the forward")
    assert (name, row.cells[column].expected) == ("x", "4 tokens x")
    assert timeline.finding.text.endswith(str(caught.value))
    before = [cell for earlier in timeline.moments[:moment] for row in earlier.rows for cell in row.cells]
    assert [cell for cell in before if cell.wrong] == []


def objects_of(kind: type) -> int:
    """How many objects of this class there are."""
    return sum(type(found) is kind for found in gc.get_objects())


@contextmanager
def no_collection() -> Iterator[None]:
    """Objects in cycles are not freed meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [Engine, Run])
@pytest.mark.slow
def test_a_scenario_is_freed_when_it_ends(trial: ExecutionContext, kind: type) -> None:
    tested = load_properties()["lifecycle/v2-provenance"]
    assert isinstance(tested, MachineProperty)
    with no_collection():
        before = objects_of(kind)
        tested.run(trial, settings(max_examples=3, database=None, **tested.own_settings), 1)
        assert objects_of(kind) - before <= 1
    assert trial.counts.examples >= 3
