"""Campaigns whose workers only pretend: threads that speak the messages of `tasks`, so that nothing is imported anew."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from statecheck.campaign import coordinator, pool
from statecheck.campaign.coordinator import Watch
from statecheck.campaign.plan import Plan
from statecheck.campaign.pool import Gpu, WorkerHandle
from statecheck.campaign.record import CampaignRecord, CorpusRecord
from statecheck.campaign.scheduler import Scheduler
from statecheck.campaign.tasks import (
    CanaryResult,
    ExamplesRun,
    Explore,
    Explored,
    Found,
    Replay,
    Replayed,
    RunCanary,
    Setting,
    WorkerReady,
)
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.util.files import in_file_name
from statecheck.workers.forkserver import CoreWaits
from tests.helpers.cases import a_case
from tests.helpers.faulty import EXACT, PADDED, ROUNDS_UP

COMMIT = "0123456789ab"
LONGEST = 20.0
_PIDS = itertools.count(10_000_000)
_FOUND = CanaryResult("found")


def next_exploration(
    scheduler: Scheduler, worker: Any, workers: Sequence[Any], at: float, left: float
) -> Explore | None:
    """The scheduler's next task where there is nothing to replay and no canary to run."""
    task = scheduler.next(worker, workers, at, left)
    assert task is None or isinstance(task, Explore)
    return task


class Died(Exception):
    """The worker's process ends here."""


@dataclass
class Actor:
    """A pretended worker, as its part in an exploration sees it."""

    setting: Setting
    pipe: Connection
    pid: int
    exitcode: int | None = None
    dismissed: threading.Event = field(default_factory=threading.Event)

    def say(self, *messages: Any) -> None:
        for message in messages:
            self.pipe.send(message)

    def passes(self, task: Explore, examples: int = 10, **changes: Any) -> None:
        """So many examples, all of them compared."""
        self.say(
            ExamplesRun(task.property, examples, examples), Explored(task.property, "passed", 0.02, **changes)
        )

    def leave(self, name: str, case: Case) -> Path:
        """A failing input that is in hand."""
        return case.save(
            Path(self.setting.pending) / f"{in_file_name(name)}.{bucket_of(case).id}.{self.pid}.json"
        )

    def hang(self) -> NoReturn:
        """Send no further message."""
        self.dismissed.wait(LONGEST)
        raise Died

    def die(self, code: int = 7) -> NoReturn:
        self.exitcode = code
        raise Died


Body = Callable[[Explore, Actor], None]
Replaying = Callable[[Replay, Actor], None]


def is_fixed(task: Replay, actor: Actor) -> None:
    """A case of the corpus is answered by the rules."""
    actor.say(Replayed(CorpusRecord(Path(task.path).name, "FIXED", "")))


class _Process:
    """In place of a worker's process, a thread."""

    def __init__(self, body: Body, actor: Actor, canary: CanaryResult | None, replay: Replaying) -> None:
        """`canary`: None where that ends the process."""
        self._body, self._actor, self._canary, self.pid = body, actor, canary, actor.pid
        self._replay = replay
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    @property
    def exitcode(self) -> int | None:
        return self._actor.exitcode

    def core_waits(self) -> CoreWaits:
        return CoreWaits(self.pid, proc=Path("/none"))

    def _live(self) -> None:
        actor = self._actor
        with suppress(EOFError, OSError, Died):
            actor.say(WorkerReady())
            while (task := actor.pipe.recv()) is not None:
                if isinstance(task, RunCanary) and self._canary is None:
                    actor.die()
                elif isinstance(task, RunCanary):
                    actor.say(self._canary)
                elif isinstance(task, Replay):
                    self._replay(task, actor)
                else:
                    self._body(task, actor)
        actor.pipe.close()

    def is_alive(self) -> bool:
        return not self._actor.dismissed.is_set() and self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        if not self._actor.dismissed.is_set():
            self._thread.join(timeout)

    def kill(self) -> None:
        if self._actor.exitcode is None:
            self._actor.exitcode = -9
        self._actor.dismissed.set()


@contextmanager
def stage(
    body: Body,
    *,
    grace: float = 0.5,
    canary: CanaryResult = _FOUND,
    lost_canaries: int = 0,
    replay: Replaying = is_fixed,
) -> Iterator[list[Explore]]:
    """While it is entered, workers of campaigns only pretend; the explorations that they were given, in order.

    Args:
        canary: what a worker sends of it.
        lost_canaries: how many workers die of it before.
        replay: what becomes of a case of the corpus.
    """
    given: list[Explore] = []
    canaries = itertools.chain(itertools.repeat(None, lost_canaries), itertools.repeat(canary))

    def noted(task: Explore, actor: Actor) -> None:
        given.append(task)
        body(task, actor)

    def spawn_worker(setting: Setting, gpu: Gpu) -> WorkerHandle:
        ours, theirs = multiprocessing.Pipe()
        process = _Process(noted, Actor(setting, theirs, next(_PIDS)), next(canaries), replay)
        return WorkerHandle(process, ours, gpu, isolated=setting.in_worker)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "spawn_worker", spawn_worker)
        patch.setattr(coordinator, "GRACE_SECONDS", grace)
        yield given


def pretended(
    folder: Path,
    body: Body,
    watch: Watch | None = None,
    *,
    grace: float = 0.5,
    canary: CanaryResult = _FOUND,
    replay: Replaying = is_fixed,
    lost_canaries: int = 0,
    **changes: Any,
) -> tuple[CampaignRecord, list[Explore]]:
    """A campaign of workers that only pretend, of three properties, and what they were given to explore."""
    plan = Plan("pretended", only=f"{EXACT} or {ROUNDS_UP} or {PADDED}", commit=COMMIT)
    places: dict[str, Any] = {"reports": str(folder / "reports"), "corpus": str(folder / "corpus")}
    with stage(body, grace=grace, canary=canary, lost_canaries=lost_canaries, replay=replay) as given:
        return coordinator.run(replace(plan, **places, **changes), watch), given


def passes(task: Explore, actor: Actor) -> None:
    """Pass with as many examples as the task allows."""
    actor.passes(task, task.max_examples)


def falsifies(task: Explore, actor: Actor) -> None:
    """Finds something in `EXACT`, and nothing elsewhere."""
    if task.property != EXACT or task.known:
        actor.passes(task)
        return
    actor.say(ExamplesRun(EXACT, 5, 5), found_in(task))


def found_in(task: Explore, *cases: Case, status: str = "falsified", **changes: Any) -> Explored:
    """The end of an exploration that has found cases, or one without any."""
    met = cases or (a_case(property_id=task.property, subject="impl"),)
    found = tuple(Found((bucket_of(case).id,), case.to_data(), "", "", "") for case in met)
    failing = {bucket_of(case).id: 1 for case in met}
    return Explored(task.property, status, 0.1, met[0].message, found=found, failing=failing, **changes)
