"""Defects that the properties are known to find: `python -m tests.breakages.table` prints them as a table."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis.strategies import DataObject

from statecheck.case import Case, Failure, values
from statecheck.case.compare import brief
from statecheck.execution import profiles
from statecheck.execution.example import Bench, Falsified, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.kernels import triton_mode
from subjects import Subject
from tests.breakages.align import ALIGN
from tests.breakages.bounds import BOUNDS
from tests.breakages.builder import BUILDERS
from tests.breakages.lifecycle import LIFECYCLE
from tests.breakages.stateless import STATELESS
from tests.breakages.variants import Breakage, broken_subject

BREAKAGES = (*STATELESS, *BUILDERS, *ALIGN, *LIFECYCLE, *BOUNDS)
SEED = 20
SEEDS = 3
MAX_EXAMPLES = 200
LONGEST = 800
FILE = Path(__file__).with_name("BREAKAGES.md")


@dataclass(frozen=True)
class Catch:
    """The example, counted from 1, that first showed a defect, and what it shrank to: the arguments drawn, the case."""

    examples: int
    drawn: dict[str, object]
    case: Case

    @property
    def shrunk(self) -> str:
        """The arguments; or the call behind its environment, where arguments do not tell what was drawn, or are long.

        Of a scenario that a picture shows, what each request did in its steps.
        """
        if self.case.timeline is not None:
            return "; ".join(moment.title for moment in self.case.timeline.moments)
        if self.drawn and not any(isinstance(value, DataObject) for value in self.drawn.values()):
            drawn = ", ".join(f"{name}={concise(value)}" for name, value in self.drawn.items())
            if len(drawn) <= LONGEST:
                return drawn
        variables = "".join(f"{name}={value} " for name, value in self.case.calls[-1].environment)
        return variables + self._failure.shown

    @property
    def seen(self) -> str:
        """What was observed, and what should have been."""
        return self._failure.sentence

    @property
    def _failure(self) -> Failure:
        assert self.case.failure is not None
        return self.case.failure


def hunt(tested: Property, subject: Subject, *, shrink: bool, seed: int = SEED) -> Catch | None:
    """What the property finds wrong with the subject on the CPU within `MAX_EXAMPLES` examples, if anything.

    Hypothesis draws numbers that stand in loaded sources, so that the same seed means other examples where other modules are
    loaded: what is not found with it is looked for with the next ones.
    """
    bench = Bench(subject, InProcess(subject, "cpu"))
    failing: list[int] = []
    latest: dict[str, object] = {}
    bench.on_falsified = lambda case: failing.append(bench.examples)

    def noting(trial: Trial, **drawn: object) -> None:
        latest.clear()
        latest.update(drawn)
        tested.body(trial, **drawn)

    for number in range(SEEDS):
        try:
            with hunting(shrink=shrink):
                replace(tested, body=noting).explore(bench, seed=seed + number, max_examples=MAX_EXAMPLES)
        except Falsified as falsified:
            return Catch(failing[0], latest, falsified.case)
    return None


def concise(value: object) -> str:
    """An expression for `value`, without the fields of dataclasses that have their defaults."""
    if isinstance(value, tuple):
        return f"({', '.join(map(concise, value))}{',' if len(value) == 1 else ''})"
    if not is_dataclass(value) or type(value).__module__ == values.__name__:
        return brief(value)
    changed = [field for field in fields(value) if getattr(value, field.name) != field.default]
    arguments = ", ".join(f"{field.name}={concise(getattr(value, field.name))}" for field in changed)
    return f"{type(value).__name__}({arguments})"


@contextmanager
def hunting(*, shrink: bool) -> Iterator[None]:
    """Properties explore with the phases that a hunt for a broken copy needs."""
    before = settings()
    phases = [Phase.generate, Phase.target, *([Phase.shrink] if shrink else [])]
    chosen = settings(settings.get_profile("nightly"), phases=phases)
    settings.register_profile("hunting", chosen)
    settings.register_profile("before", before)
    settings.load_profile("hunting")
    try:
        yield
    finally:
        settings.load_profile("before")


def table(written: Sequence[str] = ()) -> str:
    """The generated file: a row for each breakage, with what finding it took.

    Args:
        written: rows that stay as they are, where they are still of a breakage.
    """
    tested = load_properties()
    rows = [
        _standing(breakage, written) or _row(breakage, _hunt_all(breakage, tested)) for breakage in BREAKAGES
    ]
    return "\n".join([*_HEAD, *rows]) + "\n"


def _standing(breakage: Breakage, written: Sequence[str]) -> str | None:
    return next((row for row in written if row.startswith(described(breakage))), None)


_HEAD = (
    "# Defects that the properties find",
    "",
    "Each row is a copy of `impl` with one line changed, and the properties that have been seen to fail on it, so that",
    "none of them is empty talk. Generated by `python -m tests.breakages.table --write`, and tested by",
    "`test_breakages.py`.",
    "",
    f"*Examples*: how many of at most {MAX_EXAMPLES} random ones it took until the property failed (seed {SEED}).",
    "*Shrunk input* and *seen*: what Hypothesis made of the failure of the first property named.",
    "",
    "| defect | file | line | found by | examples | shrunk input | seen |",
    "|---|---|---|---|---|---|---|",
)


def finders(breakage: Breakage) -> tuple[str, ...]:
    """The properties that are known to find it, by name."""
    names = {tested.id: name for name, tested in load_properties().items()}
    return tuple(names[one] for one in breakage.caught_by)


def described(breakage: Breakage) -> str:
    """The cells of a breakage's row that stand before anything is run."""
    line = f"{_code(breakage.old)} → {_code(breakage.new)}"
    return f"| {breakage.name} | `{breakage.file}` | {line} | {'<br>'.join(finders(breakage))} |"


def _row(breakage: Breakage, catches: list[Catch]) -> str:
    examples = "<br>".join(str(catch.examples) for catch in catches)
    return f"{described(breakage)} {examples} | {_code(catches[0].shrunk)} | {_code(catches[0].seen)} |"


def _code(text: str) -> str:
    return f"`{' '.join(text.split())}`".replace("|", r"\|")


def _hunt_all(breakage: Breakage, tested: dict[str, Property]) -> list[Catch]:
    with tempfile.TemporaryDirectory() as folder, broken_subject(breakage.variant, Path(folder)) as subject:
        return [
            find(breakage, name, tested, subject, shrink=number == 0)
            for number, name in enumerate(finders(breakage))
        ]


def find(
    breakage: Breakage, name: str, tested: dict[str, Property], subject: Subject, *, shrink: bool
) -> Catch:
    """What the property `name` finds in the broken copy.

    Raises:
        AssertionError: it finds nothing.
    """
    catch = hunt(tested[name], subject, shrink=shrink)
    assert catch is not None, f"{name} passes {MAX_EXAMPLES} examples, but should fail: {breakage.name}"
    return catch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.breakages.table", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {FILE.name} as well")
    parser.add_argument("--new", action="store_true", help="hunt only what has no row there yet")
    options = parser.parse_args()
    triton_mode.prepare("cpu")
    profiles.register()
    text = table(FILE.read_text(encoding="utf-8").splitlines() if options.new else ())
    if options.write:
        FILE.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
