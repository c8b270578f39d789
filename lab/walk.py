"""The walk of one failing example from its draw to its repro.py: which modules it enters in which step.

    python -m lab.walk

A campaign's exploration runs here, in this process, on a copy of the implementation with one line broken. Of all its
examples the walk has the last one, which is the smallest. A module, or a room, counts once in a step, however often the
step calls it; it is returned to when a later step calls it again. `docs/architecture.md` is written from what this prints.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from statecheck.campaign.tasks import Explore, Setting
from statecheck.campaign.worker import Exploration, Worker
from tests.helpers.cases import Pipe
from tests.helpers.planted import Variant, broken_subject

BROKEN = Variant(
    "chunk_split_off_by_one",
    "chunks.py",
    "-(-(phases + lengths) // chunk_size)",
    "(phases + lengths) // chunk_size + 1",
)
PROPERTY = "varlen-chunks/ends"
STEPS = {
    "draw": "",
    "trial": "Property.example",
    "run": "Run.execute_together",
    "expectation": "Follower.resolved_call",
    "difference": "outcome_differences",
    "failure": "failure_of",
    "case": "Exploration.falsified",
    "diagnosis": "diagnose",
    "bucket": "Corpus.add",
    "report": "write_report",
    "repro.py": "repro_script",
}
"""The steps in their order, each with the function whose call begins it."""
_NUMBERS = {function: number for number, function in enumerate(STEPS.values())}
_EXAMPLE, _LAST = STEPS["trial"], STEPS["repro.py"]
_KEPT = _NUMBERS[STEPS["case"]]
_FOLLOWED = ("oracle.", "properties.", "statecheck.", "subjects.")


@dataclass
class ExampleWalk:
    """Modules by step, in the order in which they were entered."""

    steps: dict[str, list[str]] = field(default_factory=lambda: {step: [] for step in STEPS})

    def __str__(self) -> str:
        lines = []
        for number, (step, modules) in enumerate(self.steps.items(), 1):
            lines += [f"{number}. {step}", *(f"     {module}" for module in modules)]
        rooms = {step: dict.fromkeys(map(room_of, modules)) for step, modules in self.steps.items()}
        return "\n".join(
            [*lines, "", *_drawn(rooms), "", _counted("modules", self.steps), _counted("rooms", rooms)]
        )


def _drawn(rooms: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """A row for each room, in the order in which the walk enters them, and a column for each step."""
    names = list(dict.fromkeys(room for visited in rooms.values() for room in visited))
    width = max(map(len, names))
    yield f"{'':{width}}  " + " ".join(f"{number:>2}" for number in range(1, len(rooms) + 1))
    for name in names:
        marks = " ".join(" ●" if name in visited else " ·" for visited in rooms.values())
        yield f"{name:{width}}  {marks}"


def _counted(what: str, steps: Mapping[str, Iterable[str]]) -> str:
    stays = [one for visited in steps.values() for one in visited]
    return f"{len(set(stays))} {what}, {len(stays)} stays, {len(stays) - len(set(stays))} returns"


def room_of(module: str) -> str:
    """A room of the harness, or another folder of the repository; of `properties` the tests are one room."""
    first, *rest = module.split(".")
    if first == "statecheck" and len(rest) > 1:
        return f"statecheck/{rest[0]}"
    if first == "properties":
        return "test_*" if rest[0].startswith("test_") else rest[0]
    return first


class _Tracer:
    """Notes calls of functions, of the last example and of what comes of it."""

    def __init__(self) -> None:
        self.walk = ExampleWalk()
        self._step = 0
        self._over = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002 - of a profiler
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if self._over or not module.startswith(_FOLLOWED):
            return
        if event == "call":
            self._enter(module, function)
        elif event == "return" and function == _EXAMPLE and self._step < _KEPT:
            # The example passed.
            self._begin()
        elif event == "return" and function == _LAST:
            self._over = True

    def _begin(self) -> None:
        self.walk, self._step = ExampleWalk(), 0

    def _enter(self, module: str, function: str) -> None:
        if self._step >= _KEPT and (function == _EXAMPLE or module.startswith("properties.strategies")):
            # Hypothesis goes on, and draws: the failing example before was not the last one.
            self._begin()
        self._step = max(self._step, _NUMBERS.get(function, 0))
        modules = self.walk.steps[list(STEPS)[self._step]]
        if module not in modules:
            modules.append(module)


def walk() -> ExampleWalk:
    """The walk of the smallest failing example of `PROPERTY` on a copy of the implementation that is wrong."""
    with tempfile.TemporaryDirectory() as folder, broken_subject(BROKEN, Path(folder)) as subject:
        # Once before, so that imports, which happen once, are no part of the walk.
        for number in range(2):
            tracer, place = _Tracer(), Path(folder) / str(number)
            setting = Setting("", subject.name, reports=str(place), kept=str(place / "kept"))
            worker = Worker(setting, Pipe())  # type: ignore[arg-type]
            try:
                with tracer.watching():
                    Exploration(worker, Explore(PROPERTY, seed=1, max_examples=200)).run()
            finally:
                worker.close()
    missing = [STEPS[step] for step, modules in tracer.walk.steps.items() if not modules]
    if missing:
        # A function that was renamed would leave its step empty, and those before it.
        raise SystemExit(f"STEPS names functions that were not called: {', '.join(missing)}")
    return tracer.walk


if __name__ == "__main__":
    print(walk())
