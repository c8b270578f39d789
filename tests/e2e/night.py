"""A campaign as a process, what it says, and what is left of what it has found."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from tests.e2e.ground import ONLY, SUBJECT, BrokenSubject
from tests.helpers.modules import ROOT

_POLL_SECONDS = 0.05
_GONE_SECONDS = 60.0
_LIMIT_SECONDS = 600.0
_ANNOUNCED = re.compile(r"^FALSIFIED ([0-9a-f]{10}): ", re.MULTILINE)
_NO_BUDGET = "--examples", "--budget"


@dataclass(frozen=True)
class CampaignProcess:
    """A process as the system sees it."""

    pid: int
    parent: int
    name: str
    command: str


def processes_of(mark: str) -> list[CampaignProcess]:
    """The processes that run with `mark` in their environment, even if their parents have ended."""
    processes = (
        _process(folder, mark.encode()) for folder in Path("/proc").iterdir() if folder.name.isdigit()
    )
    return [process for process in processes if process is not None]


def _process(folder: Path, mark: bytes) -> CampaignProcess | None:
    try:
        if mark not in (folder / "environ").read_bytes():
            return None
        name = (folder / "comm").read_text(encoding="utf-8").strip()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state, parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return CampaignProcess(int(folder.name), int(parent), name, command) if state not in "ZX" else None


class CampaignRun:
    """A campaign on the broken subject, in a folder of its own.

    Args:
        place: where reports and corpus are, by default the campaign's folder.
    """

    def __init__(self, ground: BrokenSubject, name: str, *options: str, place: Path | None = None) -> None:
        self.folder = ground.folder / name
        self.place = place or self.folder
        self.reports, self.corpus = self.place / "reports", self.place / "corpus"
        self.temporary, self.mark = (
            self.folder / "temporary",
            str(self.folder / f"hypothesis{time.time_ns()}"),
        )
        for folder in (self.folder, self.temporary, self.reports):
            folder.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        command = [sys.executable, "-u", "-m", "statecheck", "nightly", *self._options(ground, options)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment(ground),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._output: list[bytes] = []
        assert self.process.stdout is not None
        self._reader = _start_reader(self.process.stdout, self._output)

    def _options(self, ground: BrokenSubject, options: Sequence[str]) -> list[str]:
        given = ["--device", "cpu", "--reports", str(self.reports), "--corpus", str(self.corpus)]
        given += ["--subject", SUBJECT, "--only", ONLY]
        given += [] if "--workers" in options else ["--workers", "1"]
        given += [] if set(options) & set(_NO_BUDGET) else ["--examples", str(ground.examples)]
        return [*given, *options]

    def _environment(self, ground: BrokenSubject) -> dict[str, str]:
        path = os.pathsep.join(map(str, (ROOT, ground.subject_path)))
        usual = {"PYTHONPATH": path, "TMPDIR": str(self.temporary), "HYPOTHESIS_STORAGE_DIRECTORY": self.mark}
        return {**os.environ, **usual}

    @property
    def output(self) -> str:
        return b"".join(self._output).decode(errors="replace")

    def wait_for(self, happened: Callable[[], object]) -> bool:
        """Until that is so; False if the campaign ended before."""
        while not happened():
            if self.process.poll() is not None or time.monotonic() - self.started > _LIMIT_SECONDS:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def finish(self) -> int | None:
        """The exit code, None for a campaign that does not end and is killed."""
        code: int | None
        try:
            code = self.process.wait(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = None
        self._reader.join(timeout=_GONE_SECONDS)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def processes(self) -> list[CampaignProcess]:
        return processes_of(self.mark)

    @property
    def engines(self) -> list[CampaignProcess]:
        """The processes that search."""
        return [process for process in self.processes if process.name == "engine"]

    @property
    def workers(self) -> list[CampaignProcess]:
        """The processes that run the subject."""
        return [process for process in self.processes if process.name == "worker"]

    def survivors(self) -> list[str]:
        """The processes that still run after a while; they are then ended."""
        deadline = time.monotonic() + _GONE_SECONDS
        while (found := processes_of(self.mark)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return [f"{process.command} survives" for process in found]

    @property
    def records(self) -> list[CampaignRecord]:
        return [CampaignRecord.load(path) for path in sorted(self.reports.glob(f"campaigns/*/{FILE}"))]

    @property
    def record(self) -> CampaignRecord | None:
        return self.records[-1] if self.records else None

    @property
    def announced(self) -> set[str]:
        """Buckets that the output or a record names."""
        recorded = {bucket.id for record in self.records for bucket in record.buckets}
        return recorded | set(_ANNOUNCED.findall(self.output))

    @property
    def pending(self) -> set[str]:
        """Buckets of failing inputs that are not in the corpus yet."""
        paths = self.reports.glob("campaigns/*/pending/*.*.*.json")
        return {path.name.split(".")[-3] for path in paths}

    @property
    def kept(self) -> set[str]:
        """Buckets of which there is a case that can be read, wherever it is."""
        return {bucket_of(case).id for case in (*self._saved(), *_printed(self.output))}

    def _saved(self) -> Iterator[Case]:
        for path in sorted(self.corpus.glob("*.json")):
            with suppress(OSError, ValueError):
                yield Case.load(path)


def _start_reader(stream: IO[bytes], output: list[bytes]) -> threading.Thread:
    def read() -> None:
        with stream:
            output.extend(stream)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _printed(text: str) -> Iterator[Case]:
    """Cases that stand in the output as a whole."""
    for start in (found.start() for found in re.finditer(r"^\{$", text, re.MULTILINE)):
        with suppress(ValueError):
            content, _ = json.JSONDecoder().raw_decode(text, start)
            yield Case.from_json(json.dumps(content))
