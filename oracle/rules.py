"""Rules that can be observed: the oracle says which they are, and the observers stand outside of it.

A rule knows nothing of its observers, and its answer is the same with and without them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Observer = Callable[[tuple[Any, ...], dict[str, Any]], Callable[[Any], None]]
"""Called with the arguments of a rule before it answers; what it returns is called with the answer, if there is one."""
OBSERVERS: Final[dict[Callable[..., Any], list[Observer]]] = {}
"""By rule."""


def rule(function: Callable[P, T]) -> Callable[P, T]:
    """The same function or method, which can be observed."""
    observers: list[Observer] = []

    @wraps(function)
    def observed(*args: P.args, **kwargs: P.kwargs) -> T:
        if not observers:
            return function(*args, **kwargs)
        ends = [begin(args, kwargs) for begin in observers]
        answer = function(*args, **kwargs)
        for end in ends:
            end(answer)
        return answer

    OBSERVERS[observed] = observers
    return observed
