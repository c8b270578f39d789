"""Named situations: which of the cases that a rule tells apart have come up.

A mark stands beside the rule that decides it, and is noted where the rule applies:

    _EMPTY = mark("a sequence without tokens has no chunk")
    ...
    _EMPTY.reached_if(length == 0)

Whoever looks for mistakes asks after every example what was reached, and learns in the end what never was. Marks are
kept by process, and not for threads.
"""

import sys
from dataclasses import dataclass
from typing import Final

_DECLARED: Final[dict[str, "Mark"]] = {}
_REACHED: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Mark:
    """A situation by its name, with the module that declares it and the only device on which it comes up, if there is one.

    The topic is the module's name below its package, such as "align.memory".
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


def mark(name: str, device: str | None = None, topic: str = "") -> Mark:
    """Declare a situation, at the module level of the rule that decides it.

    Args:
        topic: of the rule, where that is not the module that declares the mark.

    Raises:
        ValueError: the name is taken.
    """
    module: str = sys._getframe(1).f_globals["__name__"]
    if name in _DECLARED:
        taken = f"be a name of its own, which {_DECLARED[name].topic} has taken [mark]"
        raise ValueError(f"name = {name!r}, but should {taken}")
    _DECLARED[name] = Mark(name, topic or module.partition(".")[2] or module, device)
    return _DECLARED[name]


def declared() -> dict[str, Mark]:
    """Every mark of the modules that are imported, by name, in the order in which they were declared."""
    return dict(_DECLARED)


def take() -> frozenset[str]:
    """The names of the marks that were reached since the last call."""
    found = frozenset(_REACHED)
    _REACHED.clear()
    return found
