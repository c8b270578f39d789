"""Failing scenarios become small ones that fail for the same reason; and what a scenario is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.lifecycle.requests import Request, Stage, Wish
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from oracle.lifecycle.scheduler import Scheduler
from properties.engine import reduction
from properties.engine.driver import Engine, Sampler
from properties.engine.flaws import Flaw, Violation
from properties.engine.plainer_worlds import PLENTY, plainer_worlds, plainness
from properties.engine.recurrent import Recurrent
from properties.engine.reduction import Failing, Fails, reduced
from properties.engine.scenarios import (
    Arrive,
    EngineStep,
    Event,
    Finish,
    GreedyScenario,
    Reset,
    Scenario,
    Turn,
)
from properties.engine.world import World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.runner import POSTPROCESS_GPU, PREPROCESS
from properties.strategies.align.setup import Setup
from properties.strategies.lifecycle import turns, worlds
from properties.test_lifecycle import broken_by
from statecheck.case.values import Call, Outcome, Overwrite, Raised, Returned, Tensor
from statecheck.case.values import Step as Executed
from statecheck.execution.example import Bench, Falsified
from statecheck.execution.port import InProcess
from statecheck.execution.registry import load_properties
from subjects import load
from tests.properties.engine.test_engine import Tampered, case, nothing_copied

# Engines on paper: a scheduler, and a law that says what must not have happened.

Past = tuple[Scheduled, Mapping[str, Sequence[int]]]
"""A step, and what its requests sampled."""
Law = Callable[[World, Sequence[Past]], bool]
"""Whether the steps so far break it."""

_STATES = Kept("conv", (2, 5), "bfloat16"), Kept("temporal", (2, 3, 2), "bfloat16")
_GROUP = Group(_STATES, layers=2, lead=4, padding=8)
LAVISH = World(
    Setup((_GROUP, _GROUP), ("conv", "temporal"), 6, 2, "DS", shared=True),
    ("mamba2", "gdn"),
    num_blocks=40,
    max_num_seqs=3,
    max_model_len=40,
    full_graphs=True,
    zero_marks=True,
    schedule="reversed",
)
PLAIN_STATE = Group((Kept("temporal", (1, 1, 2)),))
FOREVER = 600.0


@dataclass(eq=False)
class OnPaper:
    """An engine that schedules and samples, and computes nothing."""

    world: World
    law: Law
    steps: int = 0
    past: list[Past] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.world.geometry)
        self.arrive, self.finish = self.scheduler.arrive, self.scheduler.finish
        self.reset = self.scheduler.reset

    def step(
        self,
        wishes: Iterable[Wish],
        sampler: Sampler,
        *,
        preempted: Collection[str] = (),
        **_: object,
    ) -> Scheduled:
        scheduled = self.scheduler.schedule(wishes, preempted)
        sampled = {row.id: list(sampler(row, ())) if row.samples else [] for row in scheduled.rows}
        self.past.append((scheduled, sampled))
        self.steps += 1
        if self.law(self.world, self.past):
            raise Violation(Flaw("the law is broken"))
        self.scheduler.commit(scheduled, sampled)
        return scheduled


@dataclass(eq=False)
class ScenarioOnPaper(Scenario):
    law: Law = field(kw_only=True)

    def make_engine(self) -> Engine:
        return cast(Engine, OnPaper(self.world, self.law))

    @property
    def past(self) -> list[Past]:
        return cast(OnPaper, self.engine).past

    @property
    def requests(self) -> dict[str, Request]:
        return self.engine.scheduler.requests


def no_outcome(_: Executed) -> Outcome | None:
    raise AssertionError("an engine on paper asks no subject")


def nothing_is_wrong(_: World, past: Sequence[Past]) -> bool:  # noqa: ARG001
    return False


def on_paper(world: World, law: Law = nothing_is_wrong) -> ScenarioOnPaper:
    return ScenarioOnPaper(world, no_outcome, law=law)


def executed(events: Iterable[Event], world: World = LAVISH) -> ScenarioOnPaper:
    """A scenario in which nothing is wrong."""
    scenario = on_paper(world)
    for event in events:
        scenario.happens(event)
    return scenario


def failing_by(law: Law) -> Fails:
    def fails(world: World, events: tuple[Event, ...]) -> Scenario | None:
        scenario = on_paper(world, law)
        return scenario if broken_by(scenario, events) else None

    return fails


def begun(law: Law, events: Iterable[Event], world: World = LAVISH) -> Failing:
    """The scenario that is to be made smaller."""
    scenario = failing_by(law)(world, tuple(events))
    assert scenario is not None
    return Failing(world, scenario, Flaw("the law is broken"))


def small(law: Law, events: Iterable[Event], world: World = LAVISH) -> Failing:
    return reduced(begun(law, events, world), failing_by(law), FOREVER)


def no_drafts_after_two(_: World, past: Sequence[Past]) -> bool:
    """Some request computes a step without drafts after it accepted two or more."""
    accepted: dict[str, int] = {}
    for step, sampled in past:
        if any(accepted.get(row.id, 0) >= 2 and not row.drafts for row in step.rows):
            return True
        accepted |= {row.id: len(sampled[row.id]) - 1 for row in step.rows}
    return False


def passes(boundary: int, world: World, past: Sequence[Past]) -> bool:  # noqa: ARG001
    """A request comes from before a boundary to behind it by accepting drafts."""
    step, sampled = past[-1]
    known = ((row, row.end - len(row.drafts)) for row in step.rows if row.drafts)
    return any(first < boundary < first + len(sampled[row.id]) for row, first in known)


def passes_twelve(world: World, past: Sequence[Past]) -> bool:
    return passes(12, world, past)


def passes_second_block(world: World, past: Sequence[Past]) -> bool:
    return passes(2 * world.block_size, world, past)


def takes_a_step(_: World, past: Sequence[Past]) -> bool:
    return bool(past[-1][0].rows)


def three_in_a_step(_: World, past: Sequence[Past]) -> bool:
    return len(past[-1][0].rows) == 3


def each_request(requests: str, turn: Turn) -> EngineStep:
    return EngineStep(tuple((request, turn) for request in requests))


HOPES, PROVES = Turn(drafts=2), Turn(drafts=2, accepted=2)
COME = (
    Arrive("x", tuple(range(100, 107))),
    Arrive("y", tuple(range(200, 205))),
    Arrive("z", (*range(100, 106), 300)),
)
LONG: tuple[Event, ...] = (
    *COME,
    *(EngineStep(order=("z", "x"), padding=1),) * 4,
    each_request("y", HOPES),
    EngineStep(preempted=("y",)),
    each_request("yz", HOPES),
    EngineStep((("x", Turn(skipped=True, blocks=1)), ("z", HOPES))),
    Reset(),
    *(EngineStep(padding=2),) * 4,
    Finish("z"),
    EngineStep(),
    *(each_request("xy", HOPES),) * 4,
    EngineStep((("x", PROVES), ("y", HOPES))),
    *(EngineStep(order=("y",)),) * 4,
)


SLOW = (Arrive("x", (1, 2, 3)), *(EngineStep(),) * 8, each_request("x", PROVES))
NEAR = (Arrive("x", tuple(range(10))), EngineStep(), EngineStep(), each_request("x", PROVES))


def steps(found: Failing) -> list[EngineStep]:
    return [event for event in found.events if isinstance(event, EngineStep)]


# What reduction leaves.


def test_of_a_long_scenario_the_few_steps_are_left_that_break_the_law() -> None:
    first = begun(no_drafts_after_two, LONG)
    assert len(first.events) >= 20
    found = reduced(first, failing_by(no_drafts_after_two), FOREVER)
    assert found.events == (Arrive("r0", (0,)), EngineStep(), EngineStep((("r0", PROVES),)), EngineStep())


def test_of_an_engine_as_little_is_left_as_there_can_be() -> None:
    world = small(no_drafts_after_two, LONG).world
    assert (world.setup.groups, world.setup.layout, world.num_spec) == ((PLAIN_STATE,), "SD", 2)
    assert (world.num_blocks, world.max_num_seqs, world.block_size) == (PLENTY, 1, 3)
    assert not any((world.full_graphs, world.pointers, world.zero_marks, world.schedule, world.setup.shared))


def test_a_scenario_far_from_its_beginning_begins_there() -> None:
    found = small(passes_twelve, SLOW)
    assert len(steps(found)) <= 3
    assert passes_twelve(found.world, cast(ScenarioOnPaper, found.scenario).past)


def test_requests_that_have_to_be_together_stay_together() -> None:
    found = small(three_in_a_step, LONG)
    assert found.events == (Arrive("r0", (0,)), Arrive("r1", (1,)), Arrive("r2", (0,)), EngineStep())
    assert found.world.max_num_seqs == 3


def again(found: Failing, law: Law) -> Scenario | None:
    return failing_by(law)(found.world, found.events)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[Event, ...]:
    """Any events, of three requests."""
    names = st.sampled_from("xyz")
    steps = st.builds(
        EngineStep,
        st.lists(st.tuples(names, turns(2)), max_size=3, unique_by=lambda one: one[0]).map(tuple),
        st.lists(names, max_size=1).map(tuple),
        st.lists(names, max_size=2, unique=True).map(tuple),
        st.integers(0, 2),
    )
    more = st.lists(steps | steps | st.builds(Finish, names) | st.just(Reset()), max_size=12)
    return (*COME, *draw(more), *(each_request("xyz", PROVES), EngineStep()) * 2)


@pytest.mark.parametrize("law", [no_drafts_after_two, passes_second_block, three_in_a_step])
@settings(max_examples=15)
@given(events=scripts())
def test_what_is_left_fails_and_is_never_bigger(law: Law, events: tuple[Event, ...]) -> None:
    scenario = failing_by(law)(LAVISH, events)
    if scenario is not None:
        first = Failing(LAVISH, scenario, Flaw("the law is broken"))
        found = reduced(first, failing_by(law), FOREVER)
        assert again(found, law) is not None
        assert found.size <= first.size


def test_a_scenario_that_is_not_smaller_is_not_taken() -> None:
    first = begun(takes_a_step, LONG[:4], World(Setup((PLAIN_STATE,), block_size=2), ("mamba2",)))
    bigger = begun(takes_a_step, (*COME, Reset(), EngineStep()), first.world).scenario
    assert reduced(first, lambda world, events: bigger, FOREVER) is first


def test_a_scenario_that_cannot_be_simpler_is_left_as_it_is() -> None:
    found = small(no_drafts_after_two, LONG)
    assert reduced(found, failing_by(no_drafts_after_two), FOREVER) is found


def test_reduction_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[World] = []

    def fails(world: World, events: tuple[Event, ...]) -> Scenario | None:
        asked.append(world)
        return failing_by(no_drafts_after_two)(world, events)

    first = begun(no_drafts_after_two, LONG)
    monkeypatch.setattr(reduction, "time", SimpleNamespace(monotonic=lambda: float(len(asked))))
    found = reduced(first, fails, 5.0)
    assert len(asked) == 6
    assert again(found, no_drafts_after_two) is not None


# Passes, one at a time.


def arrivals(found: Failing) -> list[Arrive]:
    return [event for event in found.events if isinstance(event, Arrive)]


def plainest(found: Failing) -> bool:
    return found.world.setup.groups == (PLAIN_STATE,) and plainness(found.world)[3] == 0


def shortened_prompts(found: Failing) -> bool:
    """As far before a boundary as they were."""
    return (found.world.block_size, len(arrivals(found)[0].prompt)) == (3, 4)


def relabelled(found: Failing) -> bool:
    first, second = arrivals(found)
    return (first.id, second.id, first.prompt, second.prompt) == ("r0", "r1", (0, 1), (0, 2))


TWINS = (
    Arrive("b", (50, 40)),
    Arrive("a", (50, 60)),
    EngineStep((("a", Turn(blocks=1)),), ("b",), ("b", "a")),
    each_request("ab", PROVES),
    EngineStep(),
)


@pytest.mark.parametrize(
    ("number", "law", "events", "progress"),
    [
        case("later beginnings", 0, passes_twelve, SLOW, lambda found: len(steps(found)) == 3),
        case("without events", 1, no_drafts_after_two, LONG, lambda found: len(found.events) <= 6),
        case("plainer worlds", 2, takes_a_step, LONG, plainest),
        case("smaller blocks", 3, passes_second_block, NEAR, shortened_prompts),
        case("plainer events", 4, takes_a_step, LONG, lambda found: steps(found) == [EngineStep()]),
        case("relabelled", 5, no_drafts_after_two, TWINS, relabelled),
    ],
)
def test_a_pass_makes_progress_alone(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    law: Law,
    events: tuple[Event, ...],
    progress: Callable[[Failing], bool],
) -> None:
    monkeypatch.setattr(reduction, "PASSES", (reduction.PASSES[number],))
    first = begun(law, events)
    found = reduced(first, failing_by(law), FOREVER)
    assert found.size < first.size
    assert progress(found), found.events


def positions(past: Iterable[Past]) -> list[list[tuple[str, int, int, int]]]:
    """Where each step's requests are, whatever their tokens."""
    return [[(row.id, row.computed, row.length, len(row.drafts)) for row in step.rows] for step, _ in past]


