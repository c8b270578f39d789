"""A campaign on a Ray cluster, whose machines may come and go.

The work is cut into units, each a task for which Ray chooses the machine: one at a time for each GPU, or for each machine where
none is asked for. The head takes in their records, and saves what they found. A unit that was lost with its machine
is done again elsewhere, and gives the same, because a unit's examples depend on the plan alone.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.shards.keeper import Keeper, write_down
from statecheck.campaign.shards.merge import Part, added
from statecheck.text.command_lines import pip_line

Run = Callable[[Plan], CampaignRecord]
_NOT_SHIPPED = [".git", ".venv", ".hypothesis", "reports", "build", "**/__pycache__", "**/.*_cache"]
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
UNITS = 16
"""Where the work is in examples, each of so many units gets an equal share."""
_UNIT_SECONDS, _LEAST_SECONDS = 600.0, 10.0
"""Of a unit where the work is in seconds, and what has to be left of them for another unit."""
_TRIES = 3
"""How often a unit may fail before it is given up."""


def run_on_ray(
    plan: Plan,
    address: str,
    *,
    run: Run | None = None,
    watch: Callable[[CampaignRecord], None] | None = None,
) -> CampaignRecord:
    """Run the campaign on the cluster to its end, or to Ctrl-C; write its corpus and its reports here.

    Args:
        plan: `engines` are those of each unit; Ray says which GPUs there are.
        address: "auto", "host:6379" or "ray://host:10001".
        run: does a unit where it is called.
        watch: called with what is known after each unit.

    Raises:
        ValueError: Ray is not installed, or no cluster at the address.
    """
    ray = _imported()
    head = _Head(ray, plan, run or _run_campaign, watch)
    _join(ray, address)
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


def _run_campaign(plan: Plan) -> CampaignRecord:
    from statecheck.campaign.coordinator import run

    return run(plan)


def _join(ray: Any, address: str) -> None:
    """Connect to the cluster, whose machines get a copy of the tree, or of the installed package, which has all of it inside.

    Raises:
        ValueError: no cluster at the address.
    """
    code = {"py_modules": [str(rooms.PACKAGE)]}
    if rooms.is_checkout():
        code = {"working_dir": str(rooms.FOLDER), "excludes": _NOT_SHIPPED}  # type: ignore[dict-item]
    runtime = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}, **code}
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(address, runtime_env=runtime, log_to_driver=False, configure_logging=False)
    except (OSError, ValueError, RuntimeError) as error:
        rule = f"the address of a cluster that can be reached: {error}"
        raise ValueError(f"ray = {address!r}, but should be {rule} [run_on_ray]") from error


def do_unit(unit: Plan, run: Run, corpus: Mapping[str, bytes]) -> str:
    """The record of a unit, as JSON, on the machine that does it. Nothing that an earlier unit left there has an influence on it.

    Args:
        corpus: files to be replayed, as they were when the campaign began.
    """
    gpus = tuple(map(str, import_module("ray").get_gpu_ids()))
    with tempfile.TemporaryDirectory(prefix=f"statecheck-unit{unit.unit}-") as folder:
        kept = Path(folder) / "corpus"
        kept.mkdir()
        for name, content in corpus.items():
            (kept / name).write_bytes(content)
        return run(replace(unit, gpus=gpus, reports=f"{folder}/reports", corpus=str(kept))).to_json()


class _Head:
    def __init__(
        self, ray: Any, plan: Plan, run: Run, watch: Callable[[CampaignRecord], None] | None
    ) -> None:
        self._ray, self._plan, self._run, self._watch = ray, plan, run, watch
        self.keeper = Keeper(Path(plan.corpus), Path(plan.reports), plan.subject)
        self._corpus = {
            path.name: path.read_bytes() for path in Path(plan.corpus).glob("*.json") if path.is_file()
        }
        self._begun = 0
        """Units that were handed out at least once: those with lower numbers."""
        self._lost: deque[Plan] = deque()
        """Units to be done again."""
        self._failures: Counter[int] = Counter()
        self._running: dict[Any, tuple[Plan, float]] = {}
        """By the answer that is waited for: the unit, and when it was handed out."""
        self._parts: dict[int, Part] = {}
        self._unfinished: dict[int, Part] = {}
        self._nodes: set[str] = set()
        self._troubles: list[str] = []
        self._interrupted = False
        self._began = time.monotonic()

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._began

    @property
    def _more(self) -> bool:
        """Whether there are units that were never handed out."""
        if self._plan.budget is None:
            return self._begun < min(UNITS, self._plan.examples or 0)
        return self._plan.budget - self._passed >= min(_LEAST_SECONDS, self._plan.budget / 2)

    def run(self) -> CampaignRecord:
        """Until the work is over; what is in hand at Ctrl-C is left."""
        self._began = time.monotonic()
        try:
            while self._running or self._lost or self._more:
                self._step()
        except KeyboardInterrupt:
            self._interrupted = True
        except Exception as error:
            # The cluster may be gone; what came from it until then is worth a report.
            self._troubles.append(f"the cluster ended the campaign: {_brief(error)}")
        for answer in self._running:
            with suppress(Exception):
                self._ray.cancel(answer, force=True)
        return self._record()

    def _step(self) -> None:
        """Hand out units while there are places for them, and take in what has come back."""
        places = sum(map(self._places_of, self._ray.nodes()))
        while len(self._running) < places and (self._lost or self._more):
            unit = self._lost.popleft() if self._lost else self._next()
            self._running[self._start(unit)] = unit, self._passed
        if not self._running:
            time.sleep(_LOOK_SECONDS)
            return
        answered, _ = self._ray.wait(list(self._running), timeout=_LOOK_SECONDS)
        for answer in answered:
            self._receive(answer, *self._running.pop(answer))

    def _places_of(self, node: dict[str, Any]) -> int:
        """How many units a machine may do at a time."""
        has = node["Resources"]
        places = int(has.get("GPU", 0)) if self._plan.device == "cuda" else int(has.get("CPU", 0) >= 1)
        if not (node["Alive"] and places):
            return 0
        self._nodes.add(node["NodeID"])
        return places

    def _next(self) -> Plan:
        """The next unit as a plan of its own; the corpus is replayed by the first one for all of them."""
        number, self._begun = self._begun, self._begun + 1
        unit = replace(self._plan, unit=number, replayed=self._plan.replayed and number == 0)
        if self._plan.budget is not None:
            return replace(unit, budget=min(_UNIT_SECONDS, self._plan.budget - self._passed))
        examples = self._plan.examples or 0
        share, more = divmod(examples, min(UNITS, examples))
        return replace(unit, examples=share + (number < more))

    def _start(self, unit: Plan) -> Any:
        on_gpu = {"num_gpus": 1, "num_cpus": 0}
        uses = on_gpu if self._plan.device == "cuda" else {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
        task = self._ray.remote(do_unit).options(max_retries=0, **uses)
        return task.remote(unit, self._run, self._corpus if unit.replayed else {})

    def _receive(self, answer: Any, unit: Plan, since: float) -> None:
        """A unit counts when its record is here and whole, and only then."""
        try:
            record = CampaignRecord.from_json(self._ray.get(answer))
        except Exception as error:
            self._lose(unit, _brief(error))
            return
        self.keeper.save(record.buckets)
        part = Part(f"unit {unit.unit}", record, since)
        if why := _cut_short(record):
            self._unfinished[unit.unit] = part
            self._lose(unit, why)
            return
        self._parts[unit.unit] = part
        if self._watch is not None:
            self._watch(self._record())

    def _lose(self, unit: Plan, why: str) -> None:
        """Nothing came of a unit this time; it is done again, before others, unless that has happened too often."""
        self._failures[unit.unit] += 1
        if self._failures[unit.unit] < _TRIES:
            self._lost.append(unit)
        else:
            self._troubles.append(f"unit {unit.unit} failed {_TRIES} times and is given up: {why}")

    def _record(self) -> CampaignRecord:
        """What is known by now. Of units that were cut short their buckets are, although their examples do not count."""
        nothing = CampaignRecord(self._plan.id, self._plan.subject, self._plan.device, "")
        whole = added([part for _, part in sorted(self._parts.items())] or [Part("cluster", nothing)])
        cut_short = [part for unit, part in self._unfinished.items() if unit not in self._parts]
        missing = sorted(set(range(self._begun)) - self._parts.keys())
        counts = {"nodes": len(self._nodes), "units": len(self._parts), "failed": self._failures.total()}
        left = [f"units that did not come to their ends: {', '.join(map(str, missing))}"] if missing else []
        return replace(
            whole,
            only=self._plan.only,
            seconds=self._passed,
            budget=self._plan.budget,
            examples_wanted=self._plan.examples,
            interrupted=self._interrupted or whole.interrupted,
            complete=bool(self._parts) and not (missing or self._more or self._interrupted),
            environment=whole.environment | {f"ray {name}": str(count) for name, count in counts.items()},
            buckets=added([Part("cluster", whole), *cut_short]).buckets,
            troubles=[*self._troubles, *left, *whole.troubles],
        )


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
