"""A campaign on a Ray cluster that loses a machine and gets another comes to the same as one that nobody disturbs.

`python -m tests.campaign.shards.ray_cluster` runs both on this machine, on clusters of pretended machines with a core each. The
subject is a broken copy of the implementation, so that there is something to find, and to lose.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.shards.ray_actors import Cluster, Run
from statecheck.campaign.shards.ray_cluster import run_on_ray
from statecheck.campaign.shards.sharding import Cut
from statecheck.execution.variants import broken_copy, implementation
from tests.breakages.broken import ROOT
from tests.breakages.stateless import STATELESS

_MEMORY = 80 * 2**20
_ONLY = "chunk and not kernel"
# Who is gone is missed within two seconds, and not within half a minute.
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


@dataclass
class Machines:
    """A cluster of pretended machines; the first of `nodes` is the one that will be lost."""

    cluster: Any
    nodes: list[Any]

    @property
    def address(self) -> str:
        address: str = self.cluster.address
        return address

    def add(self) -> None:
        self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=_MEMORY))

    def lose(self) -> None:
        """Kill all processes of a machine at once."""
        self.cluster.remove_node(self.nodes.pop(0), allow_graceful=False)


@contextmanager
def machines(count: int) -> Iterator[Machines]:
    """`count` machines with a core each, beside a head that does no unit."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    kind = import_module("ray.cluster_utils").Cluster
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _MEMORY}
    found = Machines(kind(initialize_head=True, head_node_args=head | {"_system_config": _HEALTH}), [])
    try:
        for _ in range(count):
            found.add()
        yield found
    finally:
        import_module("ray").shutdown()
        found.cluster.shutdown()


@contextmanager
def disturbed(found: Machines, when: Callable[[], bool]) -> Iterator[Callable[[CampaignRecord], None]]:
    """As soon as `when` says so, a machine is lost; another comes when the campaign tells what it yields the next time."""
    over, lost = threading.Event(), threading.Event()

    def lose() -> None:
        while not over.wait(0.05):
            if when():
                found.lose()
                lost.set()
                return

    def add(_: CampaignRecord) -> None:
        # Ray can do this in the main thread only.
        if lost.is_set() and not over.is_set():
            over.set()
            found.add()

    thread = threading.Thread(target=lose)
    thread.start()
    try:
        yield add
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Outcome:
    """What may not depend on machines."""

    buckets: tuple[str, ...]
    examples: tuple[tuple[str, int], ...]


def outcome(record: CampaignRecord) -> Outcome:
    examples = sorted((one.name, one.examples) for one in record.properties)
    return Outcome(tuple(sorted(one.id for one in record.buckets)), tuple(examples))


def differences(one: Outcome, other: Outcome) -> list[str]:
    """A sentence for each bucket and each property in which they are not the same."""
    buckets = [f"bucket {name} was found once" for name in sorted({*one.buckets} ^ {*other.buckets})]
    pairs = zip(one.examples, other.examples, strict=True)
    counts = [f"{mine[0]}: {mine[1]} examples, and {theirs[1]}" for mine, theirs in pairs if mine != theirs]
    return buckets + counts


class _Campaigns:
    """Campaigns over the same work, each on machines and in folders of its own."""

    def __init__(self, plan: Plan, cluster: Cluster, cut: Cut, count: int, run: Run | None = None) -> None:
        self._plan, self._cluster, self._cut, self._count, self._run = plan, cluster, cut, count, run

    def undisturbed(self) -> CampaignRecord:
        with machines(self._count) as found:
            return self._on(found, "undisturbed")

    def disturbed(self, seconds: float) -> CampaignRecord:
        """A machine is lost `seconds` after the first unit came back, when all are busy again."""
        back: list[float] = []

        def due() -> bool:
            return bool(back) and time.monotonic() - back[0] > seconds

        with machines(self._count) as found, disturbed(found, due) as watch:

            def told(record: CampaignRecord) -> None:
                back.append(time.monotonic())
                watch(record)

            return self._on(found, "disturbed", told)

    def _on(
        self, found: Machines, name: str, watch: Callable[[CampaignRecord], None] | None = None
    ) -> CampaignRecord:
        folder = Path(self._plan.reports) / name
        plan = replace(self._plan, id=name, reports=str(folder / "reports"), corpus=str(folder / "corpus"))
        cluster = replace(self._cluster, address=found.address)
        return run_on_ray(plan, cluster, cut=self._cut, run=self._run, watch=watch)


def table(records: Sequence[CampaignRecord]) -> Table:
    """A row for each campaign."""
    shown = Table(show_edge=False, pad_edge=False)
    for column in ("campaign", "examples", "buckets", "units", "retried", "machines", "seconds", "complete"):
        shown.add_column(column, justify="left" if column == "campaign" else "right")
    for one in records:
        told = [one.environment.get(f"ray {name}", "") for name in ("units", "retried", "nodes")]
        row = (one.id, f"{one.examples:,}", len(one.buckets), *told, f"{one.seconds:.0f}", one.complete)
        shown.add_row(*map(str, row))
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.shards.ray_cluster")
    parser.add_argument("--examples", type=int, default=4000, help="of a campaign (default 4000)")
    parser.add_argument("--units", type=int, default=8, help="that it is cut into (default 8)")
    parser.add_argument("--machines", type=int, default=3, help="of a cluster (default 3)")
    parser.add_argument("--after", type=float, default=2.0, help="seconds from the first unit to the loss")
    parser.add_argument("--only", default=_ONLY, help=f"which properties (default {_ONLY!r})")
    parser.add_argument("--send", action="store_true", help="send machines a copy of this tree")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as folder:
        variant = STATELESS[0].variant
        broken_copy(variant, implementation(), Path(folder))
        sys.path.insert(0, folder)
        plan = Plan("", variant.package, options.only, examples=options.examples, reports=folder)
        cut = Cut(count=options.units)
        # Pretended machines would also share, and lose, the copy that each machine is sent.
        cluster = Cluster("", shared="" if options.send else str(ROOT), path=(folder,))
        campaigns = _Campaigns(plan, cluster, cut, options.machines)
        records = [campaigns.undisturbed(), campaigns.disturbed(options.after)]
    console.print(table(records), *(trouble for one in records for trouble in one.troubles), sep="\n")
    different = differences(*map(outcome, records))
    print(*different or ["the same buckets and examples"], sep="\n")
    return 0 if not different and all(one.complete for one in records) else 1


if __name__ == "__main__":
    sys.exit(main())
