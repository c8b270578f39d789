"""How many examples of a property there were, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass
class Counts:
    """Examples, each counted in one place.

    Args:
        examples: all of them.
        compared: those that reached the property's own assertion on values that the subject returned.
        outside: those that ended before, at a call that the subject's contract leaves out, by the reason.
        not_offered: those that ended before, at something that the subject does not offer, by what it says.
        discarded: those that the property itself did not want.
    """

    examples: int = 0
    compared: int = 0
    outside: Counter[str] = field(default_factory=Counter)
    not_offered: Counter[str] = field(default_factory=Counter)
    discarded: int = 0

    @property
    def vacuous(self) -> int:
        """Examples that came to their end without an assertion."""
        return self.examples - self.compared - self.ended_before - self.discarded

    @property
    def ended_before(self) -> int:
        return self.outside.total() + self.not_offered.total()

    @property
    def reasons(self) -> str:
        """Why examples ended before an assertion was reached, the most frequent reason first."""
        told = [reason for reason, _ in (self.outside + self.not_offered).most_common()]
        told += ["the property discarded what was drawn"] if self.discarded else []
        told += ["there was nothing to compare in what was drawn"] if self.vacuous > 0 else []
        return "; ".join(told)

    def add(self, other: Counts) -> None:
        self.examples += other.examples
        self.compared += other.compared
        self.outside.update(other.outside)
        self.not_offered.update(other.not_offered)
        self.discarded += other.discarded

    def take(self) -> Counts:
        """What was counted until now; counting starts anew."""
        taken = Counts(self.examples, self.compared, self.outside, self.not_offered, self.discarded)
        self.__init__()  # type: ignore[misc]
        return taken

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a campaign's record."""
        return {
            "examples": self.examples,
            "compared": self.compared,
            "outside": dict(self.outside),
            "not_offered": dict(self.not_offered),
            "discarded": self.discarded,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        outside, not_offered = (Counter(content.get(name, {})) for name in ("outside", "not_offered"))
        numbers = (int(content.get(name, 0)) for name in ("examples", "compared", "discarded"))
        examples, compared, discarded = numbers
        return cls(examples, compared, outside, not_offered, discarded)
