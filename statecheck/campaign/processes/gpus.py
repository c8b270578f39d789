"""The devices of a campaign: for each GPU a process that shares its workers among the engines, started again when it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from statecheck.report.environment import gpus_here
from statecheck.workers.forkserver import SHARE, Fork, Forked, fork
from statecheck.workers.inherited import surroundings

_STARTS = 5


@dataclass(eq=False)
class Gpu:
    """One device. `index` is "" where there is no choice; `gone` says why it can be used no more."""

    index: str
    address: str = ""
    process: Forked | None = None
    starts: int = 0
    gone: str = ""


@dataclass
class Gpus:
    """The devices that a campaign may use, each by its index in `nvidia-smi`.

    Args:
        workers: processes per device in which the subject runs, each with a spare one.
        shared: the subject runs in such processes; where it runs in the engines, there is nothing to start.
    """

    device: str
    subject: str
    indices: tuple[str, ...]
    shared: bool
    workers: int = 1
    every: list[Gpu] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The address of a socket has room for a hundred letters only.
        self._folder = tempfile.TemporaryDirectory(prefix="statecheck-") if self.shared else None
        for number, index in enumerate(self.indices or ("",)):
            gpu = Gpu(index)
            if self._folder is not None:
                gpu.address = str(Path(self._folder.name) / str(number))
                self._start(gpu)
            self.every.append(gpu)

    @property
    def usable(self) -> list[Gpu]:
        return [gpu for gpu in self.every if not gpu.gone]

    def _start(self, gpu: Gpu) -> None:
        chosen = {"CUDA_VISIBLE_DEVICES": gpu.index} if gpu.index else {}
        gpu.starts += 1
        gpu.process = start_share(self.device, self.subject, self.workers, gpu.address, chosen)

    def watch(self) -> list[str]:
        """Start again what has ended; a sentence for each."""
        messages = []
        for gpu in self.usable:
            if gpu.process is None or gpu.process.is_alive():
                continue
            ended = (
                f"{self.name_of(gpu)}: the process that shares its workers ended with {gpu.process.exitcode}"
            )
            if gpu.starts < _STARTS:
                self._start(gpu)
                messages.append(f"{ended}, and was started again")
            else:
                gpu.gone = f"{ended} for the {gpu.starts}th time"
                messages.append(gpu.gone)
        return messages

    def name_of(self, gpu: Gpu) -> str:
        return f"GPU {gpu.index}" if gpu.index else self.device

    def close(self) -> None:
        for gpu in self.every:
            if gpu.process is not None:
                gpu.process.kill()
        if self._folder is not None:
            self._folder.cleanup()


def start_share(
    device: str, subject: str, workers: int, address: str, variables: Mapping[str, str]
) -> Forked:
    """A process that shares its workers at an address, with `variables` beside those of this process."""
    environment, folder, path = surroundings()
    arguments = (environment | dict(variables), folder, path), device, subject, workers, address
    return fork(device, Fork(SHARE, arguments, name=f"share {Path(address).name}", forks=True))


def device_names(device: str, indices: tuple[str, ...]) -> dict[str, str]:
    """What each device is called, by index; {"cpu": ...} without a GPU."""
    if device == "cpu":
        return {"cpu": _processor()}
    names = {index: name for index, name, _ in gpus_here()}
    return {index: names.get(index, "unknown") for index in (indices or tuple(names)[:1] or ("0",))}


def _processor() -> str:
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