def decoding(scenario: ScenarioOnPaper) -> bool:
    return all(request.is_decoding for request in scenario.live)


@pytest.mark.parametrize("number", range(5, 12))
def test_a_later_beginning_keeps_boundaries_where_they_were(number: int) -> None:
    events: tuple[Event, ...] = (
        *COME[:2],
        *(EngineStep(),) * 3,
        *(each_request("xy", turn) for turn in (HOPES, PROVES) * 4),
    )
    assert decoding(executed(events[:number]))
    whole = executed(events)
    later = [
        positions(executed(candidate).past)
        for _, candidate in reduction._later_beginnings(Failing(LAVISH, whole, Flaw("")))
        if candidate[-(len(events) - number) :] == events[number:]
    ]
    tail = positions(whole.past)[number - 2 :]
    assert any(found[-len(tail) :] == tail for found in later)


# Engines that are plainer.


@pytest.fixture(scope="module")
def port(request: pytest.FixtureRequest) -> InProcess:
    return InProcess(load("impl"), request.getfixturevalue("trial").port.device)


@settings(max_examples=40)
@given(data=st.data(), world=worlds(modes=("none", "align", "all"), runners=("V1", "V2")))
def test_every_plainer_engine_can_be_made_and_computes(
    port: InProcess, data: st.DataObject, world: World
) -> None:
    for _ in range(data.draw(st.integers(1, 8))):
        choices = list(plainer_worlds(world))
        world = choices[data.draw(st.integers(0, len(choices) - 1))]
        port.begin()
        Engine(world, port.execute)
    scenario = Scenario(world, port.execute)
    assert broken_by(scenario, (Arrive("a", (1, 2)), EngineStep(), EngineStep())) is None


