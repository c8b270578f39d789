"""The order in which Triton's interpreter runs the programs of a launch, where it is the interpreter that runs it.

Launches that the harness executes follow `kernels.schedule`, which steps single operations. This is for scripts that
reproduce a failure, which contain the text of this module and so need nothing else of the harness, and for launches that
are left to the interpreter.

A GPU promises no order, and lets programs run between any two accesses of another one. The interpreter runs them one
after the other, in row-major order. Within `program_schedule` it runs them

    reversed          one after the other, the last one first
    shuffled:SEED     one after the other, in an order that the seed picks
    interleaved:SEED  each in a thread of its own, of which one at a time runs, until it is about to load, store or
                      change memory atomically: there the seed picks who goes on
    warps:SEED    one after the other, each by several warps of which one at a time runs, until it is about to access
                  memory: there, too, the seed picks who goes on

A tile of one load is never taken apart, and values that a program has loaded stay what they were: the first three find
races between programs. Warps find those within one: each of them does all that the program does, but stores only its
own lanes, so that one may have stored what another one has still to load. They wait for each other at barriers, and
where Triton makes them exchange values: in reductions, scans, products, and atomic operations.
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
_ATOMICS = ("create_atomic_rmw", "create_atomic_cas")
_EXCHANGES = ("create_barrier", "create_dot", "create_gather", "create_histogram")
_WARPS = (2, 4)
_LIVE = 16
"""Threads at a time; of larger launches, as on a GPU, not every program is under way at once."""
_KEEP_GOING = (0.0, 0.5, 0.9)
"""How likely the running program is to go on: fine interleavings find other races than long runs do."""


class Reordered:
    """How many launches of several programs have run in an order that `program_schedule` picked, in this process."""

    launches = 0


REORDERED = Reordered()
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
    with interpreted_in_order(schedule):
        yield


@contextlib.contextmanager
def interpreted_in_order(schedule: str) -> Iterator[None]:
    """As `program_schedule`, of what Triton's interpreter runs in a process that may compile too."""
    run = _runner(schedule)
    if run is None:
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
    seeded = {"shuffled": _run_shuffled, "interleaved": _run_interleaved, "warps": _run_warps}
    kind, _, seed = schedule.partition(":")
    if kind not in seeded or not re.fullmatch(r"\w+", seed):
        rule = "'', 'reversed', 'shuffled:SEED', 'interleaved:SEED' or 'warps:SEED'"
        raise ValueError(f"schedule = {schedule!r}, but should be {rule} [program_schedule]")
    return partial(seeded[kind], seed=seed)


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
            REORDERED.launches += len(self.calls) > 1
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


def _run_warps(builder: Any, calls: dict[_Index, _Program], launch: int, seed: str) -> None:
    choices = random.Random(f"{seed}:{launch}")
    for index, program in calls.items():
        _Warps(builder, index, program, choices).run()


class _AbandonedError(BaseException):
    """Ends a program whose launch has failed elsewhere. Not an Exception, so that no kernel's caller catches it."""


class _Runner:
    """A program, or a warp of it, and its thread, which goes on whenever it is handed the baton."""

    def __init__(self, index: _Index, body: Callable[..., None], warp: int = 0) -> None:
        self.index, self.warp = index, warp
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
            self._start_first()
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

    def _start_first(self) -> None:
        for _ in range(min(_LIVE, len(self.waiting))):
            self._start(_Runner(self.waiting.pop(), self._body))

    def _start(self, runner: _Runner) -> None:
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
            self._start(_Runner(self.waiting.pop(), self._body))
        self._hand_over()

    def _hand_over(self) -> None:
        """The baton goes to any live program, and back to the launch after the last one."""
        if not self.live:
            self.finished.set()
            return
        self.running = self.choices.choice(self._ready())
        self.running.baton.release()

    def _ready(self) -> list[_Runner]:
        """Who may go on."""
        return self.live

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


class _Warps(_Interleaving):
    """One program: its warps' threads. They all load everything; each stores its own lanes."""

    def __init__(self, builder: Any, index: _Index, program: _Program, choices: random.Random) -> None:
        super().__init__(builder, {index: program}, choices)
        self.warps = choices.choice(_WARPS)
        self.held: list[_Runner] = []
        self.told: list[Any] = []
        self.asked = [0] * self.warps

    def _start_first(self) -> None:
        index = self.waiting.pop()
        for warp in range(self.warps):
            self._start(_Runner(index, self._body, warp))

    def _ready(self) -> list[_Runner]:
        ready = [runner for runner in self.live if runner not in self.held]
        if not ready:
            # Everybody has come to the barrier, or to the end.
            self.held.clear()
        return ready or self.live

    def _meet(self) -> None:
        """Called by the running warp where all of them have to come before one goes on."""
        runner = self.running
        assert runner is not None
        self.held.append(runner)
        self._hand_over()
        self._await_baton(runner)

    @contextlib.contextmanager
    def _switching(self) -> Iterator[None]:
        from triton.runtime import interpreter

        plain, shared = dict(vars(self.builder)), interpreter.ReduceScanOpInterface.apply
        interpreter.ReduceScanOpInterface.apply = self._after_all(shared)
        self.builder.create_masked_load = self._after_a_switch(self.builder.create_masked_load)
        self.builder.create_masked_store = self._after_a_switch(
            self._own_lanes(self.builder.create_masked_store)
        )
        for name in _ATOMICS:
            setattr(self.builder, name, self._after_a_switch(self._once(getattr(self.builder, name))))
        for name in _EXCHANGES:
            setattr(self.builder, name, self._after_all(getattr(self.builder, name)))
        try:
            yield
        finally:
            interpreter.ReduceScanOpInterface.apply = shared
            for name in (*_ACCESSES, *_EXCHANGES):
                delattr(self.builder, name)
                if name in plain:
                    setattr(self.builder, name, plain[name])

    def _after_all(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def meet_and_call(*arguments: Any, **keywords: Any) -> Any:
            self._meet()
            return function(*arguments, **keywords)

        return meet_and_call

    def _own_lanes(self, store: Callable[..., Any]) -> Callable[..., Any]:
        import numpy as np

        def store_own(ptrs: Any, value: Any, mask: Any, *policies: Any) -> Any:
            assert self.running is not None
            size = ptrs.data.size
            owners = np.arange(size) * min(self.warps, size) // size
            own = (owners == self.running.warp).reshape(ptrs.data.shape)
            return store(ptrs, value, type(mask)(mask.data & own, mask.dtype), *policies)

        return store_own

    def _once(self, access: Callable[..., Any]) -> Callable[..., Any]:
        """The first warp does it, as soon as it comes there, and everybody is told the result."""

        def access_once(*arguments: Any, **keywords: Any) -> Any:
            assert self.running is not None
            warp = self.running.warp
            if warp == 0:
                self.told.append(access(*arguments, **keywords))
            self._meet()
            self.asked[warp] += 1
            if self.asked[warp] > len(self.told):
                raise RuntimeError(f"warp {warp} comes to an atomic operation that the first one leaves out")
            return self.told[self.asked[warp] - 1]

        return access_once
