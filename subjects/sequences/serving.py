"""The process that runs a port's functions: contexts and saved states go by numbers, and calls are answered until the other end is closed."""

from __future__ import annotations

import importlib
import itertools
import os
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from statecheck import rooms
from statecheck.util.decode import format_value
from statecheck.workers.forkserver import Surroundings, move_to
from subjects.sequences.protocol import PortModule

FAILED = False
"""The result of an operation that reports a failure."""
_LINUX = sys.platform == "linux"
"""Elsewhere, libraries of the system do not work in a fork of a process that has loaded them, and there is no `/proc`."""


class Handles:
    """Contexts and saved states by number, in the process where the port's functions run."""

    def __init__(self, port: PortModule) -> None:
        self.port = port
        self._contexts: dict[int, Any] = {}
        self._saved: dict[str, Any] = {}
        self._numbers = itertools.count()

    def features(self, model: str, function: str) -> Mapping[str, Sequence[Any]]:
        """See `PortModule.features`."""
        return self.port.features(model, function)

    def chooses_experts(self, model: str) -> bool:
        """See `PortModule.chooses_experts`."""
        return self.port.chooses_experts(model)

    def new(self, model: str, seed: int, features: Mapping[str, Any]) -> int:
        """Make a context; its number."""
        number = next(self._numbers)
        self._contexts[number] = self._function("new")(model, seed, **features)
        return number

    def call(self, name: str, context: int, arguments: Sequence[Any], features: Mapping[str, Any]) -> Any:
        """Call a function of the port for a context.

        Raises:
            NotImplementedError: the port has no such function, or says that the library does not offer this.
        """
        return plain(name, self._function(name)(self._contexts[context], *arguments, **features))

    def save(self, context: int, sequence: int, name: str) -> Any:
        """Save a sequence; the state stays here."""
        state = self._function("save")(self._contexts[context], sequence)
        if failed(state):
            return FAILED
        self._saved[name] = state
        return None

    def load(self, context: int, sequence: int, name: str) -> Any:
        """Load what was saved under the name."""
        return plain("load", self._function("load")(self._contexts[context], sequence, self._saved[name]))

    def load_damaged(self, context: int, sequence: int, damage: str, name: str) -> Any:
        """Load a damaged copy of what was saved under the name."""
        done = self._function("load_damaged")(self._contexts[context], sequence, damage, self._saved[name])
        return plain("load_damaged", done)

    def pickled(self, name: str) -> bytes:
        """A save, for another process.

        Raises:
            NotImplementedError: it cannot leave this process.
        """
        try:
            return pickle.dumps(self._saved[name])
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise NotImplementedError(f"load in another process: {error}") from error

    def unpickle(self, name: str, data: bytes) -> None:
        """Take what another process has saved."""
        self._saved[name] = pickle.loads(data)  # noqa: S301 - of a process of our own

    def close(self, context: int) -> None:
        """Close a context, if it is in this process; an earlier one may have had it."""
        held, close = self._contexts.pop(context, None), self.port.function("close")
        if held is not None and close is not None:
            close(held)

    def forget(self) -> None:
        """Close all contexts, and drop what was saved."""
        for number in list(self._contexts):
            self.close(number)
        self._saved.clear()

    def _function(self, name: str) -> Any:
        found = self.port.function(name)
        if found is None:
            raise NotImplementedError(f"{name} is not in the port")
        return found


def plain(name: str, value: Any) -> Any:
    """A function's result as numbers, lists and tuples: logits may be arrays.

    Raises:
        ValueError: an operation that has no result returned neither None nor a truth value.
    """
    if name in ("extend", "generate") and failed(value):
        return False
    if name == "extend":
        return [_floats(row) for row in value]
    if name == "generate":
        return [int(token) for token in _flat(value)]
    if name == "length":
        return int(value)
    if name == "states":
        return [(str(state), list(_numbers(array))) for state, array in value]
    if name == "reuse":
        return value and ([int(token) for token in value[0]], int(value[1]))
    if name == "effects":
        return {str(effect): int(count) for effect, count in dict(value).items()}
    said = truth(value)
    if said is None and value is not None:
        # A library's 0 may mean success, as in C, or that nothing happened.
        rule = "None where it happened, True or False"
        raise ValueError(f"{name} = {format_value(value)}, but should be {rule} (docs/sequences.md)")
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


def _floats(row: Any) -> Any:
    """Numbers, or lists of them where a row has logits behind each of its tokens."""
    listed = _flat(row)
    return [_floats(part) for part in listed] if isinstance(listed, (list, tuple)) else float(listed)


def _numbers(array: Any) -> Iterator[float]:
    """The numbers of an array of any shape, or of nested lists, in their order."""
    listed = _flat(array)
    if isinstance(listed, (list, tuple)):
        for part in listed:
            yield from _numbers(part)
    else:
        yield float(listed)


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