@given(world=worlds(modes=("none", "align", "all"), runners=("V1", "V2")))
def test_an_engine_can_be_made_plainer_until_it_is_as_plain_as_can_be(world: World) -> None:
    first = world
    while simpler := [one for one in plainer_worlds(world) if plainness(one) < plainness(world)]:
        world = simpler[0]
    tokens = world.max_model_len if world.mode == "none" else 2
    assert plainness(world) == (1, 1, 1, 0, 2, 0, tokens, 1, 0)
    assert (world.mode, world.runner) == (first.mode, first.runner)


# A subject that is wrong.


def forgotten(outcome: Returned, pools: Mapping[str, Overwrite]) -> Outcome:
    """The copies behind the forward were not made."""
    after = dict(outcome.after)
    for name, before in pools.items():
        assert isinstance(before.elements, bytes)
        after[name] = Tensor("uint8", (len(before.elements),), before.elements)
    return replace(outcome, after=tuple(after.items()))


@dataclass(eq=False)
class Forgetful:
    """A port whose subject does not make the copies behind the forward; it raises where there is one pool, if `raising`."""

    port: InProcess
    raising: bool = False
    pools: dict[str, Overwrite] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = self.port.device

    def begin(self) -> None:
        self.port.begin()
        self.pools.clear()

    def execute(self, step: Executed) -> Outcome | None:
        outcome = self.port.execute(step)
        if isinstance(step, Overwrite) and step.name.startswith("pool"):
            self.pools[step.name] = step
        if (
            not isinstance(step, Call)
            or step.function != POSTPROCESS_GPU
            or not isinstance(outcome, Returned)
        ):
            return outcome
        if self.raising and len(self.pools) < 2:
            return Raised("ValueError", "no")
        for before in self.pools.values():
            self.port.execute(before)
        return forgotten(outcome, self.pools)

    def waiting_refused(self) -> Any:
        return self.port.waiting_refused()


