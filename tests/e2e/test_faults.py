"""Campaigns go on when something around them fails, and lose no failing input."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.ground import BrokenSubject, ground
from tests.e2e.night import CampaignProcess, CampaignRun

pytestmark = pytest.mark.slow
_TIMES, _SECONDS = 2, 1.5
"""A process is killed within this many seconds after the first finding of a campaign of this many times as many examples."""


@pytest.fixture(scope="module")
def here() -> Iterator[BrokenSubject]:
    with ground() as found:
        yield found


def require_ended(night: CampaignRun, least: int = 2) -> None:
    """Wait for the campaign's end, and hold what there is against what there should be; `least`: buckets to be found."""
    code = night.finish()
    assert (code, night.survivors()) == (1, []), night.output[-6000:]
    assert night.announced - night.kept == set(), "buckets are lost"
    assert len(night.announced) >= least
    assert "statecheck/cli/main.py" not in night.output, "a traceback of the coordinator"
    assert night.record is not None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("worker", ("--isolated",)),
        ("server", ("--isolated",)),
        ("engine", ()),
        ("coordinator", ()),
        ("campaign", ()),
    ],
)
def test_a_failure_is_kept_whatever_is_killed_and_replayed_by_the_next_campaign(
    kind: str, options: tuple[str, ...], here: BrokenSubject
) -> None:
    night = CampaignRun(here, f"{kind}_killed", "--examples", f"{_TIMES * here.examples}", *options)
    night.wait_for(lambda: night.announced)
    time.sleep(random.Random().uniform(0, _SECONDS))
    _kill(night, kind)
    if kind not in ("campaign", "coordinator"):
        require_ended(night)
        return
    night.finish()
    assert night.survivors() == []
    expected = night.announced | night.pending
    following = CampaignRun(here, f"{kind}_killed_next", "--examples", "1", place=night.place)
    require_ended(following, least=1)
    assert following.record is not None
    replayed = {replay.file[-15:-5]: replay.verdict for replay in following.record.corpus}
    assert expected - set(replayed) == set(), "buckets that the next campaign does not replay"
    assert set(replayed.values()) == {"FAILED"}


def _kill(night: CampaignRun, kind: str) -> None:
    with suppress(ProcessLookupError):
        if kind == "campaign":
            os.killpg(night.process.pid, signal.SIGKILL)
        if kind == "coordinator":
            night.kill()
        for process in _victims(night, kind)[:1]:
            os.kill(process.pid, signal.SIGKILL)


def _victims(night: CampaignRun, kind: str) -> Sequence[CampaignProcess]:
    forking = {worker.parent for worker in night.workers}
    servers = [process for process in night.processes if process.pid in forking]
    return {"worker": night.workers, "server": servers, "engine": night.engines}.get(kind, [])


def test_a_case_is_kept_though_the_disk_fills_up(here: BrokenSubject) -> None:
    with _disk(here.folder / "filling", "4m") as disk:
        night = CampaignRun(here, "disk_fills_up", place=disk)
        night.wait_for(lambda: list(night.corpus.glob("*.json")))
        with (disk / "fill").open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"\0" * size):
                        """Until it is full."""
        code = night.finish()
        assert (code, night.announced - night.kept) == (1, set()), night.output[-6000:]
        assert len(night.announced) >= 2
        assert re.search("could not be written|was not written|took no case", night.output)


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own with room for so much."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no disk can be mounted: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_failure_is_kept_though_an_engine_gets_no_more_memory(here: BrokenSubject) -> None:
    night = CampaignRun(here, "no_memory")
    night.wait_for(lambda: list(night.corpus.glob("*.json")))
    for engine in night.engines:
        with suppress(OSError):
            size = int(Path(f"/proc/{engine.pid}/statm").read_text(encoding="utf-8").split()[0])
            allowed = size * resource.getpagesize()
            resource.prlimit(engine.pid, resource.RLIMIT_AS, (allowed, allowed))
    require_ended(night)
