"""Known defects of a subject, as a worker meets them in examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from oracle.profile import Profile
from properties.harness.campaign.defects import names_of
from properties.harness.case import Case
from properties.harness.subject import KnownDeviation


class Heard:
    """Counts the failing examples that show a declared defect.

    `hidden`: the sanitizer's finding was one of them.

    Args:
        profile: the rules by which the subject's release goes, for conditions that ask about them.
        on_first: is told the name of a defect and the first case that shows it.
    """

    def __init__(
        self, declared: tuple[KnownDeviation, ...], profile: Profile, on_first: Callable[[str, Case], None]
    ) -> None:
        self.declared = dict(zip(names_of(declared), declared, strict=True))
        self.shown: Counter[str] = Counter()
        self.hidden = False
        self._profile, self._on_first = profile, on_first
        self._met: set[str] = set()

    def clear(self) -> None:
        self.shown.clear()
        self.hidden = False

    def known(self, case: Case) -> KnownDeviation | None:
        """The defect that a failing example shows, which is counted; None where it is new."""
        name = self.which(case)
        if name is None:
            return None
        self.shown[name] += 1
        self.hidden = self.hidden or case.sanitized
        if name not in self._met:
            self._met.add(name)
            self._on_first(name, case)
        return self.declared[name]

    def which(self, case: Case) -> str | None:
        """The name of the known defect that a case shows."""
        return next((name for name, one in self.declared.items() if one.shows_in(case, self._profile)), None)