IN_ROWS = "requests_in_rows_read_the_state_of_their_tokens"
DRAWN_OUT: tuple[Event, ...] = (
    *COME,
    EngineStep(order=("z", "x"), padding=1),
    EngineStep(),
    EngineStep((("y", HOPES), ("x", Turn(skipped=True)))),
    EngineStep(preempted=("z",)),
    *(EngineStep(order=("y",), padding=1),) * 4,
    Reset(),
    *(EngineStep(),) * 3,
    Finish("z"),
    *(EngineStep(padding=2),) * 4,
    *(each_request("xy", PROVES),) * 4,
)


def reported(
    port: InProcess, *, raising: bool = False, world: World = LAVISH, events: tuple[Event, ...] = DRAWN_OUT
) -> tuple[Failing, Falsified]:
    """A long scenario of a subject that forgets, and what the machine makes of it."""
    forgetful = Forgetful(port, raising)
    forgetful.begin()
    scenario = Scenario(world, forgetful.execute)
    violation = broken_by(scenario, events)
    assert violation is not None
    tested: Any = load_properties()[IN_ROWS]
    with pytest.raises(Falsified) as caught:
        tested.machine.reduce(
            Bench(port.subject, forgetful), tested, Failing(world, scenario, violation.flaw)
        )
    return Failing(world, scenario, violation.flaw), caught.value


