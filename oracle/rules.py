"""Rules that can be watched: who watches one sees what it is asked and what it answers.

    @rule
    def cdiv(x: int, y: int) -> int: ...

    @watches(cdiv)
    def _rounds(answer: int, x: int, y: int) -> None: ...

A rule knows nothing of those who watch it, and its answer is the same with and without them.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Change = Callable[..., Generator[None, Any, None]]
_WATCHED: Final[dict[Callable[..., Any], "_Rule"]] = {}


class _Rule:
    """The names of a rule's arguments, and who watches it. What a method is called on goes by the name `owner`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = signature(function).parameters
        self.names = ["owner" if name == "self" else name for name in parameters]
        self.watching: list[tuple[Change, list[str]]] = []
        self._defaults = {
            name: one.default for name, one in parameters.items() if one.default is not Parameter.empty
        }

    def watch(self, change: Change, wanted: list[str], name: str) -> None:
        unknown = [one for one in wanted if one not in self.names]
        if unknown:
            raise ValueError(f"{name} asks for {unknown[0]!r}, but should for some of {self.names} [watches]")
        self.watching.append((change, wanted))

    def begun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Generator[None, Any, None]]:
        given = {**self._defaults, **dict(zip(self.names, args, strict=False)), **kwargs}
        found = [change(**{name: given[name] for name in wanted}) for change, wanted in self.watching]
        for one in found:
            next(one)
        return found


def rule(function: Callable[P, T]) -> Callable[P, T]:
    """The same function or method, which can be watched."""
    about = _Rule(function)

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        if not about.watching:
            return function(*args, **kwargs)
        begun = about.begun(args, kwargs)
        answer = function(*args, **kwargs)
        for one in begun:
            with suppress(StopIteration):
                one.send(answer)
        return answer

    _WATCHED[asked] = about
    return asked


def watches(watched: Callable[..., Any]) -> Callable[[Callable[..., None]], None]:
    """Have the decorated function called after each answer of a rule; where the rule refuses, nothing is called.

    It gets the answer, and those of the rule's arguments that it names.

    Raises:
        ValueError: it names something else.
    """

    def register(look: Callable[..., None]) -> None:
        wanted = list(signature(look).parameters)[1:]

        def change(**given: Any) -> Generator[None, Any, None]:
            answer = yield
            look(answer, **given)

        _WATCHED[watched].watch(change, wanted, look.__name__)

    return register


def watches_change(watched: Callable[..., Any]) -> Callable[[Change], None]:
    """As `watches`, for a rule that changes what it is called on: the decorated generator looks before it, and after its `yield`."""

    def register(change: Change) -> None:
        _WATCHED[watched].watch(change, list(signature(change).parameters), change.__name__)

    return register
