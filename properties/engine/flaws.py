"""Findings of a scenario, and the exceptions that carry it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from statecheck.case.failure import Failure, WrongBytes, stated
from statecheck.case.values import Raised


@dataclass(frozen=True)
class Flaw:
    """A block in which something is wrong, or None where no block is to blame.

    `seen` says what was seen, and `wanted` what the law says instead, such as "should be zeros". `place` is what is wrong: "read",
    "stored", "written", "first token", "metadata" or "output"; `rule` says in words that hold for every input what is broken of it. `function` and `outcome` are those of a call that raised. `wrong_bytes`
    is the first of the wrong bytes. `request` is the request that got a wrong output.
    """

    seen: str
    group: int | None = None
    block: int | None = None
    wrong_bytes: WrongBytes | None = None
    wanted: str = field(default="", kw_only=True)
    place: str = field(default="", kw_only=True)
    rule: str = field(default="", kw_only=True)
    function: str = field(default="", kw_only=True)
    outcome: Raised | None = field(default=None, kw_only=True)
    request: str = field(default="", kw_only=True)

    @property
    def message(self) -> str:
        return f"{self.seen}, but {self.wanted}" if self.wanted else self.seen

    @property
    def failure(self) -> Failure:
        """The flaw as a failure of an example."""
        found = stated(self.seen, self.wanted, place=self.place, function=self.function, rule=self.rule)
        if self.outcome is not None:
            return replace(found, kind=self.outcome.kind, exception=self.outcome.exception)
        return replace(found, kind="memory") if self.place == "written" else found


class Violation(Exception):
    """The engine's state broke a law."""

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(flaw.message)
        self.flaw = flaw


class Misled(Violation):
    """A kernel that follows the metadata cannot go on; the flaw says why, and in which block, if it is one's fault."""

    def __init__(
        self,
        seen: str,
        group: int | None = None,
        block: int | None = None,
        *,
        wanted: str = "",
        place: str = "metadata",
        rule: str,
    ) -> None:
        super().__init__(Flaw(seen, group, block, wanted=wanted, place=place, rule=rule))


class SubjectFailed(Exception):
    """A call inside the documented domain did what no call may do."""

    def __init__(
        self, function: str, seen: str, wanted: str = "", outcome: Raised | None = None, *, rule: str
    ) -> None:
        self.function, self.seen, self.wanted, self.outcome, self.rule = function, seen, wanted, outcome, rule
        super().__init__(f"{seen}, but {wanted}" if wanted else seen)

    def flaw(self, when: str) -> Flaw:
        return Flaw(
            f"{when}, {self.seen}",
            wanted=self.wanted,
            place="the call" if self.outcome is not None else "written",
            function=self.function,
            outcome=self.outcome,
            rule=self.rule,
        )


def subject_raised(function: str, raised: Raised) -> SubjectFailed:
    """The failure of a function of the subject that raised."""
    seen = f"{function} raised {raised.exception}: {raised.message}"
    return SubjectFailed(function, seen, outcome=raised, rule=f"{function}: raises {raised.exception}")
