"""The engines of a campaign, each a process with a pipe, on one of the campaign's devices."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from properties.harness.nightly.engine import EngineSetting, Explore, Listen, Replay, main
from properties.harness.nightly.gpus import Gpu

Work = Explore | Replay | Listen
_STOP_SECONDS = 5.0


@dataclass(eq=False)
class Seat:
    """An engine, what it is busy with, and how many examples of that it has told of."""

    process: BaseProcess
    pipe: Connection
    gpu: Gpu
    work: Work | None = None
    examples: int = 0

    def give(self, work: Work) -> None:
        self.work, self.examples = work, 0
        # One that has died since is found out when it is listened to.
        with suppress(BrokenPipeError):
            self.pipe.send(work)

    def dismiss(self) -> None:
        """Ask it to stop where it is idle; it is gone when this returns."""
        if self.work is None and self.process.is_alive():
            with suppress(BrokenPipeError):
                self.pipe.send(None)
            self.process.join(timeout=_STOP_SECONDS)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.pipe.close()


def hired(setting: EngineSetting, gpu: Gpu) -> Seat:
    """A new engine on the device."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=main, args=(setting, theirs), daemon=True)
    # Ctrl-C is the coordinator's to handle, from the first moment of an engine's life.
    with _uninterrupted():
        process.start()
    theirs.close()
    return Seat(process, ours, gpu)


class _uninterrupted:  # noqa: N801 - reads as a statement
    """While it is entered, processes that are started ignore Ctrl-C; in threads but the main one there is nothing to do."""

    def __enter__(self) -> None:
        self._handler = None
        with suppress(ValueError):
            self._handler = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *details: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
