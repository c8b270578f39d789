"""Conformance profiles: which properties they have, and that nothing about their examples depends on time."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from statecheck.campaign import scheduler
from statecheck.campaign.conformance import profile_of, profiles
from statecheck.campaign.plan import Plan
from statecheck.campaign.scheduler import Scheduler
from statecheck.campaign.state import CampaignState
from statecheck.execution.registry import load_properties
from tests.unit.campaign.nightly_examples import a_state
from tests.unit.campaign.pretended import next_exploration

NAMES = ("split/partition", "copy-meta/memmove", "varlen-chunks/ends")
EXAMPLES = {name: 10 + at for at, name in enumerate(NAMES)}


def schedule(seed: int = 1) -> tuple[Scheduler, CampaignState]:
    tested = [property_ for property_ in load_properties().values() if property_.id in EXAMPLES]
    state = a_state(tested)
    return Scheduler(Plan("fixed", profile="functions", seed=seed), state, examples=EXAMPLES), state


def explored(seed: int = 1) -> list[Any]:
    given, _ = schedule(seed)
    worker = cast(Any, SimpleNamespace())
    found = []
    while (task := next_exploration(given, worker, [worker], 0.0, float("inf"))) is not None:
        found.append(task)
    return found


def test_each_property_is_in_one_profile() -> None:
    listed = Counter(
        name for profile in profiles().values() for each in profile.sets for name in each.properties
    )
    assert {name for name, times in listed.items() if times > 1} == set()
    assert set(listed) == set(load_properties())


@pytest.mark.parametrize(("isolated", "examples"), [(True, 16), (False, 128)])
def test_a_port_without_processes_of_its_own_has_more_examples(isolated: bool, examples: int) -> None:
    """A save that returns a live view takes more than 16 examples to be found, and fewer than 128."""
    subject = cast(Any, SimpleNamespace(sequences=SimpleNamespace(isolated=isolated)))
    assert profile_of("sequences").examples(subject)["sequences/pieces"] == examples


def test_a_profile_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ValueError, match="profile = 'kernels', but should be one of functions, engines, sequences"
    ):
        profile_of("kernels")


def test_each_property_is_explored_once_with_its_number_of_examples() -> None:
    tested = load_properties()
    assert sorted((tested[task.property].id, task.max_examples) for task in explored()) == sorted(
        EXAMPLES.items()
    )


def test_failing_inputs_are_reported_as_found_once_many_properties_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "MANY", 2)
    given, state = schedule()
    worker = cast(Any, SimpleNamespace())
    as_found = []
    while (task := next_exploration(given, worker, [worker], 0.0, float("inf"))) is not None:
        as_found.append(task.as_found)
        state.property_states[task.property].buckets.add("a bucket")
    assert as_found == [False, False, True]


def test_the_examples_of_a_profile_follow_from_its_seed() -> None:
    assert explored(1) == explored(1)
    assert [task.seed for task in explored(1)] != [task.seed for task in explored(2)]


def test_an_exploration_that_was_lost_is_done_again_in_a_process_of_its_own() -> None:
    given, state = schedule()
    worker = cast(Any, SimpleNamespace())
    task = next_exploration(given, worker, [worker], 0.0, float("inf"))
    assert task is not None
    state.property_states[task.property].deaths = 1
    given.again(task)
    again = next_exploration(given, worker, [worker], 0.0, float("inf"))
    assert again is not None
    assert (again.property, again.seed, again.isolated) == (task.property, task.seed, True)


def test_a_property_that_was_given_up_is_not_explored_again() -> None:
    given, state = schedule()
    worker = cast(Any, SimpleNamespace())
    task = next_exploration(given, worker, [worker], 0.0, float("inf"))
    assert task is not None
    state.property_states[task.property].give_up("it ends its worker")
    given.again(task)
    rest = [next_exploration(given, worker, [worker], 0.0, float("inf")) for _ in range(3)]
    assert [task_.property for task_ in rest if task_ is not None].count(task.property) == 0
