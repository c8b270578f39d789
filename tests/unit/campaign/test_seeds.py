"""Parts of a campaign that repeat with its seed: docs/campaigns.md, "What repeats"."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from statecheck.campaign.plan import Plan
from statecheck.campaign.scheduler import Scheduler, first_compared
from statecheck.campaign.tasks import Explore, Explored
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.property import MachineProperty
from statecheck.execution.registry import load_properties
from statecheck.execution.selection import follows_requests
from statecheck.execution.verdict import Counts
from statecheck.subject import load
from tests.helpers.cases import a_property
from tests.unit.campaign.nightly_examples import a_state
from tests.unit.campaign.pretended import next_exploration

NAMES = ("toys/add", "toys/divide", "toys/multiply")


@dataclass(eq=False)
class Worker:
    """A worker that is only asked what it does."""

    task: Explore | None = None


@dataclass
class Played:
    """An assignment whose explorations end in turns of `workers`, each with as many examples as a machine of that speed has."""

    workers: int
    speed: int
    plan: Plan = field(default_factory=lambda: Plan("toys", budget=600.0, seed=7))
    slow: int = 0
    """Examples of the first property, where it has others."""
    engine: str = ""
    """The property whose examples are scenarios in the subject's own engine."""

    def tasks(self, count: int) -> list[Explore]:
        functions = {self.engine: ("LiveEngine",)}
        properties = [a_property(id=name, functions=functions.get(name, ("divide",))) for name in NAMES]
        state = a_state(properties)
        scheduler = Scheduler(self.plan, state)
        pool, done = [Worker() for _ in range(self.workers)], list[Explore]()
        while len(done) < count:
            for worker in pool:
                worker.task = next_exploration(scheduler, worker, pool, 0.0, 300.0)
            for worker in pool:
                assert worker.task is not None
                speed = self.slow if self.slow and worker.task.property == NAMES[0] else self.speed
                message = Explored(worker.task.property, "passed", 1.0, counts=Counts(speed, speed))
                state.explored(message, 0.0)
                scheduler.ended(worker.task, message)
                done.append(worker.task)
                worker.task = None
        return done


def seeds(played: Played, count: int = 30) -> dict[str, list[int]]:
    """The seeds of each property's explorations, in their order."""
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    for task in played.tasks(count):
        found[task.property].append(task.seed)
    return found


def test_the_first_pass_is_in_the_learned_order(monkeypatch: pytest.MonkeyPatch) -> None:
    add, divide, multiply = NAMES
    learned = [("toys/none", 1), (multiply, 1), (divide, 3), (multiply, 2)]
    monkeypatch.setattr("statecheck.campaign.scheduler.visits", lambda: learned)
    for workers in (1, 3):
        tasks = Played(workers, 6).tasks(7)[:7]
        # A property without a learned place comes last. Then rounds follow.
        assert [task.property for task in tasks[:4]] == [multiply, divide, multiply, add]
        assert [task.enough for task in tasks[:4]] == [1, 3, 2, 1]
        assert [task.simplest for task in tasks] == [False] * 4 + [True] * 3
        # Another visit has other examples.
        assert len({task.seed for task in tasks}) == 7


def test_all_written_bad_input_is_tried_in_the_first_pass() -> None:
    refusals = load_properties()["refusals/bad-input"]
    scheduler, worker = Scheduler(Plan("impl", budget=600.0, seed=7), a_state([refusals])), Worker()
    tasks = [next_exploration(scheduler, worker, [worker], 0.0, 300.0) for _ in range(8)]
    first = next(task for task in tasks if task is not None and task.simplest)
    assert first.enough == 0
    context = ExecutionContext(load("impl"), ordinary_port(load("impl"), "cpu"))
    refusals.explore(context, seed=1, max_examples=1)
    assert context.written[refusals.id] == len(refusals.written)


def test_the_first_pass_runs_the_simplest_scenario_of_a_machine() -> None:
    machines = [tested for tested in load_properties().values() if isinstance(tested, MachineProperty)]
    (alone,) = (machine for machine in machines if not follows_requests(machine))
    assert (alone.id, first_compared(alone)) == ("builder/no-stale-step", 2)
    assert {first_compared(machine) for machine in machines if machine is not alone} == {1}
    assert first_compared(alone, 3) == 4