@pytest.fixture(scope="module")
def forgot(port: InProcess) -> tuple[Failing, Failing, Falsified]:
    """The scenario before, the scenario after, and what is reported."""
    first, falsified = reported(port)
    assert isinstance(falsified.origin, Failing)
    return first, falsified.origin, falsified


Forgot = tuple[Failing, Failing, Falsified]


def test_a_forgotten_copy_is_shown_by_a_request_that_accepts_across_a_boundary(forgot: Forgot) -> None:
    first, found, _ = forgot
    assert len(first.events) >= 20
    assert found.events == (
        Arrive("r0", (0,)),
        EngineStep(),
        EngineStep((("r0", Turn(drafts=1, accepted=1)),)),
    )


def test_a_forgotten_copy_is_shown_by_an_engine_with_one_small_state(forgot: Forgot) -> None:
    world = forgot[1].world
    assert (world.setup.groups, world.num_spec, world.block_size) == ((PLAIN_STATE,), 1, 2)
    assert plainness(world)[3] == 0


def test_what_is_reported_is_the_smaller_scenario_with_its_picture(forgot: Forgot) -> None:
    _, found, falsified = forgot
    timeline = falsified.case.timeline
    assert timeline is not None
    assert timeline.finding is not None
    assert timeline.finding.text == falsified.case.message == found.flaw.message
    assert timeline.moments[-1].title == "step 1, after it: r0 accepts 2"


FEW = (Arrive("r0", (0,)), EngineStep(), EngineStep((("r0", Turn(drafts=1, accepted=1)),)))
TWO_GROUPS = World(
    Setup((PLAIN_STATE, PLAIN_STATE), block_size=2, num_spec=1), ("gdn", "gdn"), max_num_seqs=1
)


@pytest.mark.parametrize(("raising", "groups"), [(False, 1), (True, 2)])
def test_a_subject_that_raises_is_not_taken_for_one_that_forgets(
    port: InProcess, raising: bool, groups: int
) -> None:
    _, falsified = reported(port, raising=raising, world=TWO_GROUPS, events=FEW)
    assert isinstance(falsified.origin, Failing)
    assert not falsified.origin.flaw.raised
    assert len(falsified.origin.world.setup.groups) == groups


def test_a_subject_that_forgets_is_not_taken_for_one_that_raises(port: InProcess) -> None:
    world = replace(TWO_GROUPS, setup=replace(TWO_GROUPS.setup, groups=(PLAIN_STATE,)), kinds=("gdn",))
    _, falsified = reported(port, raising=True, world=replace(world, zero_marks=True), events=FEW)
    assert isinstance(falsified.origin, Failing)
    assert falsified.origin.flaw.raised
    assert falsified.case.message == f"in step 0, {POSTPROCESS_GPU} raised ValueError: no"


# Scenarios.


@settings(max_examples=60)
@given(data=st.data(), world=worlds(modes=("none", "align", "all"), runners=("V1", "V2")))
def test_new_requests_with_the_prompts_of_a_moment_are_soon_where_it_found_the_old(
    data: st.DataObject, world: World
) -> None:
    more = data.draw(st.lists(st.builds(each_request, st.just("xyz"), turns(3)), max_size=8))
    for computed, prompt in decoded(world, (*COME, EngineStep(), *more, EngineStep())):
        assert len(prompt) == computed
        assert reached(world, prompt) == computed


def decoded(world: World, events: Iterable[Event]) -> list[tuple[int, tuple[int, ...]]]:
    """Before each event, the computed count of each decoding request, and the prompt to bring a new one there."""
    scenario, found = on_paper(world), []
    for event in events:
        computed = {request.id: request.computed for request in scenario.live if request.is_decoding}
        scenario.happens(event)
        found += [(count, scenario.prompts[-1][request]) for request, count in computed.items()]
    return found


def reached(world: World, prompt: tuple[int, ...]) -> int:
    """What a new request has computed when it begins to decode; -1 if that takes more than two steps."""
    scenario = on_paper(replace(world, max_model_len=world.max_model_len + 8))
    scenario.happens(Arrive("r0", prompt))
    for _ in range(2):
        scenario.happens(EngineStep())
        if scenario.requests["r0"].is_decoding:
            return scenario.requests["r0"].computed
    return -1


