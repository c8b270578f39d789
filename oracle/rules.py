"""Rules that can be watched: who watches one sees what it is asked and what it answers.

    @rule
    def cdiv(x: int, y: int) -> int: ...

    @watches(cdiv)
    def _rounds(answer: int, x: int, y: int) -> None: ...

A rule knows nothing of those who watch it, and its answer is the same with and without them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import signature
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Change = Callable[..., Generator[None, Any, None]]
_WATCHED: Final[dict[Callable[..., Any], "_WatchedRule"]] = {}


class _WatchedRule:
    """The names of a rule's arguments, and who watches it. What a method is called on goes by the name `owner`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = signature(function).parameters
        self.names = ["owner" if name == "self" else name for name in parameters]
        self.looks: list[tuple[Callable[..., None], list[int]]] = []
        self.changes: list[tuple[Change, list[int]]] = []
        self._defaults = {name: parameter.default for name, parameter in parameters.items()}

    def places(self, wanted: list[str], watcher: str) -> list[int]:
        """Where the arguments that a watcher names stand among all."""
        unknown = [name for name in wanted if name not in self.names]
        if unknown:
            known = f"for some of {self.names}"
            raise ValueError(f"{watcher} asks for {unknown[0]!r}, but should {known} [watches]")
        return [self.names.index(name) for name in wanted]

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """All arguments of a call, in order."""
        if len(args) == len(self.names):
            return args
        known = {**self._defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        return [known[name] for name in self.names]


def rule(function: Callable[P, T]) -> Callable[P, T]:
    """The same function or method, which can be watched."""
    about = _WatchedRule(function)

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        if not about.looks and not about.changes:
            return function(*args, **kwargs)
        given = about.given(args, kwargs)
        begun = [change(*(given[at] for at in places)) for change, places in about.changes]
        for watcher in begun:
            next(watcher)
        answer = function(*args, **kwargs)
        for watcher in begun:
            with suppress(StopIteration):
                watcher.send(answer)
        for look, places in about.looks:
            look(answer, *(given[at] for at in places))
        return answer

    _WATCHED[asked] = about
    return asked


@contextmanager
def unwatched() -> Iterator[None]:
    """Watchers of rules are not called meanwhile."""
    watchers = [(about, about.looks, about.changes) for about in _WATCHED.values()]
    for about, _, _ in watchers:
        about.looks, about.changes = [], []
    try:
        yield
    finally:
        for about, looks, changes in watchers:
            about.looks, about.changes = looks, changes


def watches(watched: Callable[..., Any]) -> Callable[[Callable[..., None]], None]:
    """Have the decorated function called after each answer of a rule; where the rule refuses, nothing is called.

    It gets the answer, and those of the rule's arguments that it names.

    Raises:
        ValueError: it names something else.
    """

    def register(look: Callable[..., None]) -> None:
        about, wanted = _WATCHED[watched], list(signature(look).parameters)[1:]
        about.looks.append((look, about.places(wanted, look.__name__)))

    return register


def watches_change(watched: Callable[..., Any]) -> Callable[[Change], None]:
    """As `watches`, for a rule that changes what it is called on: the decorated generator looks before it, and after its `yield`."""

    def register(change: Change) -> None:
        about, wanted = _WATCHED[watched], list(signature(change).parameters)
        about.changes.append((change, about.places(wanted, change.__name__)))

    return register
