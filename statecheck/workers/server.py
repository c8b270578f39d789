"""The worker's side: it answers messages, see `port`, and reports when Triton compiles.

Compiling takes seconds, and is no sign of a call that hangs.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from statecheck.case.raised import (
    DIED,
    MEMORY,
    Fault,
    Faulted,
    error_text,
    fault_of_error,
    fault_of_kind,
    message_of,
    name_of,
    wants_memory,
)
from statecheck.case.values import Outcome, Raised, Step
from statecheck.execution.executors import LocalExecutor, ordinary_port
from statecheck.kernels import launch_counts
from statecheck.subject import Subject, load, loading
from statecheck.workers.forkserver import Surroundings, kernels_of, move_to
from statecheck.workers.port import COMPILING, DONE, ERROR, FAULT, Answer

Message = tuple[bool, Sequence[Step]]
"""Whether waiting for the device is refused, and steps of which the last is a call."""


def preload() -> None:
    """What every worker needs; where torch was left out, it stays out."""
    if "torch" in sys.modules:
        from statecheck.execution import in_process as port  # noqa: F401 - for the first call, which has little time

        loading.preload()


class Server:
    """Answers requests one after another until the parent is gone."""

    def __init__(self, device: str, way: Connection) -> None:
        self.device = device
        self._way = way
        self._subject: Subject | None = None
        self._port: LocalExecutor | None = None
        self._compiled = False
        """Whether Triton has compiled since the last answer."""

    def run(self) -> None:
        """Answer until the parent is gone."""
        while True:
            try:
                method, *arguments = pickle.loads(self._way.recv_bytes())  # noqa: S301 - our own parent's
                self._way.send_bytes(self._answer(method, arguments))
            except (EOFError, OSError):
                return

    def _answer(self, method: str, arguments: Sequence[Any]) -> bytes:
        try:
            kind, value = DONE, getattr(self, method)(*arguments)
        except Faulted as faulted:
            kind, value = FAULT, faulted.fault
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if wants_memory(name_of(type(error)), message_of(error)):
                return self._pickled(FAULT, out_of_memory())
            poison = self._poison()
            if poison is not None:
                kind, value = FAULT, fault_of_error(poison)
            else:
                kind, value = ERROR, _portable(error)
        return self._pickled(kind, value)

    def _pickled(self, kind: str, value: Any) -> bytes:
        compiled, launched = self._compiled, launch_counts.take()
        self._compiled = False
        try:
            return Answer(kind, value, compiled, launched).sent()
        except Exception as error:
            return Answer(ERROR, _portable(error), compiled, launched).sent()

    def _poison(self) -> str | None:
        """The error of a device that cannot be used any more, None if it can."""
        if self.device == "cpu":
            return None
        try:
            _touch(self.device)
        except Exception as error:
            return str(error)
        return None

    def prepare(self, surroundings: Surroundings, subject: str) -> None:
        """Import the subject, if there is one, and have the device ready."""
        move_to(*surroundings)
        if kernels_of(subject, self.device):

            def report(state: str) -> None:
                self._compiled = True
                self._way.send_bytes(Answer(COMPILING, state).sent())

            report_compilations(report)
        if self.device != "cpu":
            try:
                _touch(self.device)
            except Exception as error:
                raise Faulted(Fault(DIED, f"{self.device} does not work: {error}")) from error
        if subject:
            self._subject = load(subject)

    def example(self, begins: bool, messages: Sequence[Message]) -> list[Outcome]:
        """Run messages of the example in hand; the outcomes of the calls of the last one."""
        if self._port is None:
            assert self._subject is not None, "no subject was prepared"
            self._port = ordinary_port(self._subject, self.device)
        port = self._port
        outcomes: list[Outcome | None] = []
        if begins:
            port.begin()
        for refused, steps in messages:
            with port.waiting_refused() if refused else nullcontext():
                outcomes = []
                for step in steps:
                    outcomes.append(port.execute(step))
                    self._require_usable(outcomes[-1])
        port.give_back()
        return [outcome for outcome in outcomes if outcome is not None]

    def _require_usable(self, outcome: Outcome | None) -> None:
        """Raise Faulted where a subject that raised has left the device unusable, whatever it raised."""
        if self.device == "cpu" or not isinstance(outcome, Raised):
            return
        if wants_memory(outcome.exception, outcome.message):
            raise Faulted(out_of_memory())
        poison = self._poison()
        if poison is not None:
            raise Faulted(fault_of_error(poison))


_CROWDED = 0.25
"""The part of the device's memory that other processes hold, at least, where a lack of memory is not the subject's."""


def out_of_memory() -> Fault:
    """A lack of the device's memory, and whether other processes hold it: workers share a GPU, and a wide pool takes gigabytes of each."""
    fault = fault_of_kind(MEMORY)
    with suppress(Exception):
        import torch

        free, total = torch.cuda.mem_get_info()
        others = total - free - torch.cuda.memory_reserved()
        return replace(fault, crowded=others >= _CROWDED * total)
    return fault


def _touch(device: str) -> None:
    """Something small on the device, from beginning to end."""
    import torch

    torch.cuda.synchronize()
    torch.zeros(1, device=device).add_(1).item()


def _portable(error: BaseException) -> Exception:
    """The exception, or one that says the same where it cannot be sent, or would end the parent; a note has its traceback."""
    note = "".join(traceback.format_exception(error))
    portable: Exception = RuntimeError(error_text(error))
    if isinstance(error, Exception):
        with suppress(Exception):
            again = pickle.loads(pickle.dumps(error, protocol=5))  # noqa: S301 - what has just been written
            portable = error if type(again) is type(error) else portable
    portable.add_note(f"in the worker:\n{note}")
    return portable


def report_compilations(report: Callable[[str], None]) -> None:
    """From now on, call `report` with "begun" and "done" around each compilation in this process."""
    from triton.knobs import runtime

    def reporting(state: str, before: Any) -> Callable[..., Any]:
        def hook(*arguments: Any, **keywords: Any) -> Any:
            report(state)
            return before(*arguments, **keywords) if before is not None else None

        return hook

    runtime.jit_cache_hook = reporting("begun", runtime.jit_cache_hook)
    runtime.jit_post_compile_hook = reporting("done", runtime.jit_post_compile_hook)


def main(descriptor: int, device: str) -> None:
    """A worker, from the fork to its end."""
    # Output of a subject or of the device's library would break the campaign's display.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    Server(device, Connection(descriptor)).run()
