"""Clusters of pretended machines, each with one core, which are lost and replaced while a campaign runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from statecheck.campaign.record import CampaignRecord

_MEMORY = 80 * 2**20
# A lost machine is noticed within two seconds, in place of half a minute.
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


def outcome(record: CampaignRecord) -> tuple[list[str], list[tuple[str, int]]]:
    """What may not depend on machines: the buckets, and the examples of each property."""
    examples = sorted((row.name, row.examples) for row in record.properties)
    return sorted(bucket.id for bucket in record.buckets), examples
