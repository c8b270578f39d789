"""Situations by name: which of the cases that rules tell apart there are, and which have come up.

A campaign asks after every example what was reached, and knows in the end what never was. What was
reached is kept by process, and not for threads.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

_DECLARED: Final[dict[str, "Situation"]] = {}
_REACHED: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Situation:
    """A situation by its name, a sentence; the topic of its rule, and the only device on which it comes up, if there is one.

    The topic is the name of the rule's module below its package, such as "align.memory".
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


def declared() -> dict[str, Situation]:
    """Every situation of the modules that are imported, by name, in the order in which they were declared."""
    return dict(_DECLARED)


def take() -> frozenset[str]:
    """The names of the situations that were reached since the last call."""
    situations = frozenset(_REACHED)
    _REACHED.clear()
    return situations
