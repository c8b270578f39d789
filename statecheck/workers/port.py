"""The execution port whose subject runs in a worker, and the parent's side of that process: it notices that the worker died or hangs, and has a
spare one ready.

A request is a pickled `(method, *arguments)` of the worker's `Server`, and what comes back is a pickled `Answer`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from types import TracebackType
from typing import Any, Self

from statecheck.case.raised import DIED, HANG, Fault, Faulted, death, hang
from statecheck.case.values import Call, Outcome, Raised, Step
from statecheck.kernels.launch_counts import How
from statecheck.util import limits
from statecheck.workers.forkserver import device_worker, fork_with_pipe, kernels_of, surroundings

DONE, FAULT, ERROR, COMPILING = "done", "fault", "error", "compiling"
"""The result; the fault that ended the worker; an exception; compiling has "begun" or is "done", and the answer is still to come."""
_STARTS = 3


@dataclass(frozen=True)
class Answer:
    """A message of a worker: `compiled`, `launched` are whether Triton compiled meanwhile, and which launches were executed."""

    kind: str
    value: Any
    compiled: bool = False
    launched: Counter[How] = field(default_factory=Counter)

    def sent(self) -> bytes:
        """Raises what pickle does, for a value that cannot be sent."""
        return pickle.dumps(self, protocol=5)


class WorkerProcess:
    """A worker process. It gets ready while the caller goes on; the first message waits until it is ready."""

    def __init__(self, device: str, subject: str) -> None:
        self._process, self._way = fork_with_pipe(kernels_of(subject, device), device_worker(device))
        self.pid = self._process.pid
        self._ready, self._closed = False, False
        self._send("prepare", surroundings(), subject)

    def ask(self, limit: float, method: str, *arguments: Any) -> Answer:
        """Call a method of the worker's `Server`, and return its result.

        Args:
            limit: seconds until the worker is killed; to get ready, or to compile a kernel, it has more.

        Raises:
            Faulted: the worker has ended.
            Exception: what the method raised.
        """
        self.wait_until_ready()
        if self._owes_answer:
            # The caller of the last message was interrupted; its answer would be taken for this one.
            self.close()
            raise Faulted(Fault(DIED, "its answer was not waited for"))
        self._send(method, *arguments)
        return self._answer(limit)

    def wait_until_ready(self) -> None:
        """Raises as `ask`: what the subject raises when it is imported, for one."""
        if not self._ready:
            self._answer(limits.START)
            self._ready = True

    @property
    def usable(self) -> bool:
        """Whether the process runs and owes no answer, as it does after Ctrl-C."""
        # A worker sends answers only: if there is something to read, the connection is closed.
        return not (self._closed or self._owes_answer or self._way.poll())

    def _send(self, method: str, *arguments: Any) -> None:
        self._owes_answer = True
        try:
            self._way.send_bytes(pickle.dumps((method, *arguments), protocol=5))
        except OSError:
            """It has ended; reading the answer shows how."""

    def _answer(self, limit: float) -> Answer:
        answer = self._received(limit)
        while answer.kind == COMPILING:
            # The limit is for what the subject does, so it starts anew when this is over.
            answer = self._received(limit if answer.value == "done" else limits.COMPILATION)
        self._owes_answer = False
        if answer.kind == FAULT:
            self.close()
            raise Faulted(answer.value)
        if answer.kind == ERROR:
            raise answer.value
        return answer

    def _received(self, limit: float) -> Answer:
        try:
            if self._process.wait_for_message(self._way, limit):
                answer: Answer = pickle.loads(self._way.recv_bytes())  # noqa: S301 - what our own processes wrote
                return answer
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
    """No worker gets ready: it ends while it imports the subject or touches the device, or takes too long."""


class WorkerWithSpare:
    """A worker for one device and subject, and a spare one for when it dies. Nothing is started before it is needed."""

    def __init__(self, device: str, subject: str = "", *, spare: bool = True) -> None:
        self.device = device
        self.subject = subject
        self.replaced = 0
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


Message = tuple[bool, bool, tuple[Step, ...]]
"""Whether an example begins, whether waiting for the device is refused, and steps of which the last is a call."""
_TRIES_AGAIN = 2


class Patience:
    """How long to wait for a call: less after a hang, because shrinking it tries many inputs that hang."""

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self.reset()

    def reset(self) -> None:
        self._longest, self._hung = 0.0, False

    @property
    def limit(self) -> float:
        if not self._hung:
            return self.time_limit
        return min(self.time_limit, max(limits.CALL_AFTER_A_HANG, limits.TIMES_LONGEST_CALL * self._longest))

    def healthy(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)

    def hung(self) -> None:
        self._hung = True


class InWorker:
    """Executes in a worker process on `device`; see `statecheck.workers`.

    Args:
        on_call: called before each message with calls is sent.
    """

    def __init__(
        self,
        subject: str,
        device: str,
        *,
        time_limit: float = limits.CALL,
        on_call: Callable[[], None] = lambda: None,
        spare: bool = True,
    ) -> None:
        self.subject, self.device = subject, device
        self.faults: Counter[str] = Counter()
        self._workers = WorkerWithSpare(device, subject, spare=spare)
        self._patience = Patience(time_limit)
        self._on_call = on_call
        self._waiting: list[Step] = []
        self._example: list[Message] = []
        self._refused = False
        self._fault: Raised | None = None
        self._launched: Counter[How] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def warm_up(self) -> None:
        """Start a worker, so that no call waits for it.

        Raises:
            NoWorkerError: no worker gets ready.
            Exception: what the subject raises when it is imported.
        """
        self._workers.worker()

    def require_import(self) -> None:
        """Have a worker import the subject before this process does: an import that ends its process, or keeps it, would do so here.

        What the import raises is no concern here: it raises the same in this process.

        Raises:
            ValueError: the import ended the worker, or did not come to its end.
        """
        try:
            self.warm_up()
        except NoWorkerError as error:
            rule = "a module whose import comes to its end"
            raise ValueError(f"subject = {self.subject!r}, but should be {rule} [load]: {error}") from error
        except Exception:
            return

    @property
    def restarts(self) -> int:
        """How many workers have been replaced."""
        return self._workers.replaced

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers that there are, first the one that gets the messages."""
        return self._workers.pids

    def begin_property(self) -> None:
        """The next examples are of another property: time limits start again."""
        self._patience.reset()

    def begin(self) -> None:
        self._waiting.clear()
        self._example.clear()
        self._fault = None

    def execute(self, step: Step) -> Outcome | None:
        """Execute a step as `InProcess` does. After a fault, every call of the example has the outcome that the faulty one had."""
        return self.execute_all((step,))[0]

    def execute_all(self, steps: Sequence[Step]) -> list[Outcome | None]:
        """Execute several steps in one message."""
        last = max((number for number, step in enumerate(steps) if isinstance(step, Call)), default=-1)
        self._waiting.extend(steps[: last + 1])
        outcomes = iter(self._send_waiting() if last >= 0 else ())
        self._waiting.extend(steps[last + 1 :])
        return [next(outcomes) if isinstance(step, Call) else None for step in steps]

    def _send_waiting(self) -> list[Outcome]:
        """The outcomes of the calls among the steps that wait, of which the last is one."""
        steps = tuple(self._waiting)
        self._waiting.clear()
        calls = sum(isinstance(step, Call) for step in steps)
        if self._fault is not None:
            return [self._fault] * calls
        self._example.append((not self._example, self._refused, steps))
        found = self._persistent(self._example[-1:])
        if not isinstance(found, Fault):
            return found
        outcomes = self._one_by_one() if calls > 1 else []
        if self._fault is None:
            # Nothing shows which call it was, so it is the last.
            self._fault = self._noted(found)
            outcomes = [*outcomes[:-1], self._fault]
        return outcomes

    def _one_by_one(self) -> list[Outcome]:
        """The calls of the last message, which ended in a fault, each in a message of its own, to see which call ends the worker."""
        begins, refused, steps = self._example.pop()
        if self._example:
            self._persistent(self._example)
        outcomes: list[Outcome] = []
        ends = [number for number, step in enumerate(steps, 1) if isinstance(step, Call)]
        for first, last in pairwise([0, *ends]):
            self._example.append((begins and not outcomes, refused, steps[first:last]))
            found = self._fault or self._persistent(self._example[-1:])
            if isinstance(found, Fault):
                found = self._fault = self._noted(found)
            outcomes += [found] if isinstance(found, Raised) else found
        return outcomes

    def _persistent(self, messages: Sequence[Message]) -> list[Outcome] | Fault:
        """Outcomes, or a fault that the subject caused, as far as can be seen."""
        found = self._tried(messages)
        for _ in range(_TRIES_AGAIN):
            # A fault from outside does not repeat; a subject that uses up the memory does it again.
            if isinstance(found, Fault) and found.from_outside:
                found = self._tried(self._example)
        return found

    def _tried(self, messages: Sequence[Message]) -> list[Outcome] | Fault:
        """The outcomes of the last one, or the fault that ended them."""
        begins = messages[0][0]
        self._on_call()
        worker = self._workers.worker(fresh=begins)
        started = monotonic()
        limit = self._patience.limit * len(messages)
        try:
            answer = worker.ask(limit, "example", begins, tuple(message[1:] for message in messages))
        except Faulted as faulted:
            return faulted.fault
        self._launched += answer.launched
        if not answer.compiled:
            self._patience.healthy(monotonic() - started)
        outcomes: list[Outcome] = answer.value
        return outcomes

    def _noted(self, fault: Fault) -> Raised:
        if not fault.crowded:
            self.faults[fault.kind] += 1
        if fault.kind == HANG:
            self._patience.hung()
            # The message names the limit that was set, not the shorter one of the search.
            return hang(self._patience.time_limit).outcome
        return fault.outcome

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        self._refused = True
        try:
            yield
        finally:
            self._refused = False

    def take_launches(self) -> Counter[How]:
        """Launches of workers that were not compiled, since the last call."""
        taken, self._launched = self._launched, Counter()
        return taken

    def close(self) -> None:
        """End the workers; the port can be used again, and then starts others."""
        self._workers.close()
