"""A campaign on a Ray cluster, in which units only pretend to be campaigns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from statecheck.campaign.shards.merge import Part, added
from statecheck.campaign.shards.ray_cluster import Cluster, run_on_ray
from statecheck.campaign.shards.units import UnitQueue
from tests.campaign.nightly_examples import bucket_with
from tests.campaign.shards.ray_cluster import Machines, disturbed, machines, outcome
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra `ray`)")
# What Ray says of itself and leaves open is not ours to mend.
of_ray = pytest.mark.filterwarnings("ignore")
PLAN = Plan("night", subject="toy", examples=1001)
UNITS = 7


def _bucket(number: int, size: int) -> BucketRecord:
    case = a_case(property_name=f"toys_divide_{number}", finding="x" * size)
    return bucket_with(case, first_seen={"date": "2026-11-21", "commit": ""})


def _pretended(
    folder: str, seconds: float, plan: Plan, watch: Callable[[CampaignRecord], None] | None
) -> CampaignRecord:
    """Finds what the seed says, at once, and then takes its time; a file tells which machine is at it."""
    seed = seed_of(plan, 0)
    node = import_module("ray").get_runtime_context().get_node_id() if seconds else "here"
    mark = Path(folder) / f"{node}.{plan.unit}.begun"
    mark.touch()
    row = PropertyRecord("toys_divide", "Toys divide.", "", "FALSIFIED", plan.examples or 0)
    found = [_bucket(seed % 5, seed % 7), _bucket(seed % 3, seed % 4)]
    record = CampaignRecord(
        plan.id, plan.subject, plan.device, "", canary="found", properties=[row], buckets=found
    )
    if watch is not None:
        watch(record)
    time.sleep(seconds)
    mark.unlink()
    return replace(record, seconds=seconds, complete=True)


def _failing(plan: Plan, watch: Callable[[CampaignRecord], None] | None) -> CampaignRecord:
    """Raises RuntimeError in the third unit, though only after something was found."""
    if plan.unit == 2:
        assert watch is not None
        watch(CampaignRecord(plan.id, plan.subject, plan.device, "", buckets=[_bucket(9, 0)]))
        raise RuntimeError("out of toys")
    return _finished(plan)


def _interrupting(_: CampaignRecord) -> None:
    """Ctrl-C once the first unit is back."""
    raise KeyboardInterrupt


def _finished(plan: Plan) -> CampaignRecord:
    row = PropertyRecord("toys_divide", "Toys divide.", "", "passed", plan.examples or 0)
    return CampaignRecord(
        plan.id, plan.subject, plan.device, "", canary="found", properties=[row], complete=True
    )


def _quick(plan: Plan, _: Callable[[CampaignRecord], None] | None) -> CampaignRecord:
    time.sleep(0.2)
    return _finished(plan)


def _expected(folder: Path) -> CampaignRecord:
    """The same units, one after the other, here."""
    units = iter(partial(UnitQueue(PLAN, count=UNITS).next, 0.0), None)
    parts = [Part(str(unit.unit), _pretended(str(folder), 0.0, unit, None)) for unit in units if unit]
    return added(parts)


@pytest.fixture(scope="module")
def found() -> Iterator[Machines]:
    with machines(3) as started:
        yield started


def _run(found: Machines, folder: Path, run: Any, **options: Any) -> CampaignRecord:
    plan = replace(PLAN, reports=str(folder / "reports"), corpus=str(folder / "corpus"))
    cluster = Cluster(found.address, shared=str(ROOT))
    return run_on_ray(plan, cluster, units=UNITS, run=run, **options)


@needs_ray
@of_ray
def test_a_lost_machine_changes_neither_what_is_found_nor_how_much_is_tried(
    found: Machines, tmp_path: Path
) -> None:
    victim = found.nodes[0].node_id
    busy = partial(lambda folder: any(folder.glob(f"{victim}.*.begun")), tmp_path)
    with disturbed(found, busy) as watch:
        record = _run(found, tmp_path, partial(_pretended, str(tmp_path), 1.5), watch=watch)
    assert outcome(record) == outcome(_expected(tmp_path))
    assert record.complete
    assert int(record.environment["ray retried"]) >= 1
    assert record.environment["ray nodes"] == "4"
    assert len(Corpus(tmp_path / "corpus").entries()) == len(record.buckets)
    assert (tmp_path / "reports/campaigns/night/report.html").exists()


@needs_ray
@of_ray
def test_a_unit_that_always_fails_is_a_trouble_and_its_buckets_are_kept(
    found: Machines, tmp_path: Path
) -> None:
    record = _run(found, tmp_path, _failing)
    assert not record.complete
    assert "unit 2 failed 3 times and is given up: RuntimeError: out of toys" in record.troubles
    assert (record.examples, record.canary) == (1001 - 143, "found")
    assert [bucket.property for bucket in record.buckets] == ["toys_divide_9"]
    assert len(Corpus(tmp_path / "corpus").entries()) == 1


@needs_ray
@of_ray
def test_ctrl_c_leaves_a_report_of_what_there_is(found: Machines, tmp_path: Path) -> None:
    record = _run(found, tmp_path, _quick, watch=_interrupting)
    assert (record.interrupted, record.complete) == (True, False)
    assert 0 < record.examples < 1001
    assert CampaignRecord.load(tmp_path / "reports/campaigns/night/campaign.json") == record


@needs_ray
@of_ray
def test_machines_without_what_is_needed_are_waited_for_only_so_long(found: Machines, tmp_path: Path) -> None:
    plan = replace(PLAN, device="cuda", reports=str(tmp_path), corpus=str(tmp_path / "corpus"))
    cluster = Cluster(found.address, shared=str(ROOT), patience=1.0)
    record = run_on_ray(plan, cluster, units=UNITS, run=_quick)
    assert not record.complete
    assert "no machine could do a unit for 1 s" in record.troubles


@needs_ray
@of_ray
def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ray = '127\.0\.0\.1:1', but should be the address of a cluster"):
        run_on_ray(PLAN, Cluster("127.0.0.1:1", shared=str(ROOT)), run=_quick)


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ValueError, match=r"ray = not installed, but should be: .* -m pip install"):
        run_on_ray(PLAN, Cluster("auto"), run=_quick)
