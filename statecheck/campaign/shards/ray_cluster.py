"""A campaign on a Ray cluster, whose machines may come and go.

The work is cut into units, each a task for which Ray chooses the machine: one at a time for each GPU, or for each machine where
none is asked for. The head takes in their records, and saves each new bucket at once. A unit that was lost with its machine
is done again elsewhere, and gives the same, because a unit's examples depend on the plan alone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.shards.keeper import BucketKeeper, write_down
from statecheck.campaign.shards.merge import Part, added
from statecheck.campaign.shards.ray_tasks import Mailbox, Run, do_unit, run_unit
from statecheck.campaign.shards.units import UnitQueue
from statecheck.text.command_lines import pip_line

_NOT_SHIPPED = [".git", ".venv", ".hypothesis", "reports", "build", "**/__pycache__", "**/.*_cache"]
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class Cluster:
    """The cluster, and how its machines get at this tree.

    Args:
        address: "auto", "host:6379" or "ray://host:10001".
        shared: path of the tree on every machine; "" sends each a copy.
        patience: seconds without any machine that could do a unit, after which the campaign ends.
    """

    address: str
    shared: str = ""
    patience: float = 600.0

    @property
    def runtime(self) -> dict[str, Any]:
        """Ray's runtime environment of the campaign's tasks: the tree, or the installed package, which has all of it inside."""
        variables = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        if self.shared:
            return {"env_vars": variables | {"PYTHONPATH": self.shared}}
        if rooms.is_checkout():
            return {"env_vars": variables, "working_dir": str(rooms.FOLDER), "excludes": _NOT_SHIPPED}
        return {"env_vars": variables, "py_modules": [str(rooms.PACKAGE)]}


def run_on_ray(
    plan: Plan,
    cluster: Cluster,
    *,
    units: int = 16,
    run: Run = run_unit,
    watch: Callable[[CampaignRecord], None] | None = None,
) -> CampaignRecord:
    """Run the campaign on the cluster to its end, or to Ctrl-C; write its corpus and its reports here.

    Args:
        plan: `engines` are those of each unit; Ray says which GPUs there are.
        units: how many there are, where the budget is in examples.
        run: does a unit where it is called.
        watch: called with what is known after each unit.

    Raises:
        ValueError: Ray is not installed, no cluster at the address, or a plan without a budget.
    """
    ray = _imported()
    head = _Head(ray, plan, cluster, UnitQueue(plan, count=units), run, watch)
    _join(ray, cluster)
    try:
        record = head.run()
    finally:
        ray.shutdown()
    return write_down(record, Path(plan.reports), head.keeper)


def _imported() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        rule = f"{pip_line('ray>=2.50')} (the extra `ray`)"
        raise ValueError(f"ray = not installed, but should be: {rule} [run_on_ray]") from error


def _join(ray: Any, cluster: Cluster) -> None:
    """Connect to the cluster.

    Raises:
        ValueError: no cluster at the address.
    """
    try:
        host, _, port = cluster.address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(cluster.address, runtime_env=cluster.runtime, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        rule = f"the address of a cluster that can be reached: {error}"
        raise ValueError(f"ray = {cluster.address!r}, but should be {rule} [run_on_ray]") from error


class _Head:
    def __init__(
        self,
        ray: Any,
        plan: Plan,
        cluster: Cluster,
        work: UnitQueue,
        run: Run,
        watch: Callable[[CampaignRecord], None] | None,
    ) -> None:
        self._ray, self._plan, self._cluster, self._run, self._watch = ray, plan, cluster, run, watch
        self.work = work
        self.keeper = BucketKeeper(Path(plan.corpus), Path(plan.reports), plan.subject)
        self._corpus = {
            path.name: path.read_bytes() for path in Path(plan.corpus).glob("*.json") if path.is_file()
        }
        self._units: dict[Any, tuple[int, float]] = {}
        """By the answer that is waited for: the unit, and when it was handed out."""
        self._parts: dict[int, Part] = {}
        self._unfinished: dict[int, Part] = {}
        self._nodes: set[str] = set()
        self._troubles: list[str] = []
        self._interrupted = self._under_way = False
        self._places, self._looked = 0, float("-inf")

    @property
    def _passed(self) -> float:
        """Of the budget: nothing until a unit was begun for the first time."""
        return time.monotonic() - self._began if self._under_way else 0.0

    def run(self) -> CampaignRecord:
        """Until the work is over; what is in hand at Ctrl-C is left."""
        self._began = self._served = time.monotonic()
        try:
            self._mailbox = self._start_mailbox()
            while not self.work.over(self._passed) and self._patient():
                self._step()
        except KeyboardInterrupt:
            self._interrupted = True
        except Exception as error:
            # The cluster may be gone; what came from it until then is worth a report.
            self._troubles.append(f"the cluster ended the campaign: {_brief(error)}")
        self._read_mailbox()
        for answer in self._units:
            with suppress(Exception):
                self._ray.cancel(answer, force=True)
        return self._record()

    def _start_mailbox(self) -> Any:
        """Beside the head, which is not lost."""
        affinity = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        here = affinity(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()

    def _patient(self) -> bool:
        if self._places:
            self._served = time.monotonic()
        if time.monotonic() - self._served < self._cluster.patience:
            return True
        self._troubles.append(f"no machine could do a unit for {self._cluster.patience:g} s")
        return False

    def _step(self) -> None:
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._places = sum(map(self._places_of, self._ray.nodes()))
            self._read_mailbox()
        while len(self._units) < self._places and (unit := self.work.next(self._passed)) is not None:
            self._units[self._start(unit)] = unit.unit, self._passed
        if not self._units:
            time.sleep(_LOOK_SECONDS)
            return
        answered, _ = self._ray.wait(list(self._units), timeout=_LOOK_SECONDS)
        for answer in answered:
            self._receive(answer, *self._units.pop(answer))

    def _places_of(self, node: dict[str, Any]) -> int:
        """How many units a machine may do at a time."""
        has = node["Resources"]
        places = int(has.get("GPU", 0)) if self._plan.device == "cuda" else int(has.get("CPU", 0) >= 1)
        if not (node["Alive"] and places):
            return 0
        self._nodes.add(node["NodeID"])
        return places

    def _start(self, unit: Plan) -> Any:
        on_gpu = {"num_gpus": 1, "num_cpus": 0}
        uses = on_gpu if self._plan.device == "cuda" else {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        # What was lost is counted and done again by the queue, whose budget is another one by then.
        task = self._ray.remote(do_unit).options(max_retries=0, **uses)
        corpus = self._corpus if unit.replayed else {}
        return task.remote(unit, self._run, self._mailbox, self._cluster.shared, corpus)

    def _receive(self, answer: Any, unit: int, since: float) -> None:
        """A unit counts when its record is here and whole, and only then."""
        try:
            record = CampaignRecord.from_json(self._ray.get(answer))
        except Exception as error:
            self.work.lose(unit, _brief(error))
            return
        self.keeper.save(record.buckets)
        part = Part(f"unit {unit}", record, since)
        if why := _cut_short(record):
            self._unfinished[unit] = part
            self.work.lose(unit, why)
            return
        self.work.finish(unit)
        self._parts[unit] = part
        if self._watch is not None:
            self._watch(self._record())

    def _read_mailbox(self) -> None:
        """Save what units have found that are still being done."""
        try:
            letters = self._ray.get(self._mailbox.take.remote(), timeout=_ANSWER_SECONDS)
        except Exception as error:
            self._troubles.append(f"units could not tell what they find before they end: {_brief(error)}")
            return
        if letters and not self._under_way:
            self._under_way, self._began = True, time.monotonic()
        for unit, text in letters.items():
            if text:
                record = CampaignRecord.from_json(text)
                self.keeper.save(record.buckets)
                self._unfinished[unit] = Part(f"unit {unit}", record)

    def _record(self) -> CampaignRecord:
        """What is known by now. Of units without a record their buckets are, although their examples do not count."""
        nothing = CampaignRecord(self._plan.id, self._plan.subject, self._plan.device, "")
        whole = added([part for _, part in sorted(self._parts.items())] or [Part("cluster", nothing)])
        lost = [part for unit, part in self._unfinished.items() if unit not in self._parts]
        undone = self.work.missing if self._plan.budget is None else sorted(self.work.given_up)
        over = self.work.over(self._passed) and not undone and bool(self._parts)
        counts = {"nodes": len(self._nodes), "units": len(self.work.done), "retried": self.work.retried}
        return replace(
            whole,
            only=self._plan.only,
            seconds=self._passed,
            budget=self._plan.budget,
            examples_wanted=self._plan.examples,
            interrupted=self._interrupted or whole.interrupted,
            complete=over and not self._interrupted,
            environment=whole.environment | {f"ray {name}": str(count) for name, count in counts.items()},
            buckets=added([Part("cluster", whole), *lost]).buckets,
            troubles=self._all_troubles() + whole.troubles,
        )

    def _all_troubles(self) -> list[str]:
        left_out = sorted(set(self.work.missing) - self.work.given_up)
        left = [f"units that did not come to their ends: {', '.join(map(str, left_out))}"] if left_out else []
        return [*dict.fromkeys(self._troubles), *self.work.troubles, *left]


def _brief(error: Exception) -> str:
    """What was raised by a unit, without the traceback of everything around it that Ray has with it."""
    cause = getattr(error, "cause", None) or error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:300]


def _cut_short(record: CampaignRecord) -> str:
    """Why a unit has to be done again although its record is here, "" for one that is whole."""
    if record.interrupted:
        return "it was interrupted where it ran"
    if not record.complete:
        return f"it was not completed: {record.troubles[-1] if record.troubles else 'for an unknown reason'}"
    return ""
