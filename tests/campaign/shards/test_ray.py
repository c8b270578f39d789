"""A campaign on a Ray cluster, in which units only pretend to be campaigns, and Ray too where nothing is lost."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.corpus import Corpus
from statecheck.campaign.plan import Plan, seed_of
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord, PropertyRecord
from statecheck.campaign.shards.ray_cluster import Run, run_on_ray
from tests.breakages.broken import a_case
from tests.campaign.nightly_examples import bucket_with

PLAN = Plan("night", subject="toy", examples=1001)


def _bucket(number: int, size: int) -> BucketRecord:
    case = a_case(property_name=f"toys_divide_{number}", finding="x" * size)
    return bucket_with(case, first_seen={"date": "2026-11-21", "commit": ""})


def _finished(plan: Plan, *buckets: BucketRecord) -> CampaignRecord:
    row = PropertyRecord("toys_divide", "Toys divide.", "", "passed", plan.examples or 0)
    found = {"properties": [row], "buckets": list(buckets), "canary": "found", "complete": True}
    return CampaignRecord(plan.id, plan.subject, plan.device, "", **found)  # type: ignore[arg-type]


def _seeded(plan: Plan) -> CampaignRecord:
    """Finds what the seed says."""
    seed = seed_of(plan, 0)
    return _finished(plan, _bucket(seed % 5, seed % 7), _bucket(5 + seed % 3, seed % 4))


# On a Ray that does one task after the other in this process.


@dataclass
class PretendedRay:
    """`places` machines with a core each."""

    places: int = 3
    tasks: list[Callable[[], Any]] = field(default_factory=list)

    def init(self, *_: Any, **__: Any) -> None:
        """There is always a cluster."""

    def shutdown(self) -> None:
        """It stays."""

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": n, "Alive": True, "Resources": {"CPU": 1}} for n in range(self.places)]

    def get_gpu_ids(self) -> list[int]:
        return []

    def remote(self, function: Callable[..., Any]) -> Any:
        class Task:
            def options(self, **_: Any) -> Task:
                return self

            def remote(self, *arguments: Any) -> Callable[[], Any]:
                return partial(function, *arguments)

        return Task()

    def wait(self, answers: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:  # noqa: ARG002 - Ray's
        assert len(answers) <= self.places
        return answers[-1:], answers[:-1]

    def get(self, answer: Callable[[], Any]) -> Any:
        return answer()

    def cancel(self, *_: Any, **__: Any) -> None:
        """It was not begun."""


def pretended(folder: Path, run: Run, plan: Plan = PLAN, **options: Any) -> CampaignRecord:
    here = replace(plan, reports=str(folder / "reports"), corpus=str(folder / "corpus"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", PretendedRay())
        return run_on_ray(here, "auto", run=run, **options)


def test_units_have_all_the_examples_and_each_its_own_seed_and_the_corpus_is_replayed_once(
    tmp_path: Path,
) -> None:
    given: list[Plan] = []

    def run(plan: Plan) -> CampaignRecord:
        given.append(plan)
        return _seeded(plan)

    record = pretended(tmp_path, run)
    given.sort(key=lambda plan: plan.unit)
    assert [plan.examples for plan in given] == [63] * 9 + [62] * 7
    assert len({seed_of(plan, 0) for plan in given}) == 16
    assert [plan.replayed for plan in given] == [True] + [False] * 15
    assert (record.examples, record.complete, record.canary) == (1001, True, "found")
    assert len(Corpus(tmp_path / "corpus").entries()) == len(record.buckets) > 0
    assert (tmp_path / "reports/campaigns/night/report.html").exists()


def test_no_unit_is_empty(tmp_path: Path) -> None:
    assert pretended(tmp_path, _finished, replace(PLAN, examples=2)).environment["ray units"] == "2"


@pytest.mark.parametrize("raises", [True, False])
def test_a_unit_that_was_lost_or_cut_short_is_done_again_and_counts_once(
    raises: bool, tmp_path: Path
) -> None:
    attempts = Counter[int]()

    def run(plan: Plan) -> CampaignRecord:
        attempts[plan.unit] += 1
        if plan.unit == 2 and attempts[2] < 3:
            if raises:
                raise RuntimeError("its machine is gone")
            return replace(_seeded(plan), complete=False)
        return _seeded(plan)

    undisturbed = pretended(tmp_path / "undisturbed", _seeded)
    record = pretended(tmp_path, run)
    assert outcome(record) == outcome(undisturbed)
    assert record.complete
    assert record.environment["ray failed"] == "2"


def test_a_unit_that_always_fails_is_a_trouble_and_its_buckets_are_kept(tmp_path: Path) -> None:
    def run(plan: Plan) -> CampaignRecord:
        cut_short = replace(_finished(plan, _bucket(9, 0)), complete=False, troubles=["out of toys"])
        return cut_short if plan.unit == 2 else _finished(plan)

    record = pretended(tmp_path, run)
    assert not record.complete
    assert "unit 2 failed 3 times and is given up: it was not completed: out of toys" in record.troubles
    assert record.examples == 1001 - 63
    assert [bucket.property for bucket in record.buckets] == ["toys_divide_9"]
    assert len(Corpus(tmp_path / "corpus").entries()) == 1


def test_ctrl_c_leaves_a_report_of_what_there_is(tmp_path: Path) -> None:
    def interrupt(_: CampaignRecord) -> None:
        raise KeyboardInterrupt

    record = pretended(tmp_path, _finished, watch=interrupt)
    assert (record.interrupted, record.complete) == (True, False)
    assert 0 < record.examples < 1001
    assert CampaignRecord.load(tmp_path / "reports/campaigns/night/campaign.json") == record


def test_units_are_handed_out_until_the_seconds_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, budgets = [0.0], list[float | None]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def run(plan: Plan) -> CampaignRecord:
        budgets.append(plan.budget)
        now[0] += 500.0
        return _finished(plan)

    record = pretended(tmp_path, run, Plan("night", subject="toy", budget=1700.0))
    assert record.complete
    assert record.seconds >= 1700.0
    assert set(budgets) == {600.0, 200.0}


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"ray = not installed, but should be: .* -m pip install"):
        run_on_ray(PLAN, "auto")


# On Ray itself.

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra `ray`)")
# What Ray says of itself and leaves open is not ours to mend.
of_ray = pytest.mark.filterwarnings("ignore")
_MEMORY = 80 * 2**20
# A lost machine is noticed within two seconds, in place of half a minute.
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


@contextmanager
def machines(count: int) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of `count` machines with a core each, beside a head that does no unit."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    kind = import_module("ray.cluster_utils").Cluster
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
    cluster = kind(initialize_head=True, head_node_args=head | {"_system_config": _HEALTH})
    try:
        yield cluster, [cluster.add_node(num_cpus=1, object_store_memory=_MEMORY) for _ in range(count)]
    finally:
        import_module("ray").shutdown()
        cluster.shutdown()


def _slow(folder: str, plan: Plan) -> CampaignRecord:
    """Takes its time; a file tells which machine is at it."""
    node = import_module("ray").get_runtime_context().get_node_id()
    (Path(folder) / f"{node}.{plan.unit}.begun").touch()
    time.sleep(1.0)
    return _seeded(plan)


def outcome(record: CampaignRecord) -> tuple[list[str], list[tuple[str, int]]]:
    """What may not depend on machines: the buckets, and the examples of each property."""
    examples = sorted((row.name, row.examples) for row in record.properties)
    return sorted(bucket.id for bucket in record.buckets), examples


@needs_ray
@of_ray
def test_a_lost_machine_changes_neither_what_is_found_nor_how_much_is_tried(tmp_path: Path) -> None:
    undisturbed = pretended(tmp_path / "undisturbed", _seeded)
    plan = replace(PLAN, reports=str(tmp_path / "reports"), corpus=str(tmp_path / "corpus"))
    with machines(3) as (cluster, nodes):

        def lose() -> None:
            while not list(tmp_path.glob(f"{nodes[0].node_id}.*.begun")):
                time.sleep(0.05)
            cluster.remove_node(nodes[0], allow_graceful=False)

        thread = threading.Thread(target=lose)
        thread.start()
        record = run_on_ray(plan, cluster.address, run=partial(_slow, str(tmp_path)))
        thread.join()
    assert outcome(record) == outcome(undisturbed)
    assert record.complete
    assert int(record.environment["ray failed"]) >= 1


@needs_ray
@of_ray
def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ray = '127\.0\.0\.1:1', but should be the address of a cluster"):
        run_on_ray(PLAN, "127.0.0.1:1")
