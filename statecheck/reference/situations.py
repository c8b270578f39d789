"""Situations by name: which of the cases that rules tell apart there are, and which have come up.

`properties/situations` has a module for each topic of the rules. It declares the situations, and says of what a rule was asked and what it answered
which of them came up:

    @watches(cdiv)
    def _rounds(answer: int, x: int, y: int) -> None: ...

A campaign asks after every example what was reached, and knows in the end what never was. What was
reached is kept by process, and not for threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

from oracle.rules import OBSERVERS

Change = Callable[..., Generator[None, Any, None]]
_DECLARED: Final[dict[str, Situation]] = {}
_REACHED: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation by its name, a sentence; the topic of its rule, and the only device on which it comes up, if there is one.

    The topic is the name of the rule's module, such as "align.memory".
    """

    name: str
    topic: str
    device: str | None = None

    def reached(self) -> None:
        """The situation is there."""
        _REACHED.add(self.name)

    def reached_if(self, condition: object) -> None:
        """The situation is there if `condition` is true."""
        if condition:
            _REACHED.add(self.name)


def situations_of(topic: str) -> Callable[..., Situation]:
    """Declares the situations of a topic: `declare(name, device=None)`.

    Raises:
        ValueError: when a name is declared that is taken.
    """

    def declare(name: str, device: str | None = None) -> Situation:
        if name in _DECLARED:
            taken = f"be a name of its own, which {_DECLARED[name].topic} has taken [situation]"
            raise ValueError(f"name = {name!r}, but should {taken}")
        _DECLARED[name] = Situation(name, topic, device)
        return _DECLARED[name]

    return declare


def reached(situations: Iterable[Situation]) -> None:
    """These situations are there."""
    for situation in situations:
        situation.reached()


def put_back(names: Iterable[str]) -> None:
    """What `take` has taken is there again."""
    _REACHED.update(names)


def every_situation() -> dict[str, Situation]:
    """Every situation of the modules that are imported, by name, in the order in which they were declared."""
    return dict(_DECLARED)


def take() -> frozenset[str]:
    """The names of the situations that were reached since the last call."""
    situations = frozenset(_REACHED)
    _REACHED.clear()
    return situations


class _Arguments:
    """Picks the arguments of a rule that a watcher names. What a method is called on goes by the name `owner`."""

    def __init__(self, rule: Callable[..., Any], watcher: str, wanted: list[str]) -> None:
        parameters = signature(rule).parameters
        self.names = ["owner" if name == "self" else name for name in parameters]
        self._defaults = {name: parameter.default for name, parameter in parameters.items()}
        unknown = [name for name in wanted if name not in self.names]
        if unknown:
            known = f"for some of {self.names}"
            raise ValueError(f"{watcher} asks for {unknown[0]!r}, but should {known} [watches]")
        self._places = [self.names.index(name) for name in wanted]

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        if len(args) < len(self.names):
            known = {**self._defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
            args = [known[name] for name in self.names]
        return [args[at] for at in self._places]


def watches(rule: Callable[..., Any]) -> Callable[[Callable[..., None]], None]:
    """Have the decorated function called after each answer of a rule; where the rule refuses, nothing is called.

    It gets the answer, and those of the rule's arguments that it names.

    Raises:
        ValueError: it names something else.
    """

    def register(look: Callable[..., None]) -> None:
        arguments = _Arguments(rule, look.__name__, list(signature(look).parameters)[1:])
        OBSERVERS[rule].append(lambda args, kwargs: lambda answer: look(answer, *arguments.of(args, kwargs)))

    return register


def watches_change(rule: Callable[..., Any]) -> Callable[[Change], None]:
    """As `watches`, for a rule that changes what it is called on: the decorated generator looks before it, and after its `yield`."""

    def register(change: Change) -> None:
        arguments = _Arguments(rule, change.__name__, list(signature(change).parameters))

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], None]:
            watcher = change(*arguments.of(args, kwargs))
            next(watcher)

            def end(answer: Any) -> None:
                with suppress(StopIteration):
                    watcher.send(answer)

            return end

        OBSERVERS[rule].append(begin)

    return register


@contextmanager
def unwatched() -> Iterator[None]:
    """Watchers of rules are not called meanwhile."""
    watchers = [(observers, list(observers)) for observers in OBSERVERS.values()]
    for observers, _ in watchers:
        observers.clear()
    try:
        yield
    finally:
        for observers, kept in watchers:
            observers.extend(kept)
