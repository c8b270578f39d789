"""The subject of campaigns that meet a fault, and the folder in which they run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from statecheck.execution.variants import broken_copy, implementation
from tests.breakages.stateless import STATELESS

SUBJECT = "broken_by_night"
ONLY = "query_lengths_are_the_differences_of_the_starts or a_conv_copy_starts_at_the_row_of_the_last_accepted_token"
_BREAKAGES = (
    "query lengths are the ends of the queries",
    "a conv copy starts at the first row, whatever was accepted",
)
_BY_NIGHT = """
import os
from pathlib import Path

# A worker of a device that is lost does not get ready; who only searches has no part in that.
if "NIGHT_LOST" in os.environ and Path("/proc/self/comm").read_text() == "worker\\n":
    # Who forks workers was forked by who shares them, whose name ends with the device's number.
    _share = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    _number = Path(f"/proc/{_share}/comm").read_text().split()[-1]
    if (Path(os.environ["NIGHT_LOST"]) / _number).exists():
        raise ImportError("the device has fallen off the bus")
"""


@dataclass(frozen=True)
class Ground:
    """Where campaigns run; `examples`: how much they do."""

    folder: Path
    examples: int = 300

    @property
    def subject_path(self) -> Path:
        return self.folder / "subject"


@contextmanager
def ground() -> Iterator[Ground]:
    """A folder with the broken subject."""
    with tempfile.TemporaryDirectory(prefix="statecheck-faults-") as name:
        found = Ground(Path(name))
        _put_subject(found.subject_path)
        yield found


def _put_subject(folder: Path) -> None:
    intact = implementation()
    breakages = [one for one in STATELESS if one.name in _BREAKAGES]
    for number, one in enumerate(breakages):
        last = number == len(breakages) - 1
        package, place = (SUBJECT, folder) if last else (f"step{number}", folder.parent / "steps")
        intact = broken_copy(replace(one.variant, package=package), intact, place)
    (intact / "by_night.py").write_text(_BY_NIGHT, encoding="utf-8")
    with (intact / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom . import by_night as by_night\n")
