"""The parent's side of a worker process: it sends requests, notices that the process died or hangs, and has a spare one ready.

A request is a pickled `(method, *arguments)`. An answer is a letter and a pickled `(value, meanwhile)`. A process that only passes an answer on reads
the letter and leaves the rest pickled.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from statecheck.case.raised import DIED, HANG, Fault, Faulted, death, hang
from statecheck.kernels.launch_counts import How
from statecheck.workers import limits
from statecheck.workers.forkserver import device_worker, fork_with_pipe, kernels_of, surroundings

DONE, FAULT, ERROR, COMPILING, ANEW, GONE = b"d", b"f", b"e", b"c", b"a", b"g"
"""The result; the fault that ended the worker; an exception; compiling has "begun" or is "done", and the answer is still to come.

Of shared workers: the example has to be run again, since the worker that had begun it has ended; no worker gets ready.
"""


@dataclass(frozen=True)
class Meanwhile:
    """What a worker did while it made its answer: whether Triton compiled, and which launches were executed."""

    compiled: bool = False
    launched: Counter[How] = field(default_factory=Counter)


NOTHING = Meanwhile()


def request(method: str, *arguments: Any) -> bytes:
    return pickle.dumps((method, *arguments), protocol=5)


def answer(letter: bytes, value: Any, meanwhile: Meanwhile = NOTHING) -> bytes:
    """Raises what pickle does, for a value that cannot be sent."""
    return letter + pickle.dumps((value, meanwhile), protocol=5)


def letter_of(message: bytes) -> bytes:
    return message[:1]


def content_of(message: bytes) -> tuple[Any, Meanwhile]:
    """Value of an answer, and what happened besides."""
    value, meanwhile = pickle.loads(memoryview(message)[1:])  # noqa: S301 - what our own processes wrote
    return value, meanwhile


_STARTS = 3


class WorkerProcess:
    """One worker. It gets ready while the caller goes on; the first message waits until it is."""

    def __init__(self, device: str, subject: str) -> None:
        self._process, self._way = fork_with_pipe(kernels_of(subject, device), device_worker(device))
        self.pid = self._process.pid
        self._ready, self._closed = False, False
        self._send(request("prepare", surroundings(), subject))

    def ask(self, limit: float, method: str, *arguments: Any) -> tuple[Any, Meanwhile]:
        """What a method of the worker's `Server` returns, and what happened besides.

        Args:
            limit: seconds until the worker is killed; to get ready, or to compile a kernel, it has more.

        Raises:
            Faulted: the worker has ended.
            Exception: what the method raised.
        """
        value, meanwhile = content_of(reply := self.ask_with(limit, request(method, *arguments)))
        if letter_of(reply) == ERROR:
            raise value
        return value, meanwhile

    def ask_with(self, limit: float, message: bytes) -> bytes:
        """As `ask`, with the request and the answer, `DONE` or `ERROR`, as they are sent."""
        self.wait_until_ready()
        if self._owes_answer:
            # The caller of the last message was interrupted; its answer would be taken for this one.
            self.close()
            raise Faulted(Fault(DIED, "its answer was not waited for"))
        self._send(message)
        return self._answer(limit)

    def wait_until_ready(self) -> None:
        """Raises as `ask`: what the subject raises when it is imported, for one."""
        if not self._ready:
            reply = self._answer(limits.START)
            if letter_of(reply) == ERROR:
                raise content_of(reply)[0]
            self._ready = True

    @property
    def usable(self) -> bool:
        """Whether it runs and owes no answer, as it does after Ctrl-C."""
        # A worker sends answers only: if there is something to read, the connection is closed.
        return not (self._closed or self._owes_answer or self._way.poll())

    def _send(self, message: bytes) -> None:
        self._owes_answer = True
        try:
            self._way.send_bytes(message)
        except OSError:
            """It has ended; reading the answer shows how."""

    def _answer(self, limit: float) -> bytes:
        reply = self._received(limit)
        while letter_of(reply) == COMPILING:
            # The limit is for what the subject does, so it starts anew when this is over.
            reply = self._received(limit if content_of(reply)[0] == "done" else limits.COMPILATION)
        self._owes_answer = False
        if letter_of(reply) == FAULT:
            self.close()
            raise Faulted(content_of(reply)[0])
        assert letter_of(reply) in (DONE, ERROR)
        return reply

    def _received(self, limit: float) -> bytes:
        try:
            if self._way.poll(limit):
                return self._way.recv_bytes()
        except (EOFError, OSError):
            raise Faulted(death(self.close(limits.EXIT))) from None
        self.close()
        raise Faulted(hang(limit))

    def close(self, patience: float = 0.0) -> int:
        """Kill the worker, whatever it is doing; how it ended."""
        self._closed = True
        self._way.close()
        return self._process.kill(patience)


class NoWorkerError(RuntimeError):
    """No worker gets ready: it ends while it imports the subject, or takes too long."""


class WorkerWithSpare:
    """A worker for one device and subject, and a spare one for when it dies. Nothing is started before it is needed."""

    def __init__(self, device: str, subject: str = "", *, spare: bool = True) -> None:
        self.device = device
        self.subject = subject
        self.replaced = 0
        self.number = 0
        """By which a worker knows its clients."""
        self._with_spare = spare
        self._current: WorkerProcess | None = None
        self._spare: WorkerProcess | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that there are, first the one that gets the messages."""
        return tuple(one.pid for one in (self._current, self._spare) if one is not None)

    def worker(self, *, fresh: bool = True) -> WorkerProcess:
        """The worker for messages, ready, while a spare one gets ready.

        Args:
            fresh: nothing that it holds is needed, so that another one will do if it has ended.

        Raises:
            NoWorkerError: no worker gets ready.
            Exception: what the subject raises when it is imported.
        """
        if self._current is not None and not self._current.usable and fresh:
            self.replace()
        if self._current is None:
            self._current = self._next()
        if self._spare is None and self._with_spare:
            self._spare = WorkerProcess(self.device, self.subject)
        return self._current

    def _next(self) -> WorkerProcess:
        reason = "it was killed"
        for _ in range(_STARTS):
            worker, self._spare = self._spare or WorkerProcess(self.device, self.subject), None
            try:
                worker.wait_until_ready()
            except Faulted as faulted:
                reason = str(faulted)
                if faulted.fault.kind == HANG:
                    break
            except BaseException:
                worker.close()
                raise
            else:
                if worker.usable:
                    return worker
                worker.close()
        raise NoWorkerError(f"no worker for {self.device} gets ready: {reason}")

    def replace(self) -> None:
        """Stop the current worker; the next message goes to another one."""
        if self._current is not None:
            self._current.close()
            self._current = None
            self.replaced += 1

    def close(self) -> None:
        for worker in (self._current, self._spare):
            if worker is not None:
                worker.close()
        self._current = self._spare = None
