"""What a session of watched tests has launched and found, and the table of it at the session's end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from statecheck.case.findings import Finding
from statecheck.kernels.launch_counts import EXECUTED, LAUNCHES
from statecheck.util.text import counted

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched


@dataclass
class KernelRow:
    """A kernel of the session."""

    kernel: str
    place: str
    executed: int = 0
    watched: int = 0
    not_executed: int = 0
    seconds: float = 0.0
    """Of its launches, without the time that its first one takes to be made from source."""
    why: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


class WatchedSession:
    """Every test runs with a sanitizer of its own. A process of pytest-xdist hands its rows to the one that started it."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], KernelRow] = {}
        self._began = perf_counter()
        self._before = LAUNCHES.copy()
        self._test = ""

    @contextlib.contextmanager
    def watching(self, test: str) -> Iterator[None]:
        """The launches of this context are watched; what `torch.empty` returns is unwritten."""
        from statecheck.kernels.launch import launching, watching
        from statecheck.kernels.sanitizer.empties import empties_unwritten
        from statecheck.kernels.sanitizer.watch import Sanitizer

        self._test = test
        watch = Sanitizer()
        with watching(lambda: watch), empties_unwritten(watch), launching(self._note):
            yield

    def _note(self, launched: Launched, make: Callable[[], None]) -> None:
        row = self._row(launched.kernel, launched.place)
        row.watched += 1
        began = perf_counter()
        try:
            make()
        except Finding as finding:
            # Remembered here, since a test may catch every exception.
            row.findings.append(f"{self._test}: {type(finding).__name__}: {finding}")
            raise
        finally:
            row.seconds += perf_counter() - began

    def _row(self, kernel: str, place: str) -> KernelRow:
        return self.rows.setdefault((kernel, place), KernelRow(kernel, place))

    def end(self) -> dict[str, Any]:
        """The session as plain values."""
        for how, count in (LAUNCHES - self._before).items():
            row = self._row(how.kernel, how.place)
            if how.how == EXECUTED:
                row.executed += count
            else:
                row.not_executed += count
                row.why += [how.why] if how.why not in row.why else []
        self._before = LAUNCHES.copy()
        return {"rows": [asdict(row) for row in self.rows.values()], "seconds": perf_counter() - self._began}

    def add(self, ended: dict[str, Any]) -> None:
        """Take over what another process has sent."""
        for values in ended["rows"]:
            row = self._row(values["kernel"], values["place"])
            for name in ("executed", "watched", "not_executed", "seconds"):
                setattr(row, name, getattr(row, name) + values[name])
            row.why += [why for why in values["why"] if why not in row.why]
            row.findings += values["findings"]

    @property
    def found(self) -> bool:
        return any(row.findings for row in self.rows.values())

    def table(self, *, every: bool) -> Iterator[str]:
        """Lines for the end of the session: of kernels that are executed and right, the slowest ones unless `every` one is asked for."""
        rows = sorted(self.rows.values(), key=lambda row: -row.seconds)
        executed = [row for row in rows if not row.not_executed]
        unknown = [row for row in rows if row.not_executed]
        launches, watched = sum(row.executed for row in rows), sum(row.watched for row in rows)
        yield (
            f"{counted(len(rows), 'kernel')} seen, {len(executed)} executed and {len(unknown)} not; "
            f"{counted(launches, 'launch', 'launches')}, {watched} of them watched, in {sum(row.seconds for row in rows):.1f} s"
        )
        width = max((len(row.kernel) for row in rows), default=0)
        shown = executed if every else [row for row in executed if row.findings] or executed[:_SLOWEST]
        if shown:
            yield f"{'kernel':{width}} {'launches':>9} {'watched':>9} {'seconds':>9}  findings, file"
        for row in shown:
            counts = f"{row.executed:9} {row.watched:9} {row.seconds:9.2f}"
            yield f"{row.kernel:{width}} {counts}  {len(row.findings) or 'none'}, {row.place}"
        if len(shown) < len(executed):
            yield f"{len(executed) - len(shown)} more kernels, which -v lists"
        for row in unknown:
            yield f"{row.kernel} is not executed: {'; '.join(row.why)} ({counted(row.not_executed, 'launch', 'launches')}, {row.place})"
        for row in rows:
            yield from row.findings


_SLOWEST = 10