def test_what_happens_to_a_request_that_has_ended_does_not() -> None:
    scenario = executed((*COME, EngineStep(), Finish("x")))
    tokens = list(scenario.requests["x"].tokens)
    for event in (Finish("x"), EngineStep((("x", PROVES),), ("x",), ("x",)), Finish("x"), Finish("unknown")):
        scenario.happens(event)
    assert (scenario.requests["x"].stage, scenario.requests["x"].tokens) == (Stage.FINISHED, tokens)
    assert [request.id for request in scenario.live] == ["y", "z"]
    assert len(scenario.events) == len(scenario.prompts) == 9


def test_a_request_that_is_as_long_as_it_may_get_ends_by_itself() -> None:
    scenario = executed((*COME[:1], *(each_request("x", PROVES),) * 30))
    assert scenario.requests["x"].stage is Stage.FINISHED
    assert LAVISH.max_model_len - 2 <= len(scenario.requests["x"].tokens) <= LAVISH.max_model_len


def test_a_prompt_leaves_room_for_a_token_and_its_drafts() -> None:
    scenario = executed((Arrive("x", tuple(range(100))), *(EngineStep(),) * 3))
    assert scenario.requests["x"].num_prompt == LAVISH.max_model_len - 4
    assert len(scenario.requests["x"].tokens) > scenario.requests["x"].num_prompt


# Real models.


RECURRENT = Recurrent(1, num_spec=2, block_size=4, layout="SD", gdn_layers=1, mamba2_layers=1, vocabulary=24)
REAL = World(RECURRENT.setup, ("gdn", "mamba2"), num_blocks=40, max_num_seqs=3, max_model_len=40)
SPOKEN: tuple[Event, ...] = (
    Arrive("x", (1, 2, 3, 4, 5, 6)),
    Arrive("y", (7, 5, 3)),
    *(EngineStep(),) * 2,
    *(each_request("xy", PROVES), each_request("x", HOPES), each_request("y", Turn(drafts=2, accepted=1)))
    * 2,
    EngineStep(preempted=("x",)),
    *(each_request("xy", PROVES),) * 2,
)


def greedy(
    port: InProcess, execute: Callable[[Executed], Outcome | None], world: World = REAL
) -> GreedyScenario:
    port.begin()
    return GreedyScenario(world, execute, recurrent=RECURRENT)


def spoken(scenario: Scenario, request: str) -> list[int]:
    known = scenario.engine.scheduler.requests[request]
    return known.tokens[known.num_prompt :]


def test_a_state_that_was_not_precopied_shows_in_the_text(port: InProcess) -> None:
    scenario = greedy(port, Tampered(port.execute, PREPROCESS, 1, nothing_copied()))
    violation = broken_by(scenario, SPOKEN)
    assert violation is not None
    one_run = RECURRENT.generate((1, 2, 3, 4, 5, 6), 1)
    assert str(violation) == (
        f"after step 1, what x says after 6 tokens = {spoken(scenario, 'x')[0]}, but should be {one_run[0]}, "
        "as in one run without batches, chunks, drafts and caches"
    )
    timeline = scenario.engine.story.timeline(violation.flaw)
    assert timeline.finding is not None
    moment, request, group, column = timeline.finding.spot
    (row,) = [one for one in timeline.moments[moment].rows if (one.request, one.group) == (request, group)]
    assert timeline.moments[moment].title.startswith("step 1, before the forward")
    assert (request, row.cells[column].expected) == ("x", "4 tokens x")
    assert timeline.finding.text.endswith(str(violation))
    assert False in {arrow.arrived for arrow in timeline.arrows if arrow.moment == moment}
    before = [cell for one in timeline.moments[:moment] for row in one.rows for cell in row.cells]
    assert [cell for cell in before if cell.wrong] == []


def test_a_real_model_keeps_its_setup(port: InProcess) -> None:
    tested: Any = load_properties()["greedy_output_of_requests_in_rows_is_that_of_one_run"]
    scenario = greedy(port, port.execute)
    taken = [tested.machine.again(scenario, world, port.execute) for world in plainer_worlds(REAL)]
    kept = [one for one in taken if one is not None]
    assert 0 < len(kept) < len(taken)
    assert all(one.world.setup == REAL.setup and one.recurrent is RECURRENT for one in kept)
