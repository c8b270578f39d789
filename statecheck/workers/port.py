"""The execution port whose subject runs in a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from types import TracebackType
from typing import Self

from statecheck.case.raised import HANG, INTERRUPTED, Fault, Faulted, hang
from statecheck.case.values import Call, Outcome, Raised, Step
from statecheck.kernels.launch_counts import How
from statecheck.workers import limits
from statecheck.workers.shared_workers import SharedWorkers
from statecheck.workers.worker_process import NoWorkerError, WorkerWithSpare

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
        share: address of a process that shares its workers (see `shared_workers`); "" for workers of its own.
    """

    def __init__(
        self,
        subject: str,
        device: str,
        *,
        time_limit: float = limits.CALL,
        on_call: Callable[[], None] = lambda: None,
        spare: bool = True,
        share: str = "",
    ) -> None:
        self.subject, self.device = subject, device
        self.faults: Counter[str] = Counter()
        self._workers = SharedWorkers(share) if share else WorkerWithSpare(device, subject, spare=spare)
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
        """As `InProcess`. After a fault, every call of the example has the outcome that the faulty one had."""
        return self.execute_all((step,))[0]

    def execute_all(self, steps: Sequence[Step]) -> list[Outcome | None]:
        """As `execute`, of several steps in one message."""
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
        try:
            return self._asked(messages)
        except Faulted as faulted:
            fault = faulted.fault
        while fault == INTERRUPTED:
            try:
                # All in one message: between two, another client's fault could interrupt them again.
                return self._asked(self._example)
            except Faulted as faulted:
                fault = faulted.fault
        return fault

    def _asked(self, messages: Sequence[Message]) -> list[Outcome]:
        begins = messages[0][0]
        self._on_call()
        worker = self._workers.worker(fresh=begins)
        started = monotonic()
        limit = self._patience.limit * len(messages)
        outcomes, meanwhile = worker.ask(
            limit, "example", self._workers.number, begins, tuple(one[1:] for one in messages)
        )
        self._launched += meanwhile.launched
        if not meanwhile.compiled:
            self._patience.healthy(monotonic() - started)
        return outcomes

    def _noted(self, fault: Fault) -> Raised:
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
        """What workers launched without compiling it, since the last call."""
        taken, self._launched = self._launched, Counter()
        return taken

    def close(self) -> None:
        """End the workers; the port can be used again, and then starts others."""
        self._workers.close()
