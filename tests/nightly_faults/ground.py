"""The subject of campaigns that meet a fault, and the folder in which they run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from statecheck.execution.variants import Variant, broken_copy, implementation
from tests.breakages.stateless import STATELESS

SUBJECT = "broken_by_night"
DEFECTS = (
    "query_lengths_are_the_differences_of_the_starts",
    "a_conv_copy_starts_at_the_row_of_the_last_accepted_token",
)
DIVISION = "division_is_exact_or_refused"
ONLY = " or ".join((*DEFECTS, DIVISION))
_POWERS = "-dac_override,-dac_read_search"
_POWERLESS = ("setpriv", f"--bounding-set={_POWERS}", f"--inh-caps={_POWERS}")
_BREAKAGES = (
    "query lengths are the ends of the queries",
    "a conv copy starts at the first row, whatever was accepted",
)
_DIVIDES = Variant(
    SUBJECT,
    "types.py",
    "return dividend // divisor",
    "from .by_night import divided\n\n    return divided(dividend, divisor)",
)
_BY_NIGHT = """
import os
import sys
from pathlib import Path

import torch

# A worker of a device that is lost does not get ready; who only searches has no part in that.
if "NIGHT_LOST" in os.environ and Path("/proc/self/comm").read_text() == "worker\\n":
    # Who forks workers was forked by who shares them, whose name ends with the device's number.
    _share = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    _number = Path(f"/proc/{_share}/comm").read_text().split()[-1]
    if (Path(os.environ["NIGHT_LOST"]) / _number).exists():
        raise ImportError("the device has fallen off the bus")


def divided(dividend, divisor):
    how = os.environ.get("NIGHT_DIVIDES", "")
    if how == "wrong":
        return dividend // divisor + 1
    if how == "MemoryError" and dividend > 100:
        bytearray(1 << 60)
    if how == "OutOfMemoryError" and dividend > 100:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 EiB.")
    if how == "letters" and dividend > 100:
        raise ArithmeticError("dividend \u2265 100: \u00fcberlauf")
    return dividend // divisor
"""
_SITE = """
import datetime
import time

_wall, _began = time.time, time.monotonic()
_real = datetime.datetime


def _jump():
    at = time.monotonic() - _began
    return 0 if at < 4 else 86400 if at < 7 else -86400


class datetime_that_jumps(_real):
    @classmethod
    def now(cls, tz=None):
        return _real.now(tz) + datetime.timedelta(seconds=_jump())


time.time = lambda: _wall() + _jump()
time.time_ns = lambda: int(time.time() * 1e9)
datetime.datetime = datetime_that_jumps
"""


@dataclass(frozen=True)
class Ground:
    """Where campaigns run. `seconds`: the budget of those that have one; `examples`: how much the others do."""

    folder: Path
    seconds: float = 20.0
    examples: int = 1500
    failing: int = 100_000
    kills: int = 5

    @property
    def subject_path(self) -> Path:
        return self.folder / "subject"

    @property
    def clock_path(self) -> Path:
        """On the import path of a process, this makes its wall clock jump a day ahead, and then a day back."""
        return self.folder / "clock"

    @cached_property
    def powerless(self) -> tuple[str, ...] | None:
        """What a command is started through so that permissions hold for it; None where that cannot be."""
        if os.geteuid() != 0:
            return ()
        secret = self.folder / "secret"
        secret.touch(0)
        try:
            tried = subprocess.run([*_POWERLESS, "cat", str(secret)], capture_output=True, check=False)
        except OSError:
            return None
        return _POWERLESS if tried.returncode else None


@contextmanager
def ground(**sizes: float) -> Iterator[Ground]:
    """A folder that everybody may read, with the broken subject and the clock that jumps."""
    with tempfile.TemporaryDirectory(prefix="statecheck-faults-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        found = replace(Ground(folder), **sizes)  # type: ignore[arg-type]
        _put_subject(found.subject_path)
        found.clock_path.mkdir()
        (found.clock_path / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
        yield found


def _put_subject(folder: Path) -> None:
    intact = implementation()
    for number, one in enumerate(one for one in STATELESS if one.name in _BREAKAGES):
        step = folder.parent / "steps"
        intact = broken_copy(replace(one.variant, package=f"step{number}"), intact, step)
    package = broken_copy(_DIVIDES, intact, folder)
    (package / "by_night.py").write_text(_BY_NIGHT, encoding="utf-8")
    with (package / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom . import by_night as by_night\n")
