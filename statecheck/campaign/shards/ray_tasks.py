"""What runs on the machines of a cluster; this module needs no Ray until it does."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord

_SEND_SECONDS = 5.0
Run = Callable[[Plan, Callable[[CampaignRecord], None] | None], CampaignRecord]


def run_unit(plan: Plan, watch: Callable[[CampaignRecord], None] | None) -> CampaignRecord:
    """Run a unit where this is called."""
    from statecheck.campaign.coordinator import run

    return run(plan, None if watch is None else lambda campaign: watch(campaign.current()))


class Mailbox:
    """An actor beside the head: the latest that is known of units which are being done."""

    def __init__(self) -> None:
        self._letters: dict[int, str] = {}

    def put(self, unit: int, text: str) -> None:
        """Leave a record for the head, as JSON; "" says that the unit was begun."""
        self._letters[unit] = text

    def take(self) -> dict[int, str]:
        """What came since the last time."""
        letters, self._letters = self._letters, {}
        return letters


def do_unit(unit: Plan, run: Run, mailbox: Any, shared: str, corpus: Mapping[str, bytes]) -> str:
    """The record of a unit, as JSON. Nothing that an earlier unit left here has an influence on it.

    Args:
        shared: path of the tree, see `Cluster`.
        corpus: files to be replayed, as they were when the campaign began.
    """
    if shared:
        os.chdir(shared)
    mailbox.put.remote(unit.unit, "")
    gpus = tuple(map(str, import_module("ray").get_gpu_ids()))
    sent, sent_at = frozenset[str](), 0.0

    def send(record: CampaignRecord) -> None:
        """Send what the unit has found, soon after it is found, so that it is not lost with the machine."""
        nonlocal sent, sent_at
        buckets, now = frozenset(bucket.id for bucket in record.buckets), time.monotonic()
        if buckets and (buckets - sent or now - sent_at > _SEND_SECONDS):
            sent, sent_at = buckets, now
            mailbox.put.remote(unit.unit, record.to_json())

    with tempfile.TemporaryDirectory(prefix=f"statecheck-unit{unit.unit}-") as folder:
        kept = Path(folder) / "corpus"
        kept.mkdir()
        for name, content in corpus.items():
            (kept / name).write_bytes(content)
        return run(replace(unit, gpus=gpus, reports=f"{folder}/reports", corpus=str(kept)), send).to_json()
