"""What a property's examples come to, and what commands exit with: the same words, from the same code, in every command."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field, replace

from statecheck.util.text import counted

_MOST_REASONS = 4


@dataclass
class Counts:
    """Examples, each counted in one place.

    Args:
        examples: all of them.
        compared: those in which the property compared something that a function of the subject returned, or its refusal
            where the property is about refusals.
        parts: rows, fields and bytes that were compared in these, and conditions on them that a property stated.
        outside: those that ended before, at a call that the subject's contract leaves out, by the reason.
        not_offered: those that ended before, at something that the subject does not offer, by what it says.
        discarded: those that the property itself did not want.
        no_evidence: those that came to their end without what the property is about, by what was missing.
        configurations: no further examples, but those compared of each configuration of the subject, such as a model of a library.
        unverified: of configurations that cannot be verified, why not.
        situations: of those that properties are for, and others that examples reached, how many examples reached each.
        unchecked: no examples, but what they have observed and no rule says anything about: "function: place", and how often.
    """

    examples: int = 0
    compared: int = 0
    outside: Counter[str] = field(default_factory=Counter)
    not_offered: Counter[str] = field(default_factory=Counter)
    discarded: int = 0
    no_evidence: Counter[str] = field(default_factory=Counter)
    situations: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    parts: int = 0
    configurations: Counter[str] = field(default_factory=Counter)
    unverified: dict[str, str] = field(default_factory=dict)

    @property
    def vacuous(self) -> int:
        """Examples that came to their end without anything compared."""
        ended = self.ended_before + self.discarded + self.no_evidence.total()
        return self.examples - self.compared - ended

    @property
    def ended_before(self) -> int:
        return self.outside.total() + self.not_offered.total()

    @property
    def left_out(self) -> str:
        """What examples came to that cannot be compared on the subject, the most frequent reason first; "" without any."""
        why = (self.outside + self.not_offered + self.no_evidence).most_common()
        messages = [reason for reason, _ in why[:_MOST_REASONS]]
        more = len(why) - len(messages)
        return "; ".join([*messages, f"and {more} other reasons"] if more else messages)

    @property
    def unreached(self) -> list[str]:
        """Situations that the property is for and no example has reached."""
        return [name for name, examples in self.situations.items() if not examples]

    @property
    def telling(self) -> int:
        """Examples after which more would hardly change that the property is not tested."""
        return TELLING_OF_SITUATIONS if self.unreached else TELLING

    @property
    def reasons(self) -> str:
        """Why examples are no evidence, the most frequent reason first."""
        message = [self.left_out] if self.left_out else []
        message += ["the property discarded what was drawn"] if self.discarded else []
        message += ["there was nothing to compare in what was drawn"] if self.vacuous > 0 else []
        return "; ".join(message)

    def add(self, other: Counts) -> None:
        self.examples += other.examples
        self.compared += other.compared
        self.outside.update(other.outside)
        self.not_offered.update(other.not_offered)
        self.discarded += other.discarded
        self.no_evidence.update(other.no_evidence)
        self.situations.update(other.situations)
        self.unchecked.update(other.unchecked)
        self.parts += other.parts
        self.configurations.update(other.configurations)
        self.unverified.update(other.unverified)

    def take(self) -> Counts:
        """What was counted until now; counting starts anew."""
        taken = replace(self)
        self.__init__()  # type: ignore[misc]
        return taken


CLEAN = 0
FALSIFIED = 1
"""Something is wrong with the subject."""
INCOMPLETE = 2
"""Too little was tried to say so, or the harness itself went wrong."""
MISCONFIGURED = 3
"""The command cannot be run as given."""


class Status(enum.Enum):
    """What became of a property; design: what a verdict means."""

    PASSED = "passed"
    KNOWN = "known"
    FALSIFIED = "FALSIFIED"
    UNEXPECTED_PASS = "UNEXPECTED PASS"
    ERROR = "ERROR"
    NOT_FINISHED = "not finished"
    NOT_VERIFIED = "not verified"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


WORST_FIRST = (
    Status.FALSIFIED,
    Status.ERROR,
    Status.NOT_FINISHED,
    # A deviation that showed in one shard, or in one test, is known, although it did not show in another.
    Status.KNOWN,
    Status.UNEXPECTED_PASS,
    Status.PASSED,
    Status.NOT_TESTED,
    Status.NOT_VERIFIED,
    Status.NOT_APPLICABLE,
)
"""Of several statuses of one property, of its configurations, of shards or of tests, the first in this order counts."""
TELLING, TELLING_OF_SITUATIONS = 25, 60
"""Examples after which more would hardly lead to a comparison, or to a situation, which one example in eight reaches; with fewer it may be
chance that there was none."""


@dataclass(frozen=True)
class Verdict:
    """A status, and why where that is no matter of course."""

    status: Status
    reason: str = ""


def verdict_of(counts: Counts, *, known: bool = False) -> Verdict:
    """The verdict on a property that no new failure was seen of, and that applies.

    Args:
        known: an example showed a declared defect.
    """
    if known:
        return Verdict(Status.KNOWN)
    unreached = counts.unreached
    if counts.compared and not unreached:
        return Verdict(Status.PASSED)
    if not counts.examples:
        return Verdict(Status.NOT_TESTED, "no example was run")
    if counts.unverified:
        return Verdict(Status.NOT_VERIFIED, "; ".join(counts.unverified.values()))
    # Without situations, the other examples had nothing to compare, or were inputs that the contract leaves out: other inputs may be inside
    # of it. With situations, the other examples went on and reached none; as long as they are more, the lack explains nothing.
    lacks = counts.not_offered.total() >= max(1, counts.vacuous if unreached else 1)
    if not counts.compared and (lacks or counts.no_evidence):
        return Verdict(Status.NOT_APPLICABLE, counts.left_out)
    if unreached:
        examples = counted(counts.examples, "example")
        reasons = f"; {counts.left_out}" if counts.left_out else ""
        return Verdict(Status.NOT_TESTED, f"never reached in {examples}: {', '.join(unreached)}{reasons}")
    ended = f"nothing was compared in all {counts.examples:,} examples"
    if counts.examples == 1:
        ended = "nothing was compared in the only example"
    return Verdict(Status.NOT_TESTED, f"{ended}: {counts.reasons}")
