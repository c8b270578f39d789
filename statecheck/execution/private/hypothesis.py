"""Everything of Hypothesis that is not its documented interface, in one place."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from hypothesis import core as _core
from hypothesis import settings
from hypothesis.control import current_build_context
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.internal.conjecture.data import Overrun
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.internal.entropy import RANDOMS_TO_MANAGE
from hypothesis.stateful import run_state_machine_as_test
from hypothesis.strategies import SearchStrategy, just
from hypothesis.strategies._internal import core as strategies

from statecheck.rooms import FOLDER, PACKAGE

try:
    from hypothesis.internal.conjecture import choice
except ImportError:
    # Versions that draw bytes.
    choice = None  # type: ignore[assignment]
try:
    from hypothesis.internal.conjecture import providers
except ImportError:
    # Versions that take no constants from sources.
    providers = None  # type: ignore[assignment]

__all__ = [
    "ENDS_EXAMPLES",
    "MADE_FOR",
    "leave_out_own_constants",
    "make_no_mutations",
    "make_no_short_examples",
    "read_no_composites",
    "run_machine",
    "states_kept_once",
    "with_no_database_key",
    "without_reading_constants",
    "without_simplest",
]

MADE_FOR = ("6.100", "6.170")
"""The oldest and the newest version that this was made for, and is tested with."""

ENDS_EXAMPLES = (UnsatisfiedAssumption, StopTest)
"""What Hypothesis itself ends an example with, from inside of it."""


def run_machine(begin: Callable[[], Any], chosen: settings, seed: int | None = None) -> None:
    """Search the machine that `begin` makes; with a seed, by that one."""
    # Where Hypothesis looks for the seed of a machine; its decorator takes classes only.
    begin._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    run_state_machine_as_test(begin, settings=chosen)  # type: ignore[arg-type]


def with_no_database_key(test: Callable[..., None]) -> Callable[..., None]:
    """A test that has no database, and so needs no key: Hypothesis would read its source and take it apart in every run."""
    test._hypothesis_internal_database_key = None  # type: ignore[attr-defined]
    return test


def without_simplest(strategies: Mapping[str, SearchStrategy[Any]]) -> dict[str, SearchStrategy[Any]]:
    """The same strategies for one search that does not begin with the simplest input.

    Hypothesis draws the simplest input first. The first draw reports an overrun, so Hypothesis drops that input and caches no result. The
    simplest input can still be drawn later, and the shrinker can still try it.
    """
    first = iter((True,))

    def overrun_first(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
        if next(first, False):
            current_build_context().data.mark_overrun()
        return strategy

    return {name: just(strategy).flatmap(overrun_first) for name, strategy in strategies.items()}


@contextmanager
def states_kept_once() -> Iterator[None]:
    """While a search with a seed runs, keep the states of global random generators for all of its examples together.

    Each example begins with the states that it had otherwise. Hypothesis keeps and puts them back for each example, which takes
    longer than to draw a small one. Without a seed, a search takes its own from one of these generators, and must not run in this.
    """
    core: Any = _core
    keeping = core.deterministic_PRNG
    with keeping():
        core.deterministic_PRNG = _seeded
        try:
            yield
        finally:
            core.deterministic_PRNG = keeping


@contextmanager
def _seeded(seed: int = 0) -> Iterator[None]:
    for generator in list(RANDOMS_TO_MANAGE.values()):
        generator.seed(seed)
    yield


_QUESTION = "is_local_module_file"
_OWN = tuple(
    f"{folder}/"
    for folder in (PACKAGE, *(FOLDER / name for name in ("oracle", "properties", "subjects", "lab")))
)
_REFERENCE = f"{FOLDER / 'impl'}/"
_NEVER_LOCAL = (*_OWN, f"{sysconfig.get_path('stdlib')}/")
"""Python's own library is not local either. Hypothesis finds that out for one module after the other, of a thousand of them."""


def leave_out_own_constants() -> None:
    """Have Hypothesis draw no constants from the source of the harness, in this process.

    Of 20 integers that it draws, one is a constant, which may stand in any local module that is imported. From a checkout that is
    the whole harness: the first example would wait for 330 files to be parsed, and what a seed draws would depend on which of them are imported,
    and on whether statecheck is installed. Versions that do not ask about files go on as they do.
    """
    is_local = getattr(providers, _QUESTION, None)
    if is_local is not None and not isinstance(is_local, _OthersFiles):
        setattr(providers, _QUESTION, _OthersFiles(is_local))


_READ, _KNOWN = "_get_local_constants", "_local_constants"


@contextmanager
def without_reading_constants() -> Iterator[None]:
    """Inside this context, Hypothesis reads no source files for constants, which takes .1 s. It draws only constants that are known already."""
    read_constants, known = getattr(providers, _READ, None), getattr(providers, _KNOWN, None)
    if read_constants is None or known is None:
        yield
        return
    setattr(providers, _READ, lambda: known)
    try:
        yield
    finally:
        setattr(providers, _READ, read_constants)


_CHECK = "is_first_param_referenced_in_function"


def read_no_composites() -> None:
    """Have Hypothesis not read the source of each composite strategy that is made, in this process.

    It looks whether the strategy draws at all, which ruff does for ours. That takes .7 ms for each, of which some are made for each block size.
    """
    if hasattr(strategies, _CHECK):
        setattr(strategies, _CHECK, lambda function: True)


_MUTATE = "generate_mutations_from"


def make_no_mutations() -> None:
    """Have Hypothesis draw each example afresh, in this process.

    Behind the first ten valid examples of a search it tries up to five copies of each one that it draws, with one part put in the place of another. With
    every kind of subject defects that take more than 20 examples are found in .45 to .66 times as many without them
    (docs/tried-for-speed.md). Versions that make no copies go on as they do.
    """
    if hasattr(ConjectureRunner, _MUTATE):
        setattr(ConjectureRunner, _MUTATE, lambda runner, data: None)


_TRY = "cached_test_function"


def make_no_short_examples() -> None:
    """Have Hypothesis not keep the first examples of a search short, in this process.

    For the first tenth of a search, it draws the beginning of an input and tries it with the simplest rest. If that is an example, a second
    input has at most five times as many choices. Scenarios and batches grow with their first choices, so many of these inputs
    end before a function is called; docs/tried-for-speed.md has what it costs. Hypothesis gives up after five beginnings whose simplest rest is
    no example: here no simplest rest is tried. Versions without these templates go on as they do.
    """
    tries: Any = getattr(ConjectureRunner, _TRY, None)
    template = getattr(choice, "ChoiceTemplate", None)
    if template is None or tries is None or hasattr(tries, "__wrapped__"):
        return
    simplest_rest = template("simplest", count=None)

    @wraps(tries)
    def try_choices(runner: Any, choices: Sequence[Any], **options: Any) -> Any:
        # The simplest input of all has no beginning, and the shrinker, which takes simplest rests too, has a phase of its own.
        if len(choices) > 1 and choices[-1] == simplest_rest and runner._current_phase == "generate":
            return Overrun
        return tries(runner, choices, **options)

    setattr(ConjectureRunner, _TRY, try_choices)


class _OthersFiles:
    """Whether a file is local, and none of the harness's; `impl`, which is verified, counts as local wherever it is installed."""

    def __init__(self, is_local: Callable[[str], bool]) -> None:
        self._is_local = is_local

    def __call__(self, path: str) -> bool:
        if path.startswith(_REFERENCE):
            return True
        return not path.startswith(_NEVER_LOCAL) and self._is_local(path)
