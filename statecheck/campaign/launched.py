"""The kernels that a campaign launched, as its record has them, and how they were run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from statecheck.kernels.launch_counts import INTERPRETED, How


@dataclass
class LaunchRecord:
    """How many launches were run in one way: "executed", or "interpreted" and why."""

    how: str
    why: str = ""
    times: int = 0


@dataclass
class KernelRecord:
    """A kernel of all its variants; `place` is the file and line of its code."""

    name: str
    place: str = ""
    launches: list[LaunchRecord] = field(default_factory=list)

    @property
    def executed(self) -> int:
        """Launches that were executed from the kernel's IR."""
        return sum(launch.times for launch in self.launches if launch.how != INTERPRETED)

    @property
    def interpreted(self) -> list[LaunchRecord]:
        """Launches that were handed to Triton's interpreter, by the reason."""
        return [launch for launch in self.launches if launch.how == INTERPRETED]


def records_of(launches: Mapping[How, int]) -> list[KernelRecord]:
    """A record for each kernel, in the order of names."""
    found = {place: KernelRecord(*place) for place in sorted({(how.kernel, how.place) for how in launches})}
    for how, times in sorted(launches.items(), key=lambda item: (item[0].how, item[0].why)):
        found[how.kernel, how.place].launches.append(LaunchRecord(how.how, how.why, times))
    return list(found.values())


def launches_of(records: Iterable[KernelRecord]) -> Counter[How]:
    """The launches that records list; those of several campaigns add up."""
    launches = Counter[How]()
    for kernel in records:
        for launch in kernel.launches:
            launches[How(kernel.name, launch.how, launch.why, kernel.place)] += launch.times
    return launches
