"""The kernels that a campaign launched, as its record has them: how they were run, and which of their branches were taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from statecheck.kernels.coverage import INTERPRETED, Branch, Coverage, How


@dataclass
class LaunchRecord:
    """How many launches were run in one way: "executed", or "interpreted" and why."""

    how: str
    why: str = ""
    times: int = 0


@dataclass
class BranchRecord:
    """A way that control can take at a line of a kernel: "then", "else", "loop" or "block"; `text` is the line's source."""

    file: str
    line: int
    way: str
    text: str = ""
    taken: bool = False


@dataclass
class KernelRecord:
    """A kernel of all its variants; `place` is the file and line of its code."""

    name: str
    place: str = ""
    launches: list[LaunchRecord] = field(default_factory=list)
    branches: list[BranchRecord] = field(default_factory=list)

    @property
    def executed(self) -> int:
        """Launches that were executed from the kernel's IR."""
        return sum(launch.times for launch in self.launches if launch.how != INTERPRETED)

    @property
    def interpreted(self) -> list[LaunchRecord]:
        """Launches that were handed to Triton's interpreter, by the reason."""
        return [launch for launch in self.launches if launch.how == INTERPRETED]

    @property
    def taken(self) -> int:
        return sum(branch.taken for branch in self.branches)

    @property
    def missed(self) -> list[BranchRecord]:
        """Branches that no launch took."""
        return [branch for branch in self.branches if not branch.taken]


def records_of(coverage: Coverage) -> list[KernelRecord]:
    """A record for each kernel, in the order of names; branches in the order of lines."""
    branches = sorted(coverage.branches | coverage.taken)
    places = {(how.kernel, how.place) for how in coverage.launches} | {branch[:2] for branch in branches}
    found = {place: KernelRecord(*place) for place in sorted(places)}
    for how, times in sorted(coverage.launches.items(), key=lambda item: (item[0].how, item[0].why)):
        found[how.kernel, how.place].launches.append(LaunchRecord(how.how, how.why, times))
    for one in branches:
        branch = BranchRecord(one.file, one.line, one.way, one.text, one in coverage.taken)
        found[one.kernel, one.place].branches.append(branch)
    return list(found.values())


def coverage_of(records: Iterable[KernelRecord]) -> Coverage:
    """What was launched and taken, from the records of it; those of several campaigns add up."""
    launches, branches, taken = Counter[How](), set[Branch](), set[Branch]()
    for kernel in records:
        for launch in kernel.launches:
            launches[How(kernel.name, launch.how, launch.why, kernel.place)] += launch.times
        for way in kernel.branches:
            branch = Branch(kernel.name, kernel.place, way.file, way.line, way.way, way.text)
            branches.add(branch)
            if way.taken:
                taken.add(branch)
    return Coverage(launches, frozenset(branches), frozenset(taken))
