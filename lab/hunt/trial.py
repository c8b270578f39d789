"""One hunt: the command that a newcomer runs, on a subject with one defect, from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lab.hunt.defects import HuntedDefect, Planted
from statecheck.campaign.record import FILE, CampaignRecord

ROOT = Path(__file__).resolve().parents[2]
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0
"""How long a campaign may take for what is no part of its budget: its start, and its end."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Hunt:
    """What a hunt came to.

    Args:
        examples: of all properties until the first failure; of the whole campaign where there was none.
        failure: CPU seconds of all processes until the first failure, None where nothing was found.
        report: CPU seconds until the command has ended; the report exists then.
        property_id: the property that failed, "" where none did.
    """

    defect: str
    group: str
    seed: int
    examples: int
    failure: float | None
    report: float
    property_id: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is the only hunt for."""
        return self.group, self.defect, self.seed

    @property
    def found(self) -> bool:
        return self.failure is not None


def hunt(defect: HuntedDefect, seed: int, limit: float) -> Hunt:
    """Run `statecheck fuzz` on one worker until the first failure, or for a budget of `limit` seconds.

    Raises:
        RuntimeError: the command ends in another way than with a verdict; its last lines are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="statecheck-hunt-") as name:
        folder = Path(name)
        planted = defect.plant(folder)
        chosen = ["--subject", planted.subject, "--seed", str(seed), "--budget", f"{limit:g}s"]
        with (folder / "output.txt").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *_campaign(planted, folder), *chosen],
                cwd=folder,
                env=new_machine(folder) | dict(planted.variables),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            failure, report, code = _watched(process, folder / "reports", limit)
            output.seek(0)
            written = output.read()
        ended = Hunt(defect.name, defect.group, seed, 0, failure, report)
        found = _campaign_read(ended, folder, code)
        if found is None:
            raise RuntimeError(f"exit {code} of the hunt for {defect.name!r}: {written[-2000:]}")
        return found


def _campaign(planted: Planted, folder: Path) -> list[str]:
    return [
        "statecheck",
        "fuzz",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--reports",
        str(folder / "reports"),
        "-x",
        *planted.options,
    ]


def _campaign_read(ended: Hunt, folder: Path, code: int) -> Hunt | None:
    """With what the campaign's record says; None where there is none."""
    record = _record(folder / "reports")
    if record is None or code not in (0, 1, 2):
        return None
    found = record.buckets[0].property if record.buckets else ""
    if not found:
        return replace(ended, examples=record.examples, failure=None)
    examples = round(record.first_failure.get("examples", record.examples))
    failure = ended.report if ended.failure is None else ended.failure
    return replace(ended, examples=examples, failure=failure, property_id=found)


def new_machine(folder: Path) -> dict[str, str]:
    """The variables of a new machine: nothing is in a cache, and nothing is asked for."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "OMP_NUM_THREADS": "1",
    }


def _watched(
    process: subprocess.Popen[bytes], reports: Path, limit: float
) -> tuple[float | None, float, int]:
    """CPU seconds until the first failing input was on disk, if there was one, and until the end; the exit code."""
    failure, until = None, time.monotonic() + 2 * limit + _PATIENCE_SECONDS
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return failure, usage.ru_utime + usage.ru_stime, process.returncode
        if failure is None and any(_failing(reports)):
            failure = _cpu_seconds(process.pid)
        if time.monotonic() > until:
            process.kill()
        time.sleep(_LOOK_SECONDS)


def _failing(reports: Path) -> Iterator[Path]:
    yield from reports.glob("campaigns/*/pending/*.json")


def _cpu_seconds(session: int) -> float:
    """Of all processes of a session, and of those among their children that have ended."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                # Fields 6 and 14 to 17 of proc(5), which counts from 1 and the name among them.
                ticks += sum(map(int, fields[11:15])) if int(fields[3]) == session else 0
    return ticks / _TICKS


def _record(reports: Path) -> CampaignRecord | None:
    for path in reports.glob(f"campaigns/*/{FILE}"):
        with suppress(OSError, ValueError, json.JSONDecodeError):
            return CampaignRecord.load(path)
    return None
