"""Many lives of the engines' requests: so many traces of each machine, and how often each moment came up in them."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from properties.harness.execution.example import Tally
from properties.harness.registry import Property
from properties.harness.worker import Finished, Setting, Task, Worker

CHUNK = 10
"""Traces of a task: few enough to keep all processes busy until the end, and to end in time."""
_LINE_SECONDS = 30.0


Futures = dict[Future[tuple[Finished, Tally]], Task]


class _Messages(list[Any]):
    """What a worker would tell its coordinator."""

    def send(self, message: Any) -> None:
        self.append(message)


@dataclass
class _Process:
    """A process of the pool, and what it sets up once."""

    worker: Worker
    messages: _Messages


_process: _Process | None = None


def _set_up(setting: Setting, steps: int) -> None:
    global _process  # noqa: PLW0603 - a pool hands its initialiser's work to its tasks no other way
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    messages = _Messages()
    _process = _Process(Worker(setting, messages), messages)  # type: ignore[arg-type]
    for tested in _process.worker.properties.values():
        machine = getattr(tested, "machine", None)
        if machine is not None:
            machine.steps = steps


def _explore(task: Task) -> tuple[Finished, Tally]:
    assert _process is not None
    _process.messages.clear()
    _process.worker.bench.tally = Tally()
    _process.worker.run(task)
    return _process.messages[-1], _process.worker.bench.tally


@dataclass
class Result:
    """What came of one property: its lives, and its failures as far as they are different."""

    lives: Tally = field(default_factory=Tally)
    failures: dict[str, Finished] = field(default_factory=dict)

    def add(self, finished: Finished, lives: Tally) -> None:
        self.lives.lives += lives.lives
        self.lives.steps += lives.steps
        self.lives.marks.update(lives.marks)
        if finished.status != "passed":
            self.failures.setdefault(finished.detail, finished)


@dataclass
class Traces:
    """`count` traces of at most `steps` rules each, shared among the properties."""

    setting: Setting
    properties: Sequence[str]
    count: int
    steps: int
    workers: int
    seed: int
    budget: float | None = None
    results: dict[str, Result] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    def run(self, console: Console) -> None:
        """Run them all, or as many as there is time for; Ctrl-C keeps what there is."""
        self.results = {name: Result() for name in self.properties}
        started = time.monotonic()
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.workers, context, _set_up, (self.setting, self.steps))
        with pool, _progress(console) as progress:
            bar = progress.add_task("traces", total=self.count)
            futures = {pool.submit(_explore, task): task for task in self._tasks()}
            try:
                self._collect(futures, started, lambda: _tell(console, progress, bar, self))
            except KeyboardInterrupt:
                self.interrupted = True
                pool.shutdown(cancel_futures=True)
        self.seconds = time.monotonic() - started

    def _collect(self, futures: Futures, started: float, tell: Callable[[], None]) -> None:
        """Take results as they come; once the time is up, those of tasks that have begun."""
        waiting, told = set(futures), started
        while waiting:
            done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                if not future.cancelled():
                    self._add(futures[future], future)
            now = time.monotonic()
            if self.budget is not None and now - started > self.budget and not self.interrupted:
                self.interrupted = True
                for future in waiting:
                    future.cancel()
            if done and now - told > _LINE_SECONDS:
                told = now
                tell()

    def _add(self, task: Task, future: Future[tuple[Finished, Tally]]) -> None:
        try:
            finished, lives = future.result()
        except BrokenExecutor as error:
            # A process died, and takes the pool with it; what others have found stays.
            finished, lives = Finished(task.property, "error", 0.0, f"a process died: {error}"), Tally()
        self.results[task.property].add(finished, lives)

    @property
    def lives(self) -> int:
        """Traces so far, those that Hypothesis discards among them."""
        return sum(result.lives.lives for result in self.results.values())

    def _tasks(self) -> Iterator[Task]:
        """Chunks of every property in turn, so that a run which ends early has some of each."""
        shares = len(self.properties)
        left = {
            name: self.count // shares + (n < self.count % shares) for n, name in enumerate(self.properties)
        }
        chunk = 0
        while any(left.values()):
            for number, name in enumerate(self.properties):
                if left[name]:
                    yield Task(name, self.seed + 1009 * chunk + number, min(CHUNK, left[name]))
                    left[name] -= min(CHUNK, left[name])
            chunk += 1

    @property
    def failures(self) -> list[Finished]:
        return [failure for result in self.results.values() for failure in result.failures.values()]

    def shares(self) -> dict[str, list[float]]:
        """By moment, the share of each property's traces in which it came up."""
        from properties.engine.marks import MARKS

        return {
            mark: [result.lives.marks[mark] / max(1, result.lives.lives) for result in self.results.values()]
            for mark in MARKS
        }

    def table(self, tested: Mapping[str, Property]) -> Table:
        """A row for each moment, a column for each property."""
        table = Table(show_edge=False, pad_edge=False)
        table.add_column("moment", no_wrap=True)
        for name, result in self.results.items():
            told = f"{heading(tested[name])}\n{result.lives.lives:,} traces\n{result.lives.steps:,} steps"
            table.add_column(told, justify="right", no_wrap=True)
        for mark, shares in self.shares().items():
            table.add_row(mark, *(f"{share:.1%}" for share in shares))
        return table

    def conclusion(self) -> str:
        steps = sum(result.lives.steps for result in self.results.values())
        early = "interrupted; " if self.interrupted else ""
        count = len(self.failures)
        found = f"{count} violation{'s' * (count > 1)}" if count else "no violation"
        return f"{early}{found} in {self.lives:,} traces, {steps:,} steps, {self.seconds:.0f} s; seed {self.seed}"


def _tell(console: Console, progress: Progress, bar: TaskID, traces: Traces) -> None:
    progress.update(bar, completed=min(traces.lives, traces.count))
    if not console.is_terminal:
        console.print(f"{traces.lives:,} traces, {len(traces.failures)} violations", highlight=False)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def machines(tested: dict[str, Property]) -> list[str]:
    """The names of the properties that follow requests through an engine."""
    return [name for name, one in tested.items() if heading(one)]


def heading(tested: Property) -> str:
    """What a machine that follows requests is called in tables; nothing of any other property."""
    return getattr(getattr(tested, "machine", None), "heading", "")
