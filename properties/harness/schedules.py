"""The order in which Triton's interpreter runs the programs of a launch.

A GPU promises no order, and lets programs run between any two accesses of another one. The interpreter runs them one
after the other, in row-major order. Within `program_schedule` it runs them

    reversed          one after the other, the last one first
    shuffled:SEED     one after the other, in an order that the seed picks
    interleaved:SEED  each in a thread of its own, of which one at a time runs, until it is about to load, store or
                      change memory atomically: there the seed picks who goes on

A tile of one load or store is never taken apart, and values that a program has loaded stay what they were: what is
searched here are races between programs, not within one. The module stands on its own, without the rest of the harness:
scripts that reproduce a failure contain its text.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import itertools
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from threading import Event, Semaphore, Thread
from typing import Any

_ACCESSES = ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
_LIVE = 16
"""Threads at a time; of larger launches, as on a GPU, not every program is under way at once."""
_KEEP_GOING = (0.0, 0.5, 0.9)
"""How likely the running program is to go on: fine interleavings find other races than long runs do."""

_Program = Callable[[], None]
_Index = tuple[int, int, int]


@contextlib.contextmanager
def program_schedule(schedule: str) -> Iterator[None]:
    """Launches made in this context run their programs in the order that `schedule` names; "" is the plain one.

    Ignored where kernels are compiled.

    Raises:
        ValueError: no such schedule.
    """
    run = _runner(schedule)
    if run is None or not _interprets():
        yield
        return
    from triton.runtime import interpreter

    plain, launches = interpreter.GridExecutor.__call__, itertools.count()

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        in_order = partial(run, interpreter.interpreter_builder, launch=next(launches))
        self.fn = _Gathering(self.fn, interpreter.interpreter_builder, in_order)
        return plain(self, *arguments, **keywords)

    interpreter.GridExecutor.__call__ = call
    try:
        yield
    finally:
        interpreter.GridExecutor.__call__ = plain


def _runner(schedule: str) -> Callable[..., None] | None:
    if not schedule:
        return None
    if schedule == "reversed":
        return _run_reversed
    match = re.fullmatch(r"(shuffled|interleaved):(\w+)", schedule)
    if match is None:
        rule = "'', 'reversed', 'shuffled:SEED' or 'interleaved:SEED'"
        raise ValueError(f"schedule = {schedule!r}, but should be {rule} [program_schedule]")
    return partial(_run_shuffled if match[1] == "shuffled" else _run_interleaved, seed=match[2])


def _interprets() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)


class _Gathering:
    """Stands for a kernel while the interpreter walks through its grid, and runs all programs with the last one's call."""

    def __init__(self, kernel: Any, builder: Any, run: Callable[..., None]) -> None:
        self.kernel, self.builder, self.run = kernel, builder, run
        self.calls: dict[_Index, _Program] = {}
        # The interpreter looks at these of whatever it calls.
        self.__name__, self.__globals__ = kernel.__name__, kernel.__globals__
        self.__signature__ = inspect.signature(kernel)

    def __call__(self, **arguments: Any) -> None:
        self.calls[self.builder.grid_idx] = partial(self.kernel, **arguments)
        if len(self.calls) == prod(self.builder.grid_dim):
            self.run(self.calls)


def _run_in_turn(builder: Any, programs: list[tuple[_Index, _Program]]) -> None:
    for index, program in programs:
        builder.set_grid_idx(*index)
        program()


def _run_reversed(builder: Any, calls: dict[_Index, _Program], launch: int) -> None:  # noqa: ARG001
    _run_in_turn(builder, list(calls.items())[::-1])


def _run_shuffled(builder: Any, calls: dict[_Index, _Program], launch: int, seed: str) -> None:
    programs = list(calls.items())
    random.Random(f"{seed}:{launch}").shuffle(programs)
    _run_in_turn(builder, programs)


def _run_interleaved(builder: Any, calls: dict[_Index, _Program], launch: int, seed: str) -> None:
    _Interleaving(builder, calls, random.Random(f"{seed}:{launch}")).run()


class _AbandonedError(BaseException):
    """Ends a program whose launch has failed elsewhere. Not an Exception, so that no kernel's caller catches it."""


class _Runner:
    """A program and its thread, which goes on whenever it is handed the baton."""

    def __init__(self, index: _Index, body: Callable[..., None]) -> None:
        self.index = index
        self.baton = Semaphore(0)
        # Whatever Triton keeps in context variables is the same for every program.
        context = contextvars.copy_context()
        self.thread = Thread(target=context.run, args=(body, self), daemon=True)


class _Interleaving:
    """One launch: its programs' threads, of which only the one with the baton runs."""

    def __init__(self, builder: Any, calls: dict[_Index, _Program], choices: random.Random) -> None:
        self.builder, self.calls, self.choices = builder, calls, choices
        self.keep_going = choices.choice(_KEEP_GOING)
        self.waiting = list(calls)
        choices.shuffle(self.waiting)
        self.live: list[_Runner] = []
        self.running: _Runner | None = None
        self.error: BaseException | None = None
        self.threads: list[Thread] = []
        self.finished = Event()

    def run(self) -> None:
        """Run every program to its end.

        Raises:
            Exception: what the first program to fail has raised; the others have been ended where they stood.
        """
        with self._switching():
            for _ in range(min(_LIVE, len(self.waiting))):
                self._start()
            self._hand_over()
            try:
                self.finished.wait()
            except BaseException as interruption:
                self.error = self.error or interruption
                raise
            finally:
                for thread in self.threads:
                    thread.join()
        if self.error is not None:
            raise self.error

    def _start(self) -> None:
        runner = _Runner(self.waiting.pop(), self._body)
        self.live.append(runner)
        self.threads.append(runner.thread)
        runner.thread.start()

    def _body(self, runner: _Runner) -> None:
        try:
            self._await_baton(runner)
            self.calls[runner.index]()
        except _AbandonedError:
            pass
        except BaseException as error:
            self.error = self.error or error
        self.live.remove(runner)
        if self.waiting and self.error is None:
            self._start()
        self._hand_over()

    def _hand_over(self) -> None:
        """The baton goes to any live program, and back to the launch after the last one."""
        if not self.live:
            self.finished.set()
            return
        self.running = self.choices.choice(self.live)
        self.running.baton.release()

    def _await_baton(self, runner: _Runner) -> None:
        runner.baton.acquire()
        if self.error is not None:
            raise _AbandonedError
        self.builder.set_grid_idx(*runner.index)

    def _switch(self) -> None:
        """Called by the running program before each of its accesses."""
        runner = self.running
        assert runner is not None
        if self.error is None and self.choices.random() < self.keep_going:
            return
        self._hand_over()
        self._await_baton(runner)

    @contextlib.contextmanager
    def _switching(self) -> Iterator[None]:
        """Every access of the interpreter asks first who goes on."""
        plain = dict(vars(self.builder))
        for name in _ACCESSES:
            setattr(self.builder, name, self._after_a_switch(getattr(self.builder, name)))
        try:
            yield
        finally:
            for name in _ACCESSES:
                delattr(self.builder, name)
                if name in plain:
                    setattr(self.builder, name, plain[name])

    def _after_a_switch(self, access: Callable[..., Any]) -> Callable[..., Any]:
        def switch_and_access(*arguments: Any, **keywords: Any) -> Any:
            self._switch()
            return access(*arguments, **keywords)

        return switch_and_access
