"""A process that calls a port's functions, with limits on time and memory: a library may end it, and nothing else."""

from __future__ import annotations

import importlib
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from statecheck import rooms
from statecheck.case.faults import Fault, Faulted, death, hang
from subjects.sequences.protocol import PortModule

_LENGTH = 8
_ENDED_SECONDS = 5.0
_LONGEST = 300


class PortError(Exception):
    """What a port's function raised in its process, by the name of its type and its message."""


class ServedModel:
    """The process as this one sees it.

    Args:
        port: whose module the process imports, and whose limits hold there.
    """

    def __init__(self, port: PortModule) -> None:
        self._port = port
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [sys.executable, "-m", "subjects.sequences.served", port.module.__name__]
        given = rooms.added_to({**os.environ, "STATECHECK_MEGABYTES": str(port.megabytes)})
        given["PYTHONPATH"] = os.pathsep.join(filter(None, [*sys.path, given.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=given
        )

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def call(self, name: str, arguments: tuple[Any, ...], features: Mapping[str, Any]) -> Any:
        """Have it call a function.

        Raises:
            Faulted: it ended, or took too long.
            NotImplementedError: the library does not offer this.
            PortError: the function raised anything else.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, (name, arguments, dict(features)))
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(self._port.seconds):
                    self.end()
                    raise Faulted(hang(self._port.seconds))
            kind, value = receive(self._process.stdout)
        except (EOFError, BrokenPipeError):
            raise Faulted(self._death()) from None
        if kind == "not offered":
            raise NotImplementedError(value)
        if kind == "raised":
            raise PortError(value)
        return value

    def forget(self) -> None:
        """Close all contexts; a process that cannot is replaced later."""
        with suppress(Faulted, PortError):
            self.call("forget", (), {})

    def end(self) -> None:
        """End it now."""
        self._process.kill()
        self._process.wait()

    def _death(self) -> Fault:
        try:
            status = self._process.wait(_ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            status = self._process.returncode
        fault, said = death(status), self._last_words()
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
    """A function's result as numbers, lists and tuples: logits may be arrays."""
    if name == "extend" and value is not False:
        return [[float(one) for one in _flat(row)] for row in value]
    if name == "generate" and value is not False:
        return [int(token) for token in _flat(value)]
    if name == "length":
        return int(value)
    return False if value is False else None


def _flat(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def send(pipe: IO[bytes], value: Any) -> None:
    """Write a value, its length before it."""
    data = pickle.dumps(value)
    pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next value.

    Raises:
        EOFError: the other end is closed.
    """
    head = pipe.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    data = pipe.read(int.from_bytes(head, "little"))
    return pickle.loads(data)  # noqa: S301 - from a process of our own


def _limit_memory() -> None:
    """As far as the system has such a limit: macOS takes the call and does nothing, Windows has none."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = int(os.environ["STATECHECK_MEGABYTES"]) << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(module: str) -> None:
    """Answer calls until the other end is closed; what the library prints goes nowhere."""
    from subjects.sequences.library import Handles

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _limit_memory()
    handles = Handles(PortModule.of(importlib.import_module(module)))
    while True:
        try:
            name, arguments, features = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(answers, _answer(handles, name, arguments, features))


def _answer(handles: Any, name: str, arguments: tuple[Any, ...], features: dict[str, Any]) -> tuple[str, Any]:
    try:
        if name == "forget":
            return "returned", handles.forget()
        return "returned", handles.call(name, arguments, features)
    except NotImplementedError as error:
        return "not offered", str(error)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    serve(sys.argv[1])
