"""A process that calls a port's functions, with limits on time and memory: a library may end it, and nothing else."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from statecheck import rooms
from statecheck.case.faults import Fault, Faulted, death, hang
from statecheck.util.decode import format_value
from statecheck.workers import limits
from statecheck.workers.forkserver import NO_DEVICE, Fork, Surroundings, fork, move_to, surroundings
from subjects.sequences.protocol import PortModule

_LONGEST = 300
_UNKNOWN_MEGABYTES = 400.0
_LINUX = sys.platform == "linux"
"""Elsewhere, libraries of the system do not work in a fork of a process that has loaded them, and there is no `/proc`."""


class PortError(Exception):
    """What a port's function raised in its process: here a type of the same name, with the same message."""


class ServedModel:
    """The process as this one sees it. It is forked from one that has imported the port, and has nothing of another model.

    Args:
        port: whose functions the process calls, and whose limits hold there.
    """

    def __init__(self, port: PortModule) -> None:
        self._port = port
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        name = port.module.__name__
        what = Fork(f"{__name__}:main", (surroundings(), name, port.megabytes), name="model")
        self._pipe, theirs = Pipe()
        with theirs:
            descriptors = theirs.fileno(), self._errors.fileno()
            self._process = fork(NO_DEVICE, what, *descriptors, own=name if _LINUX else __name__)

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
            if not self._pipe.poll(self._port.seconds):
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


def plain(name: str, value: Any) -> Any:
    """A function's result as numbers, lists and tuples: logits may be arrays.

    Raises:
        ValueError: an operation that has no result returned neither None nor a truth value.
    """
    if name in ("extend", "generate") and failed(value):
        return False
    if name == "extend":
        return [[float(one) for one in _flat(row)] for row in value]
    if name == "generate":
        return [int(token) for token in _flat(value)]
    if name == "length":
        return int(value)
    if name == "states":
        return [(str(state), [float(one) for one in _flat(numbers)]) for state, numbers in value]
    if name == "effects":
        return {str(effect): int(count) for effect, count in dict(value).items()}
    said = truth(value)
    if said is None and value is not None:
        # A library's 0 may mean success, as in C, or that nothing happened.
        rule = "None where it happened, True or False"
        raise ValueError(f"{name} = {format_value(value)}, but should be {rule} [docs/sequences.md]")
    return False if said is False else None


def truth(value: Any) -> bool | None:
    """A truth value of Python, or an array's of one element, as a bool; None for anything else."""
    if type(value) is bool:
        return value
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        found = item()
        return found if type(found) is bool else None
    return None


def failed(value: Any) -> bool:
    """Whether a result says that the operation failed, and that nothing has changed."""
    return truth(value) is False


def _flat(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def _limit_memory(megabytes: int) -> None:
    """Beside what it has by now, as far as the system has such a limit: macOS takes the call and does nothing, Windows has none."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = _used_bytes() + (megabytes << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _used_bytes() -> int:
    """Addresses that the process uses: libraries with their code take many times the memory that they need."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if _LINUX else 0
    return pages * os.sysconf("SC_PAGESIZE")


def main(descriptor: int, errors: int, inherited: Surroundings, module: str, megabytes: int) -> None:
    """The process, from the fork to its end: answer calls until the other end is closed.

    A process that had threads when it was forked may wait for them forever, so it begins anew.
    """
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    move_to(*inherited)
    if _forked_from_threads():
        _begin_anew(descriptor, module, megabytes)
    serve(Connection(descriptor), module, megabytes)


def _forked_from_threads() -> bool:
    return _LINUX and len(list(Path(f"/proc/{os.getppid()}/task").iterdir())) > 1


def _begin_anew(descriptor: int, module: str, megabytes: int) -> NoReturn:
    os.set_inheritable(descriptor, True)
    command = [sys.executable, "-m", __name__, str(descriptor), module, str(megabytes)]
    os.execve(command[0], command, {**os.environ, **rooms.variables()})  # noqa: S606 - a command of our own


def serve(pipe: Connection, module: str, megabytes: int) -> None:
    """Answer calls until the other end is closed; what the library prints goes nowhere."""
    from subjects.sequences.library import Handles

    handles = Handles(PortModule.of(importlib.import_module(module)))
    _limit_memory(megabytes)
    with suppress(EOFError):
        while True:
            method, arguments = pipe.recv()
            pipe.send(_answer(handles, method, arguments))


def _answer(handles: Any, method: str, arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "returned", getattr(handles, method)(*arguments)
    except NotImplementedError as error:
        return "not offered", str(error)
    except Exception as error:
        return "raised", (type(error).__name__, str(error))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
