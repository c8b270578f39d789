"""Who looks at an exhibit, each a function of its name and the twin: found or not, and the words that were said.

All but compute-sanitizer run the exhibit in a worker, so that a crash and a hang are found as well.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from statecheck.case.faults import Fault
from statecheck.workers.run_in_worker import run_in_worker
from tests.gallery.exhibit import Twin
from tests.gallery.exhibits import BY_NAME

_RUNS = "tests.gallery.runs"
_SEEDS = {"shuffled": 4, "interleaved": 8}
_SCHEDULES = ["", "reversed", *(f"{kind}:{seed}" for kind, count in _SEEDS.items() for seed in range(count))]
_REPEATS = 50
_SECONDS, _ENDLESS_SECONDS = 60.0, {"cpu": 2.0, "cuda": 15.0}
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Detection:
    """`found` is None where the detector did not run."""

    found: bool | None
    words: str = ""


Detector = Callable[[str, Twin], Detection]


def differential(name: str, twin: Twin) -> Detection:
    """All bytes against the rule, executed on a CPU."""
    return _told(_in_worker("differs", name, twin, "cpu", device="cpu"))


def orders(name: str, twin: Twin) -> Detection:
    """The same in other orders of the programs."""
    if BY_NAME[name].endless and twin == "broken":
        return Detection(None, "it never ends")
    return _told(_in_worker("differs_in_orders", name, twin, _SCHEDULES, device="cpu"))


def sanitizer(name: str, twin: Twin) -> Detection:
    """The sanitizer. What kills its worker, it has missed."""
    said = _in_worker("sanitized", name, twin, device="cpu")
    return Detection(False, f"missed: {said.kind}") if isinstance(said, Fault) else _told(said)


def gpu(name: str, twin: Twin) -> Detection:
    """All bytes against the rule on a GPU, many times over, and what becomes of the worker."""
    return _told(_in_worker("differs", name, twin, "cuda", _REPEATS, device="cuda"))


def tool(which: str, name: str, twin: Twin) -> Detection:
    """One of compute-sanitizer's tools, on a script that runs this twin and nothing else."""
    program = _compute_sanitizer()
    if program is None:
        return Detection(None, "compute-sanitizer is not installed")
    if BY_NAME[name].endless and twin == "broken":
        return Detection(None, "it never ends")
    # Others know no errors of the API, and refuse to be asked.
    extra = ["--report-api-errors", "no"] if which == "memcheck" else []
    script = [sys.executable, "-m", __package__, "run", name, twin, "--device", "cuda"]
    return _summary(_output([program, "--tool", which, *extra, *script]))


CPU: Mapping[str, Detector] = {"differential": differential, "orders": orders, "sanitizer": sanitizer}
TOOLS: Mapping[str, Detector] = {one: partial(tool, one) for one in ("memcheck", "initcheck", "racecheck")}
CUDA: Mapping[str, Detector] = {"gpu": gpu, **TOOLS}


def machine(device: str) -> str:
    """The name of the machine, for results; asked in a worker, so that this process stays off the device."""
    named = run_in_worker(f"{_RUNS}:machine", device, device=device)
    assert isinstance(named, str), named
    return named


def _in_worker(function: str, name: str, twin: Twin, *arguments: object, device: str) -> str | Fault:
    endless = BY_NAME[name].endless and twin == "broken"
    limit = _ENDLESS_SECONDS[device] if endless else _SECONDS
    said: str | Fault = run_in_worker(
        f"{_RUNS}:{function}", name, twin, *arguments, device=device, time_limit=limit
    )
    return said


def _told(said: str | Fault) -> Detection:
    if isinstance(said, Fault):
        return Detection(True, said.kind)
    return Detection(said != "", _ADDRESS.sub("0x…", said))


def _compute_sanitizer() -> str | None:
    return shutil.which("compute-sanitizer", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")


def _output(command: list[str]) -> str:
    """What a script says under the tool; it is killed with everything that it started when it takes too long."""
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        command, env=environment, cwd=root, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            return process.communicate(timeout=4 * _SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "timed out"


def _summary(output: str) -> Detection:
    """What compute-sanitizer's report comes to; without a report it did not run."""
    counts = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)
    if not counts:
        return Detection(None, f"no report: {output.strip()[-200:]}")
    if not any(map(int, counts)):
        return Detection(False)
    lines = (line.strip("= \n") for line in output.splitlines() if line.startswith("========="))
    values = (line for line in lines if line and not line.startswith("COMPUTE-SANITIZER"))
    return Detection(True, _ADDRESS.sub("0x…", next(values, "")))
