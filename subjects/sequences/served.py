"""A process that calls a port's functions, with limits on time and memory: a library may end it, and nothing else."""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import IO, Any

from statecheck.case.raised import Fault, Faulted, death, hang
from statecheck.util import limits
from statecheck.workers.forkserver import NO_DEVICE, Fork, fork, surroundings
from subjects.sequences.protocol import PortModule

_LONGEST = 300
_SERVING = f"{__package__}.serving"
_UNKNOWN_MEGABYTES = 400.0
_LINUX = sys.platform == "linux"
"""Elsewhere, libraries of the system do not work in a fork of a process that has loaded them, and there is no `/proc`."""


class PortError(Exception):
    """An exception of a port's function in its process: here a type of the same name, with the same message."""


class ServedModel:
    """The parent's view of a process that is forked from one with the port imported, and has nothing of another model.

    Args:
        port: whose functions the process calls, and whose limits hold there.
    """

    def __init__(self, port: PortModule) -> None:
        self._port = port
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        name = port.module.__name__
        program = Fork(f"{_SERVING}:main", (surroundings(), name, port.megabytes), name="model")
        self._pipe, theirs = Pipe()
        with theirs:
            descriptors = theirs.fileno(), self._errors.fileno()
            self._process = fork(NO_DEVICE, program, *descriptors, own=name if _LINUX else _SERVING)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.is_alive()

    @property
    def megabytes(self) -> float:
        """Memory that it shares with no other process; where the system does not say it, as much as an environment of its own takes."""
        with suppress(OSError, ValueError, IndexError):
            rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
            return int(rollup.partition("Private_Dirty:")[2].split()[0]) / 1024
        return _UNKNOWN_MEGABYTES

    def call(self, method: str, *arguments: Any) -> Any:
        """Have it call a method of `library.Handles`.

        Raises:
            Faulted: it ended, or took too long.
            NotImplementedError: the library does not offer this.
            PortError: the function raised anything else.
        """
        try:
            self._pipe.send((method, arguments))
            if not self._process.wait_for_message(self._pipe, self._port.seconds):
                self.end()
                raise Faulted(hang(self._port.seconds))
            kind, value = self._pipe.recv()
        except (EOFError, OSError):
            raise Faulted(self._death()) from None
        if kind == "not offered":
            raise NotImplementedError(value)
        if kind == "raised":
            name, message = value
            raise type(name, (PortError,), {})(message)
        return value

    def forget(self) -> None:
        """Close all contexts; a process that cannot is replaced later."""
        with suppress(Faulted, PortError):
            self.call("forget")

    def end(self) -> None:
        """End it now. Nothing can be asked any more."""
        self._process.kill()
        self._pipe.close()
        self._errors.close()

    def _death(self) -> Fault:
        fault, said = death(self._process.kill(limits.EXIT)), self._last_words()
        self.end()
        return Fault(fault.kind, f"{fault.message}: {said}" if said else fault.message)

    def _last_words(self) -> str:
        """The last line about an assertion, or the last line at all, without the path of the file."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        about = [line for line in lines if "ASSERT" in line.upper() or "error" in line.lower()] or lines
        words = about[-1].split() if about else []
        return " ".join(word.rpartition("/")[2] for word in words)[:_LONGEST]

    def __del__(self) -> None:
        with suppress(Exception):
            self.end()