def test_every_property_has_a_dozen_examples_before_one_has_more() -> None:
    tasks = Played(1, 6).tasks(9)
    assert [task.property for task in tasks[3:6]] == [*NAMES]
    assert {task.enough for task in tasks[3:6]} == {6}
    assert {task.enough for task in tasks[6:9]} == {18}


def test_a_property_with_few_inputs_keeps_no_other_from_its_next_dozens() -> None:
    tasks = Played(1, 6, slow=1).tasks(9)
    assert sorted(task.property for task in tasks[6:9]) == sorted(NAMES)
    assert {task.enough for task in tasks[6:9]} == {18, 28}


def test_a_property_with_few_examples_is_chosen_more_often_and_shifts_no_other_seed() -> None:
    few, plain = Played(1, 200, slow=9), Played(1, 200)
    names = [task.property for task in few.tasks(30)][len(NAMES) :]
    with_all = slice(3, 3 + len(NAMES))
    assert sorted(names[with_all]) == sorted(NAMES)
    assert [*names[:3], names[with_all.stop]] == [NAMES[0]] * 4
    first, other = seeds(few), seeds(plain)
    for name in NAMES:
        common = min(len(first[name]), len(other[name]))
        assert common > 3
        assert first[name][:common] == other[name][:common]


def test_scenarios_in_the_subject_s_own_engine_get_ten_times_as_long_as_others() -> None:
    played = Played(1, 200, engine=NAMES[1])
    last = {task.property: task.max_examples for task in played.tasks(30)}
    assert last[NAMES[1]] == 10 * last[NAMES[0]]


@pytest.mark.parametrize(("workers", "speed"), [(2, 10), (3, 10), (1, 1000)])
def test_the_nth_exploration_of_a_property_has_one_seed_with_any_workers(workers: int, speed: int) -> None:
    first, other = seeds(Played(1, 10)), seeds(Played(workers, speed))
    for name in NAMES:
        common = min(len(first[name]), len(other[name]))
        assert common > 5
        assert first[name][:common] == other[name][:common]


def ran_in_all(workers: int, budget: int, shrinking: int) -> tuple[list[tuple[str, int, int]], int]:
    """The tasks of a campaign in examples to its end, and how many ran; the first property's shrinking takes some more."""
    plan = Plan("toys", examples=budget, seed=7)
    state = a_state([a_property(id=name) for name in NAMES])
    scheduler = Scheduler(plan, state)
    pool, done = [Worker() for _ in range(workers)], list[Explore]()
    while True:
        for worker in pool:
            worker.task = next_exploration(scheduler, worker, pool, 0.0, float("inf"))
        busy = [worker for worker in pool if worker.task is not None]
        if not busy:
            messages = [(task.property, task.seed, task.max_examples) for task in done]
            return messages, state.examples
        for worker in busy:
            assert worker.task is not None
            ran = worker.task.max_examples + (shrinking if worker.task.property == NAMES[0] else 0)
            message = Explored(worker.task.property, "passed", 1.0, counts=Counts(ran, ran))
            state.explored(message, 0.0)
            scheduler.ended(worker.task, message)
            done.append(worker.task)
            worker.task = None


def test_shrinking_takes_nothing_of_what_other_properties_get_in_the_same_round() -> None:
    plain, ran = ran_in_all(1, 150, 0)
    assert sum(size for _, _, size in plain) == ran == 150
    shrunk, ran = ran_in_all(1, 150, 500)
    assert shrunk == plain[: len(NAMES)]
    assert {name for name, _, _ in shrunk} == set(NAMES)
    assert ran == 500 + sum(size for _, _, size in shrunk)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_campaign_in_examples_runs_the_same_explorations_with_any_workers(workers: int) -> None:
    assert sorted(ran_in_all(workers, 150, 70)[0]) == sorted(ran_in_all(1, 150, 70)[0])
