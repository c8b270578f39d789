"""How many examples of a property there were, and what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace


@dataclass
class Counts:
    """Examples, each counted in one place.

    Args:
        examples: all of them.
        compared: those that reached the property's own assertion on values that the subject returned.
        outside: those that ended before, at a call that the subject's contract leaves out, by the reason.
        not_offered: those that ended before, at something that the subject does not offer, by what it says.
        discarded: those that the property itself did not want.
        no_evidence: those that came to their end without what the property is about, by what was missing.
        unchecked: no examples, but what they have observed and no rule says anything about: "function: place", and how often.
    """

    examples: int = 0
    compared: int = 0
    outside: Counter[str] = field(default_factory=Counter)
    not_offered: Counter[str] = field(default_factory=Counter)
    discarded: int = 0
    no_evidence: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)

    @property
    def vacuous(self) -> int:
        """Examples that came to their end without an assertion."""
        ended = self.ended_before + self.discarded + self.no_evidence.total()
        return self.examples - self.compared - ended

    @property
    def ended_before(self) -> int:
        return self.outside.total() + self.not_offered.total()

    @property
    def reasons(self) -> str:
        """Why examples are no evidence, the most frequent reason first."""
        why = self.outside + self.not_offered + self.no_evidence
        told = [reason for reason, _ in why.most_common()]
        told += ["the property discarded what was drawn"] if self.discarded else []
        told += ["there was nothing to compare in what was drawn"] if self.vacuous > 0 else []
        return "; ".join(told)

    def add(self, other: Counts) -> None:
        self.examples += other.examples
        self.compared += other.compared
        self.outside.update(other.outside)
        self.not_offered.update(other.not_offered)
        self.discarded += other.discarded
        self.no_evidence.update(other.no_evidence)
        self.unchecked.update(other.unchecked)

    def take(self) -> Counts:
        """What was counted until now; counting starts anew."""
        taken = replace(self)
        self.__init__()  # type: ignore[misc]
        return taken
