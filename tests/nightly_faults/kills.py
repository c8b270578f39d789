"""Faults in which processes of a campaign are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.nightly_faults.ground import Ground
from tests.nightly_faults.night import CampaignProcess, Night
from tests.nightly_faults.observed import Observed, judged

_TIMES, _SECONDS = 4, 3.0
"""A process is killed within this many seconds after the first finding of a campaign of this many times as many examples."""


def worker_killed(ground: Ground) -> Observed:
    """SIGKILL at random moments to a process that runs the subject."""
    return _killed(ground, "worker", "--isolated")


def server_killed(ground: Ground) -> Observed:
    """The same, to the process that forks the subject's processes."""
    return _killed(ground, "server", "--isolated")


def engine_killed(ground: Ground) -> Observed:
    """The same, to an engine, as the kernel does when memory runs out."""
    return _killed(ground, "engine")


def campaign_killed(ground: Ground) -> Observed:
    """The same, to all processes at once: the next campaign replays what this one left."""
    return _killed(ground, "campaign")


def coordinator_killed(ground: Ground) -> Observed:
    """The same, to the coordinator, whose campaign `--resume` continues."""
    seen = Observed("killed")
    for number in range(ground.kills):
        seen = _resumed_after_kill(ground, number, seen)
    return seen


def _killed(ground: Ground, kind: str, *options: str) -> Observed:
    seen = Observed("killed")
    for number in range(ground.kills):
        night = Night(
            ground, f"{kind}_killed_{number}", "--examples", f"{_TIMES * ground.examples}", *options
        )
        _kill_after_a_finding(night, kind)
        if kind == "campaign":
            night.finish()
            ended = Observed("killed", wrong=tuple(night.survivors()))
        else:
            ended = judged(night, code=1, least=2)
        seen = seen.and_then(ended).and_then(_replayed_by_the_next(ground, night))
    return seen


def _kill_after_a_finding(night: Night, kind: str) -> None:
    night.wait_for(lambda: night.announced)
    time.sleep(random.Random().uniform(0, _SECONDS))
    with suppress(ProcessLookupError):
        if kind == "campaign":
            os.killpg(night.process.pid, signal.SIGKILL)
        for process in _victims(night, kind)[:1]:
            os.kill(process.pid, signal.SIGKILL)


def _victims(night: Night, kind: str) -> Sequence[CampaignProcess]:
    forking = {worker.parent for worker in night.workers}
    servers = [one for one in night.processes if one.pid in forking]
    return {"worker": night.workers, "server": servers, "engine": night.engines}.get(kind, [])


def _replayed_by_the_next(ground: Ground, night: Night) -> Observed:
    """Everything that was announced or pending is in the corpus of the next campaign, and fails there."""
    expected = night.announced | night.pending
    following = Night(ground, f"{night.folder.name}_next", "--examples", "1", place=night.place)
    seen = judged(following, code=1, least=1)
    record = following.record
    replayed = {replay.file: replay.verdict for replay in record.corpus} if record is not None else {}
    failed = {name[-15:-5] for name, verdict in replayed.items() if verdict == "FAILED"}
    wrong = [f"bucket {bucket} is not replayed by the next campaign" for bucket in sorted(expected - failed)]
    wrong += [f"{name}: {verdict}" for name, verdict in replayed.items() if verdict != "FAILED"]
    return seen.and_then(Observed(seen.code, wrong=tuple(wrong)))


def _resumed_after_kill(ground: Ground, number: int, seen: Observed) -> Observed:
    name = f"killed_{number}"
    wanted = _TIMES * ground.examples
    night = Night(ground, name, "--examples", f"{wanted}")
    night.wait_for(lambda: night.announced)
    time.sleep(random.Random().uniform(0, _SECONDS))
    night.kill()
    night.finish()
    before = night.record.examples if night.record is not None else 0
    announced, survivors = night.announced, night.survivors()
    lost = [f"bucket {bucket} is lost in the crash" for bucket in sorted(announced - night.kept)]
    again = Night(ground, name, "--resume", place=night.place)
    ended = judged(again, code=1, says=["goes on after"], least=2)
    after = again.record.examples if again.record is not None else 0
    forgotten = [f"{bucket} is forgotten" for bucket in sorted(announced - again.announced)]
    sums = [] if after >= max(before, wanted) else [f"{before} and then {after} examples"]
    wrong = (*survivors, *lost, *forgotten, *sums)
    return seen.and_then(Observed(ended.code, wrong=wrong, seconds=night.seconds)).and_then(ended)
