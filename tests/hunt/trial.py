"""One hunt: the command that a newcomer runs, on a subject with one defect, from an empty folder until the first report exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.workers.recovered import UNFINISHED
from tests.hunt.defects import HuntedDefect

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
    def found(self) -> bool:
        return self.failure is not None


def hunt(defect: HuntedDefect, seed: int, limit: float) -> Hunt:
    """Run `statecheck fuzz` on one worker until its first failure, or for `limit` seconds.

    Raises:
        RuntimeError: the command ends in another way than with a verdict; its last lines are in the message.
    """
    with tempfile.TemporaryDirectory(prefix="statecheck-hunt-") as name:
        folder = Path(name)
        subject = defect.plant(folder)
        reports = folder / "reports"
        options = ["--subject", subject, "--device", "cpu", "--workers", "1", "--seed", str(seed)]
        options += ["--budget", f"{limit:g}s", "--reports", str(reports), "-x"]
        with (folder / "output.txt").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "statecheck", "fuzz", *options],
                cwd=folder,
                env=_environment(folder),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            failure, report, code = _watched(process, reports, limit)
            output.seek(0)
            written = output.read()
        record = _record(reports)
        if record is None or code not in (0, 1, 2):
            raise RuntimeError(f"exit {code} of the hunt for {defect.name!r}: {written[-2000:]}")
        found = record.buckets[0].property_id if record.buckets else ""
        if not found:
            return Hunt(defect.name, defect.group, seed, record.examples, None, report)
        examples = round(record.first_failure.get("examples", record.examples))
        return Hunt(
            defect.name, defect.group, seed, examples, report if failure is None else failure, report, found
        )


def _environment(folder: Path) -> dict[str, str]:
    """As of a new machine: nothing is in a cache, and no variable asks for anything."""
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
    for path in reports.glob("campaigns/*/pending/*.json"):
        if not path.name.endswith(UNFINISHED):
            yield path


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
