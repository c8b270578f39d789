"""The cluster that a campaign runs on, and its actors there; this module needs no Ray until one of them works."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.text.command_lines import pip_line

_NOT_SHIPPED = [".git", ".venv", ".hypothesis", "reports", "build", "**/__pycache__", "**/.*_cache"]
_TELL_SECONDS = 5.0
_CONNECT_SECONDS = 10.0
Run = Callable[[Plan, Callable[[CampaignRecord], None] | None], CampaignRecord]


@dataclass(frozen=True)
class Cluster:
    """The cluster, and how its machines get at this tree.

    Args:
        address: "auto", "host:6379" or "ray://host:10001".
        shared: path of the tree on every machine; "" sends each a copy.
        path: folders for PYTHONPATH that every machine has, such as that of the subject.
        patience: seconds without any machine that could do a unit, after which the campaign ends.
    """

    address: str
    shared: str = ""
    path: tuple[str, ...] = ()
    patience: float = 600.0

    @property
    def runtime(self) -> dict[str, Any]:
        """Ray's runtime environment of the campaign's actors."""
        path = os.pathsep.join(filter(None, (self.shared, *self.path)))
        variables = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"} | ({"PYTHONPATH": path} if path else {})
        return {"env_vars": variables, **({} if self.shared else _shipped())}


def _shipped() -> dict[str, Any]:
    """The tree, or the installed package, which has all of it inside."""
    if rooms.is_checkout():
        return {"working_dir": str(rooms.FOLDER), "excludes": _NOT_SHIPPED}
    return {"py_modules": [str(rooms.PACKAGE)]}


def join(ray: Any, cluster: Cluster) -> None:
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


def imported() -> Any:
    """The module `ray`.

    Raises:
        ValueError: Ray is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise ValueError(
            f"ray = not installed, but should be: {pip_line('ray>=2.50')} (the extra `ray`) [run_on_ray]"
        ) from error


class Mailbox:
    """An actor beside the head: the latest that is known of units which are being done."""

    def __init__(self) -> None:
        self._letters: dict[int, str] = {}

    def put(self, unit: int, text: str) -> None:
        """Leave a record for the head, as JSON."""
        self._letters[unit] = text

    def take(self) -> dict[int, str]:
        """What came since the last time."""
        letters, self._letters = self._letters, {}
        return letters


class UnitActor:
    """An actor that does units, on one GPU or one machine.

    Args:
        shared: path of the tree, see `Cluster`.
        corpus: names of the files to be replayed.
    """

    def __init__(self, run: Run, mailbox: Any, shared: str, corpus: frozenset[str]) -> None:
        self._run, self._mailbox, self._corpus = run, mailbox, corpus
        self._told, self._told_at = frozenset[str](), 0.0
        if shared:
            os.chdir(shared)

    def ready(self) -> None:
        """Answers once the machine has the tree."""

    def do(self, unit: Plan) -> str:
        """The record of a unit, as JSON. Nothing that an earlier unit left here has an influence on it."""
        self._told = frozenset()
        gpus = tuple(map(str, import_module("ray").get_gpu_ids()))
        with tempfile.TemporaryDirectory(prefix=f"statecheck-unit{unit.unit}-") as folder:
            corpus = Path(folder) / "corpus"
            if unit.replayed:
                self._copy(Path(unit.corpus), corpus)
            plan = replace(unit, gpus=gpus, reports=f"{folder}/reports", corpus=str(corpus))
            return self._run(plan, lambda record: self._tell(unit.unit, record)).to_json()

    def _copy(self, source: Path, target: Path) -> None:
        """What was in the corpus when the campaign began: the head adds to it, and it may lie on a shared disk."""
        target.mkdir()
        for name in sorted(self._corpus):
            shutil.copy(source / name, target / name)

    def _tell(self, unit: int, record: CampaignRecord) -> None:
        """Send what the unit has found, soon after it is found, so that it is not lost with the machine."""
        found, now = frozenset(bucket.id for bucket in record.buckets), time.monotonic()
        if found and (found - self._told or now - self._told_at > _TELL_SECONDS):
            self._told, self._told_at = found, now
            self._mailbox.put.remote(unit, record.to_json())
