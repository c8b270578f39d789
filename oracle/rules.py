"""What every rule of the oracle has in common: it refuses what lies outside of the documented domain, and it can be observed.

The oracle says which rules can be observed, and the observers stand outside of it. A rule knows nothing of its observers, and its answer is
the same with and without them.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar


class Refused(ValueError):
    """An input outside the documented domain: which argument, what it was, and the rule that it breaks.

    `rule` completes the sentence "argument = value, but should ...". An element of a sequence is
    named with its index, as in `query_start_loc[3]`.
    """

    def __init__(self, argument: str, value: object, rule: str) -> None:
        self.argument = argument
        self.value = value
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.argument} = {self.value!r}, but should {self.rule}"


def require(holds: bool, argument: str, value: object, rule: str) -> None:
    """Refuse `value` unless its rule holds."""
    if not holds:
        raise Refused(argument, value, rule)


def require_int(argument: str, value: object, minimum: int | None = None) -> None:
    """Refuse anything but an integer of at least `minimum`; a truth value is not an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(argument, value, "be an int")
    if minimum is not None:
        require(value >= minimum, argument, value, f"be >= {minimum}")


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
