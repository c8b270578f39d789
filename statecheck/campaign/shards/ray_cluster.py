"""A campaign on a Ray cluster, whose machines may come and go.

The work is cut into units. On each GPU, or on each machine where none is asked for, sits one actor that does a unit at a
time; the head gives out units, takes in their records, and saves each new bucket at once. What was on a machine that is lost
is done again elsewhere, and gives the same, because a unit's examples depend on the plan alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.shards.keeper import Keeper, write_down
from statecheck.campaign.shards.merge import Part, added
from statecheck.campaign.shards.ray_actors import Cluster, Mailbox, Run, UnitActor, imported, join
from statecheck.campaign.shards.units import Cut, UnitQueue
from statecheck.execution.verdict import Status

_LOOK_SECONDS = 1.0
_REFUSALS = 3
_ANSWER_SECONDS = 10.0


def run_on_ray(
    plan: Plan,
    cluster: Cluster,
    *,
    cut: Cut | None = None,
    run: Run | None = None,
    watch: Callable[[CampaignRecord], None] | None = None,
) -> CampaignRecord:
    """Run the campaign on the cluster to its end, or to Ctrl-C; write its corpus and its reports here.

    Args:
        plan: `engines` are those of each unit; Ray says which GPUs there are.
        cut: how large units are.
        run: does a unit where it is called.
        watch: called with what is known after each unit.

    Raises:
        ValueError: Ray is not installed, no cluster at the address, or a plan without a budget.
    """
    ray = imported()
    head = _Head(ray, plan, cluster, cut or Cut(), run or _campaign(), watch)
    join(ray, cluster)
    try:
        record = head.run()
    finally:
        ray.shutdown()
    return write_down(record, Path(plan.reports), head.keeper)


def _campaign() -> Run:
    from statecheck.campaign.coordinator import run

    def unit(plan: Plan, watch: Callable[[CampaignRecord], None] | None) -> CampaignRecord:
        return run(plan, None if watch is None else lambda campaign: watch(campaign.current()))

    return unit


@dataclass
class _ActorHandle:
    """An actor on a node: its answer that is waited for, and the unit that it does."""

    node: str
    actor: Any
    answer: Any
    unit: int | None = None
    since: float = 0.0
    ready: bool = False


class _Head:
    def __init__(
        self,
        ray: Any,
        plan: Plan,
        cluster: Cluster,
        cut: Cut,
        run: Run,
        watch: Callable[[CampaignRecord], None] | None,
    ) -> None:
        self._ray, self._plan, self._cluster, self._run, self._watch = ray, plan, cluster, run, watch
        self.work = UnitQueue(plan, cut)
        self.keeper = Keeper(Path(plan.corpus), Path(plan.reports), plan.subject)
        self._corpus = frozenset(path.name for path in Path(plan.corpus).glob("*.json"))
        self._actors: list[_ActorHandle] = []
        self._parts: dict[int, Part] = {}
        self._unfinished: dict[int, Part] = {}
        self._refused: Counter[str] = Counter()
        self._nodes: set[str] = set()
        self._troubles: list[str] = []
        self._interrupted = self._under_way = False
        self._looked = float("-inf")

    @property
    def _passed(self) -> float:
        """Of the budget: nothing until a machine was ready for the first time."""
        return time.monotonic() - self._began if self._under_way else 0.0

    def run(self) -> CampaignRecord:
        """Until the work is over; what is in hand at Ctrl-C is left."""
        self._began = self._served = time.monotonic()
        try:
            self._mailbox = self._on(Mailbox, self._ray.get_runtime_context().get_node_id())
            while not self.work.over(self._passed) and self._patient():
                self._step()
        except KeyboardInterrupt:
            self._interrupted = True
        except Exception as error:
            # The cluster may be gone; what came from it until then is worth a report.
            self._troubles.append(f"the cluster ended the campaign: {_brief(error)}")
        self._read_mailbox()
        for handle in self._actors:
            self._stop(handle)
        return self._record()

    def _patient(self) -> bool:
        if any(handle.ready for handle in self._actors):
            self._served = time.monotonic()
        if time.monotonic() - self._served < self._cluster.patience:
            return True
        self._troubles.append(f"no machine could do a unit for {self._cluster.patience:g} s")
        return False

    def _step(self) -> None:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._start_actors()
            self._read_mailbox()
        for handle in self._actors:
            if handle.answer is None and (unit := self.work.next(self._passed)) is not None:
                handle.unit, handle.since = unit.unit, self._passed
                handle.answer = handle.actor.do.remote(unit)
        waiting = {handle.answer: handle for handle in self._actors if handle.answer is not None}
        if not waiting:
            time.sleep(_LOOK_SECONDS)
            return
        answered, _ = self._ray.wait(list(waiting), timeout=_LOOK_SECONDS)
        for answer in answered:
            self._receive(waiting[answer])

    def _start_actors(self) -> None:
        """One for each GPU, or for each machine, of those that are there by now."""
        for node in self._ray.nodes():
            name = node["NodeID"]
            taken = sum(handle.node == name for handle in self._actors)
            if node["Alive"] and self._refused[name] < _REFUSALS:
                for _ in range(taken, self._places(node["Resources"])):
                    self._nodes.add(name)
                    self._actors.append(self._start_actor(name))

    def _places(self, resources: dict[str, float]) -> int:
        if self._plan.device == "cuda":
            return int(resources.get("GPU", 0))
        return int(resources.get("CPU", 0) >= 1)

    def _start_actor(self, node: str) -> _ActorHandle:
        on_gpu = self._plan.device == "cuda"
        uses = {"num_gpus": 1, "num_cpus": 0} if on_gpu else {"num_cpus": 1}
        shared, corpus = self._cluster.shared, self._corpus
        actor = self._on(UnitActor, node, self._run, self._mailbox, shared, corpus, **uses)
        return _ActorHandle(node, actor, actor.ready.remote())

    def _on(self, kind: type, node: str, *arguments: Any, **uses: float) -> Any:
        """An actor on that node and no other."""
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        chosen = {"num_cpus": 0, **uses, "scheduling_strategy": affinity(node, soft=False)}
        return self._ray.remote(kind).options(**chosen).remote(*arguments)

    def _receive(self, handle: _ActorHandle) -> None:
        answer, handle.answer = handle.answer, None
        try:
            text = self._ray.get(answer)
            record = None if handle.unit is None else CampaignRecord.from_json(text)
        except Exception as error:
            self._lose(handle, _brief(error))
            return
        if not self._under_way:
            self._under_way, self._began = True, time.monotonic()
        handle.ready = True
        if record is not None:
            self._take(handle, record)

    def _take(self, handle: _ActorHandle, record: CampaignRecord) -> None:
        """A unit counts when its record is here and whole, and only then."""
        assert handle.unit is not None
        self.keeper.save(record.buckets)
        part = Part(f"unit {handle.unit}", record, handle.since)
        if why := _cut_short(record):
            self._unfinished[handle.unit] = part
            self._lose(handle, why)
            return
        self.work.finish(handle.unit)
        self._parts[handle.unit], handle.unit = part, None
        if self._watch is not None:
            self._watch(self._record())

    def _stop(self, handle: _ActorHandle) -> None:
        with suppress(Exception):
            self._ray.kill(handle.actor)

    def _lose(self, handle: _ActorHandle, brief: str) -> None:
        """The actor failed, or is gone with its machine; a new one takes its place where that is still there."""
        self._actors.remove(handle)
        self._stop(handle)
        if handle.unit is not None:
            self.work.lose(handle.unit, brief)
            return
        self._refused[handle.node] += 1
        if self._refused[handle.node] == _REFUSALS:
            self._troubles.append(f"node {handle.node[:8]} is left alone, as it does no work: {brief}")

    def _read_mailbox(self) -> None:
        """Save what units have found that are still being done."""
        try:
            letters = self._ray.get(self._mailbox.take.remote(), timeout=_ANSWER_SECONDS)
        except Exception as error:
            self._troubles.append(f"units could not tell what they find before they end: {_brief(error)}")
            return
        for unit, text in letters.items():
            record = CampaignRecord.from_json(text)
            self.keeper.save(record.buckets)
            self._unfinished[unit] = Part(f"unit {unit}", record)

    def _record(self) -> CampaignRecord:
        """What is known by now. Of units without a record their buckets are, although their examples do not count."""
        nothing = CampaignRecord(self._plan.id, self._plan.subject, self._plan.device, "")
        whole = added([part for _, part in sorted(self._parts.items())] or [Part("cluster", nothing)])
        lost = [part for unit, part in self._unfinished.items() if unit not in self._parts]
        undone = self.work.missing if self._plan.budget is None else sorted(self.work.given_up)
        over = self.work.over(self._passed) and not undone and bool(self._parts) and not _waiting(whole)
        return replace(
            whole,
            only=self._plan.only,
            seconds=self._passed,
            budget=self._plan.budget,
            examples_wanted=self._plan.examples,
            interrupted=self._interrupted or whole.interrupted,
            complete=over and not self._interrupted,
            environment=whole.environment | self._counts(),
            buckets=added([Part("cluster", whole), *lost]).buckets,
            troubles=self._all_troubles() + whole.troubles,
        )

    def _all_troubles(self) -> list[str]:
        untold = sorted(set(self.work.missing) - self.work.given_up)
        left = [f"units that did not come to their ends: {', '.join(map(str, untold))}"] if untold else []
        return [*dict.fromkeys(self._troubles), *self.work.troubles, *left]

    def _counts(self) -> dict[str, str]:
        counts = {"nodes": len(self._nodes), "units": len(self.work.done), "retried": self.work.retried}
        return {f"ray {name}": str(count) for name, count in counts.items()}


def _brief(error: Exception) -> str:
    """What was raised by a unit, without the traceback of everything around it that Ray has with it."""
    cause = getattr(error, "cause", None) or error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:300]


def _waiting(record: CampaignRecord) -> bool:
    """Some property did not get its turn, as may happen in a small unit."""
    return any(row.status == Status.NOT_TESTED.value and not row.examples for row in record.properties)


def _cut_short(record: CampaignRecord) -> str:
    """Why a unit has to be done again although its record is here, "" for one that is whole."""
    if record.interrupted:
        return "it was interrupted where it ran"
    if not record.complete and not _waiting(record):
        return f"it was not completed: {record.troubles[-1] if record.troubles else 'for an unknown reason'}"
    return ""
