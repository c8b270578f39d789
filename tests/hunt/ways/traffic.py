"""Random timed traffic through the simulated engine, and a comparison of outputs, as greybox fuzzers of engines do.

Requests of random lengths arrive at random times, some with the beginning of an earlier prompt; the engine batches, chunks,
drafts, caches and preempts them as it does. Each request's output is compared with its output alone, through a new engine of the
same configuration. No law is asked: no state is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from oracle.lifecycle.requests import Request
from properties.engine.flaws import Violation
from properties.engine.scenarios import GreedyScenario, Turn
from properties.engine.world import World
from properties.strategies.lifecycle import with_blocks

if TYPE_CHECKING:
    from properties.engine.recurrent import Recurrent
    from properties.engine.worker import Execute

VOCABULARY = 24
STEPS = 400
"""Of one run of traffic, at most."""


class Observed(GreedyScenario):
    """Requests of a real model, at whose output alone is looked."""

    def look(self) -> None:
        """Nothing is known in a step that could be compared."""


@dataclass(frozen=True)
class Sent:
    """A request: the step in which it arrives, its prompt, and how many tokens it asks for."""

    arrival: int
    prompt: tuple[int, ...]
    tokens: int


@dataclass(frozen=True)
class Run:
    """Traffic for an engine of a model. `seed`: of what drafts and chunks depend on."""

    world: World
    recurrent: Recurrent
    requests: tuple[Sent, ...]
    seed: int


def drawn(r: Random) -> Run:
    """A configuration of an engine, and traffic for it."""
    from properties.engine.recurrent import Recurrent

    mode, runner = r.choice(("align", "align", "none", "all")), r.choice(("V1", "V2"))
    spec = 0 if mode == "all" else r.randint(0, 3)
    block_size = r.randint(max(2, 1 + spec), 8)
    gdn = 0 if mode == "all" else 1
    recurrent = Recurrent(
        r.randint(0, 2**31),
        num_spec=spec,
        block_size=block_size,
        layout=r.choice(("SD", "DS")),
        gdn_layers=gdn,
        mamba2_layers=2 - gdn,
        vocabulary=VOCABULARY,
    )
    world = World(
        recurrent.setup,
        ("gdn", "mamba2") if gdn else ("mamba2",),
        mode,
        runner,
        max_num_seqs=r.randint(2, 4),
        max_model_len=r.choice((24, 32, 48)),
        full_graphs=r.choice((True, False)),
    )
    return Run(
        with_blocks(world, r.randint(1, 4), r.randint(0, 8)), recurrent, _traffic(r), r.randint(0, 2**31)
    )


def _traffic(r: Random) -> tuple[Sent, ...]:
    """Requests whose arrivals are a Poisson process, one in two steps on average."""
    sent: list[Sent] = []
    at = 0.0
    for _ in range(r.randint(2, 8)):
        at += r.expovariate(0.5)
        own = tuple(r.randrange(VOCABULARY) for _ in range(r.randint(1, 16)))
        before = r.choice(sent).prompt if sent and r.random() < 0.5 else ()
        sent.append(Sent(int(at), (*before, *own)[:30], r.randint(1, 16)))
    return tuple(sent)


def outputs(run: Run, requests: Sequence[tuple[str, Sent]], execute: Execute) -> dict[str, tuple[int, ...]]:
    """What the engine says to these requests, by name.

    Raises:
        Violation: the engine stops at metadata that no kernel can follow, or at an exception.
    """
    scenario = Observed(run.world, execute, recurrent=run.recurrent)
    r, said, wanted = Random(run.seed), dict[str, tuple[int, ...]](), dict(requests)
    waiting = sorted(requests, key=lambda one: one[1].arrival)
    first = min((one.arrival for _, one in requests), default=0)
    for number in range(first, first + STEPS):
        while waiting and waiting[0][1].arrival <= number:
            name, sent = waiting.pop(0)
            scenario.arrive(name, sent.prompt)
        for request in scenario.live:
            if len(_said(request)) >= wanted[request.id].tokens:
                scenario.engine.finish(request.id)
        if not waiting and not scenario.live:
            break
        scenario.step({request.id: _turn(r, run.world.num_spec) for request in scenario.live})
        for request in scenario.engine.scheduler.requests.values():
            said[request.id] = _said(request)[: wanted[request.id].tokens]
    return said


def _turn(r: Random, spec: int) -> Turn:
    """A chunk of a prompt, or drafts of a drafter that is right about some of them."""
    return Turn(blocks=r.choice((1, 2, 32)), drafts=r.randint(0, spec), accepted=r.randint(0, spec))


def _said(request: Request) -> tuple[int, ...]:
    return tuple(request.tokens[request.num_prompt :])


def differs(run: Run, execute: Execute) -> str:
    """What is wrong with a run of traffic, "" where nothing is seen."""
    named = [(f"r{number}", sent) for number, sent in enumerate(run.requests)]
    try:
        together = outputs(run, named, execute)
        for name, sent in named:
            alone = outputs(run, [(name, sent)], execute).get(name, ())
            shared = together.get(name, ())
            length = min(len(alone), len(shared))
            if alone[:length] != shared[:length]:
                return f"{name} = {shared} in traffic, but {alone} alone"
    except Violation as error:
        return str(error)
    return ""
