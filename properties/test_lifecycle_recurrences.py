"""The user's own criterion: greedy output with every feature on is that of one run without any."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from properties.engine.scenarios import GreedyScenario, Scenario
from properties.engine.world import World
from properties.strategies.lifecycle import with_blocks, worlds
from properties.test_align_sessions import CALLS_BY_ROW, CALLS_BY_SLOT
from properties.test_lifecycle import BUILDERS, Scenarios
from statecheck.execution.registry import prop

if TYPE_CHECKING:
    # It takes torch, which scenarios of other kinds can do without.
    from properties.engine.recurrent import Recurrent

VOCABULARY = 24
SEEDS = 8


@cache
def greedy_worlds(
    modes: tuple[str, ...], runners: tuple[str, ...]
) -> st.SearchStrategy[tuple[World, Recurrent]]:
    """Engines that run a real model, and the model."""

    def with_model(world: World, seed: int) -> tuple[World, Recurrent]:
        from properties.engine.recurrent import Recurrent

        # The builder of GDN knows no mode all.
        gdn = 0 if world.mode == "all" else 1
        recurrent = Recurrent(
            seed,
            num_spec=world.num_spec,
            block_size=world.setup.block_size,
            layout=world.setup.layout,
            gdn_layers=gdn,
            mamba2_layers=2 - gdn,
            vocabulary=VOCABULARY,
        )
        kinds = ("gdn", "mamba2") if gdn else ("mamba2",)
        return with_blocks(replace(world, setup=recurrent.setup, kinds=kinds), 2, 4), recurrent

    return st.builds(with_model, worlds(modes=modes, runners=runners), st.integers(0, SEEDS - 1))


class GreedyScenarios(Scenarios):
    """Requests of a real model."""

    modes = ("align", "none", "all")
    purposes = (
        "some drafts accepted",
        "boundary crossed by one",
        "sits a step out after several accepted",
        "prefix hit",
        "preemption",
        "resume after preemption",
    )

    def drawn_scenario(self, data: st.DataObject) -> Scenario:
        drawn = greedy_worlds(self.modes, self.runners)
        world, recurrent = data.draw(drawn, label="world and model")
        return GreedyScenario(
            replace(world, profile=self.trial.profile), self.trial.keep, recurrent=recurrent
        )

    def new_prompt(self, length: int) -> tuple[int, ...]:
        """No two beginnings are alike for long."""
        numbers = super().new_prompt(length)
        return tuple((7 * number + number // VOCABULARY) % VOCABULARY for number in numbers)


@prop("lifecycle/v1-greedy", "provenance", *BUILDERS, *CALLS_BY_ROW)
class GreedyOutputOfRequestsInRowsIsThatOfOneRun(GreedyScenarios):
    """Greedy output of requests in rows is that of one run.

    A real model's greedy output, in the V1 order with every feature on, is token by token that of a run of its own.
    """

    runners = ("V1",)


@prop("lifecycle/v2-greedy", "provenance", *BUILDERS, *CALLS_BY_SLOT)
class GreedyOutputOfRequestsInSlotsIsThatOfOneRun(GreedyScenarios):
    """Greedy output of requests in slots is that of one run.

    A real model's greedy output, in the V2 order with every feature on, is token by token that of a run of its own.
    """

    runners = ("V2",)
