"""Shards of a campaign as tasks of a Ray cluster: with a stand-in for Ray, and with Ray itself where it is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.cluster import RunShard, run_on_ray
from statecheck.campaign.corpus import Corpus
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord, PropertyRecord
from statecheck.cli import main as cli
from statecheck.execution.verdict import Counts
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.unit.campaign.nightly_examples import bucket_with

PLAN = Plan("night", subject="impl", examples=10, commit="0123456789ab")


def _record(plan: Plan, **changes: Any) -> CampaignRecord:
    """The record of a shard in which one property fails, with a case of each shard."""
    row = PropertyRecord("toys/divide", "Toys divide.", "", "FALSIFIED", Counts(plan.examples or 0))
    case = a_case(property_id=f"toys/divide-{plan.shard}")
    whole = CampaignRecord(plan, canary="found", complete=True)
    own: dict[str, Any] = {"properties": [row], "buckets": [bucket_with(case)]}
    return replace(whole, **own | changes)


def _ends(plan: Plan, corpus: Mapping[str, bytes]) -> str:
    assert list(corpus) == ["kept.json"]
    return _record(plan).to_json()


def _second_fails(plan: Plan, corpus: Mapping[str, bytes]) -> str:
    if plan.shard == 1:
        raise RuntimeError("out of toys")
    return _ends(plan, corpus)


def _ends_early(plan: Plan, _: Mapping[str, bytes]) -> str:
    return _record(plan, complete=False, interrupted=True).to_json()


class RayTaskError(Exception):
    """The exception of Ray for a task that raised `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("a screen of tracebacks")
        self.cause = cause


@dataclass
class StandIn:
    """Ray's functions on one thread: a task runs when its end is waited for.

    Args:
        nodes_: the resources of each machine.
        ctrl_c: after so many tasks Ctrl-C is typed, and the others are cancelled.
    """

    nodes_: list[dict[str, float]]
    ctrl_c: int = -1
    options_: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    tasks: list[Callable[[], str]] = field(default_factory=list)
    ended: int = 0
    connected: bool = False

    def init(self, address: str, **_: Any) -> None:
        if address != "auto":
            raise ConnectionError("nothing listens there")
        self.connected = True

    def shutdown(self) -> None:
        self.connected = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": each} for each in self.nodes_]

    def put(self, value: object) -> object:
        return value

    def remote(self, function: Any) -> Any:
        stand_in = self

        class Remote:
            def options(self, **options: Any) -> Remote:
                stand_in.options_.append(options)
                return self

            def remote(self, *arguments: Any) -> int:
                stand_in.tasks.append(lambda: function(*arguments))
                return len(stand_in.tasks) - 1

        return Remote()

    def wait(self, tasks: list[int], timeout: float | None) -> tuple[list[int], list[int]]:
        assert (timeout is None) == (not self.cancelled)
        if self.ended == self.ctrl_c and not self.cancelled:
            raise KeyboardInterrupt
        self.ended += 1
        return [tasks[-1]], tasks[:-1]

    def get(self, task: int) -> str:
        try:
            return self.tasks[task]()
        except Exception as error:
            raise RayTaskError(error) from error

    def cancel(self, task: int) -> None:
        self.cancelled.append(task)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn([{"CPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 1.0}])
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    return stand_in


def _run(folder: Path, shards: int = 0, run: RunShard = _ends, **changes: Any) -> CampaignRecord:
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "kept.json").write_text("a case")
    plan = replace(PLAN, reports=str(folder / "reports"), corpus=str(corpus), **changes)
    return run_on_ray(plan, "auto", shards, lambda line: None, run)


def test_a_cluster_is_looked_for_where_ray_keeps_its_files(
    ray: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("STATECHECK_TEMPORARY", f"1:{tmp_path}")
    _run(tmp_path, shards=1)
    assert os.environ["RAY_TMPDIR"] == str(tmp_path)
    assert not ray.connected


def test_shards_run_as_tasks_and_their_records_are_one_campaign(ray: StandIn, tmp_path: Path) -> None:
    whole = _run(tmp_path, shards=3)
    assert (whole.examples, whole.complete, whole.warnings, whole.plan.shards) == (30, True, [], 1)
    assert sorted(bucket.property for bucket in whole.buckets) == [f"toys/divide-{n}" for n in range(3)]
    assert sum(entry.case is not None for entry in Corpus(tmp_path / "corpus").entries()) == 3
    assert CampaignRecord.load(tmp_path / "reports/campaigns/night/campaign.json") == whole
    assert not ray.connected


@pytest.mark.parametrize(
    ("changes", "count", "uses"),
    [
        ({"device": "cuda"}, 3, {"num_gpus": 1, "num_cpus": 0}),
        ({"engines": 4}, 2, {"num_cpus": 4, "scheduling_strategy": "SPREAD"}),
        ({"engines": 16}, 1, {"num_cpus": 16, "scheduling_strategy": "SPREAD"}),
    ],
    ids=str,
)
def test_there_are_as_many_shards_as_places(
    ray: StandIn, tmp_path: Path, changes: dict[str, Any], count: int, uses: dict[str, Any]
) -> None:
    _run(tmp_path, **changes)
    assert len(ray.tasks) == count
    assert ray.options_ == [{"max_retries": 3, **uses}]


@pytest.mark.usefixtures("ray")
def test_a_shard_that_fails_leaves_the_campaign_incomplete(tmp_path: Path) -> None:
    whole = _run(tmp_path, 3, _second_fails)
    assert (whole.examples, whole.complete) == (20, False)
    assert whole.warnings == ["shard 2/3 is missing", "shard 2/3: RuntimeError: out of toys"]


@pytest.mark.usefixtures("ray")
def test_merge_adds_up_the_records_that_came_before_the_driver_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr("statecheck.campaign.cluster.merge_records", killed)
    with pytest.raises(SystemExit):
        _run(tmp_path, 2)
    places = ["--reports", str(tmp_path / "merged"), "--corpus", str(tmp_path / "corpus")]
    assert cli.main(["merge", str(tmp_path / "reports"), *places]) == 1
    assert CampaignRecord.load(tmp_path / "merged/campaigns/night/campaign.json").examples == 20


def test_after_ctrl_c_shards_end_with_what_they_have(ray: StandIn, tmp_path: Path) -> None:
    ray.ctrl_c = 0
    whole = _run(tmp_path, 2, _ends_early)
    assert (whole.examples, whole.interrupted, whole.complete, ray.cancelled) == (20, True, False, [0, 1])


def test_after_ctrl_c_a_whole_campaign_is_incomplete_where_a_shard_never_began(
    ray: StandIn, tmp_path: Path
) -> None:
    ray.ctrl_c = 1
    whole = _run(tmp_path, 2, lambda plan, corpus: _ends(plan, corpus) if plan.shard else "cancelled")
    assert (whole.examples, whole.interrupted, whole.complete) == (10, True, False)


@pytest.mark.usefixtures("ray")
def test_a_campaign_of_which_no_shard_ends_is_refused(tmp_path: Path) -> None:
    rule = "shards = 0 of 1 ended, but should be one at least that comes to an end: shard 1/1: ValueError"
    with pytest.raises(ValueError, match=re.escape(rule)):
        _run(tmp_path, 1, lambda plan, corpus: "no record")


@pytest.mark.usefixtures("ray")
def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ray = '127\.0\.0\.1:1', but should be the address of a cluster"):
        run_on_ray(PLAN, "127.0.0.1:1", 1, print)
    with pytest.raises(ValueError, match=r"ray = 'there', but should be the address of a cluster"):
        run_on_ray(PLAN, "there", 1, print)


def test_a_missing_ray_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"ray = not installed, but should be: .* -m pip install"):
        run_on_ray(PLAN, "auto", 1, print)


# With Ray itself


def _running() -> list[int]:
    """The processes that run a shard for Ray, which names them by the function."""
    names = {
        int(folder.name): folder / "cmdline" for folder in Path("/proc").iterdir() if folder.name.isdigit()
    }
    found = []
    for pid, path in names.items():
        with suppress(OSError):
            found += [pid] if path.read_bytes().startswith(b"ray::run_shard") else []
    return found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of two pretended machines with a core each, beside a head that runs no shard."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    memory = {"object_store_memory": 80 * 2**20}
    cluster = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory}
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, **memory)
        yield cluster.address
    finally:
        import_module("ray").shutdown()
        cluster.shutdown()


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (extra `ray`)")
@pytest.mark.slow
@pytest.mark.parametrize("event", ["a shard's process is killed", "Ctrl-C"])
def test_a_campaign_on_a_cluster(address: str, tmp_path: Path, event: str) -> None:
    budget = "1h" if event == "Ctrl-C" else "40s"
    options = f"--id night --ray {address} --shards 2 --workers 1 --device cpu --only varlen-chunks --budget {budget}"
    places = ["--reports", str(tmp_path / "reports"), "--corpus", str(tmp_path / "corpus")]
    night = subprocess.Popen(
        [sys.executable, "-m", "statecheck", "nightly", *options.split(), *places],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(_running()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    # Until both have imported torch and have tried something.
    time.sleep(20.0)
    if event == "Ctrl-C":
        night.send_signal(signal.SIGINT)
    else:
        os.kill(_running()[0], signal.SIGKILL)
    output, _ = night.communicate()
    whole = CampaignRecord.load(tmp_path / "reports/campaigns/night/campaign.json")
    expected = (2, True, False) if event == "Ctrl-C" else (0, False, True)
    assert (night.returncode, whole.interrupted, whole.complete) == expected, output
    assert whole.examples > 0, output
    assert "shard 1/2: " in output
    assert "shard 2/2: " in output
    assert _running() == []
