"""The steps of examples that a process ran lately, which its subject may remember something of."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from statecheck.case.values import Step

Examples = tuple[tuple[Step, ...], ...]
_MOST, _LONGEST = 256, 200
"""Examples, and steps of one: what is kept has to stay small, and a longer one would take too long to run again."""


class EarlierExamples:
    """The last examples of a process, in order, and those that it had run when an example failed for the first time."""

    def __init__(self) -> None:
        self._lately: deque[Sequence[Step]] = deque(maxlen=_MOST)
        self._at_failure: Examples | None = None

    def begin(self, steps: Sequence[Step]) -> None:
        """An example begins, whose steps will be in `steps`."""
        if self._lately and len(self._lately[-1]) > _LONGEST:
            self._lately.pop()
        self._lately.append(steps)

    def note_failure(self) -> None:
        """The example in hand fails; others follow it that try to be smaller."""
        if self._at_failure is None:
            self._at_failure = self.lately

    def forget_failure(self) -> None:
        """What failed is dealt with."""
        self._at_failure = None

    @property
    def lately(self) -> Examples:
        """The last examples, the one in hand at the end."""
        return tuple(tuple(one) for one in self._lately if one)

    @property
    def at_failure(self) -> Examples:
        """The last examples up to the first that failed; none where none did."""
        return self._at_failure or ()
