"""What is planted for hunts: each defect of `tests/breakages`, by the group that its file is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.breakages.align import ALIGN
from tests.breakages.builder import BUILDERS
from tests.breakages.lifecycle import LIFECYCLE
from tests.breakages.stateless import STATELESS
from tests.breakages.variants import Breakage, broken_copy, implementation

GROUPS: dict[str, Sequence[Breakage]] = {
    "stateless": STATELESS,
    "builders": BUILDERS,
    "align": ALIGN,
    "engines": LIFECYCLE,
}
"""Defects in copies of `impl`. Those of the last group show in the simulated engine alone."""


@dataclass(frozen=True)
class HuntedDefect:
    """A defect of a group, which a hunt has to find in a copy of `impl`."""

    group: str
    breakage: Breakage

    @property
    def name(self) -> str:
        return self.breakage.name

    def plant(self, folder: Path) -> str:
        """Put the broken copy into the folder; the subject's name."""
        return broken_copy(self.breakage.variant, implementation(), folder).name


def planted_defects(groups: Sequence[str] = (), only: str = "") -> list[HuntedDefect]:
    """The defects of these groups, or of all, whose name has `only` in it.

    Raises:
        ValueError: there is no such group.
    """
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise ValueError(f"groups = {unknown}, but should be some of {', '.join(GROUPS)} [planted_defects]")
    return [
        HuntedDefect(group, breakage)
        for group, breakages in GROUPS.items()
        if not groups or group in groups
        for breakage in breakages
        if only in breakage.name
    ]
