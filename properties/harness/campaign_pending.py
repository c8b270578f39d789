"""What workers have left in a campaign's folder when they ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from properties.harness.case import Case
from properties.harness.worker import pending_path
from properties.subjects import load


@dataclass(frozen=True)
class Pending:
    """Inputs that failed or were being run. What was there before the time `since` is another campaign's."""

    reports: Path
    subject: str
    since: float

    def reported(self, name: str, folder: Path, note: str) -> tuple[Case, Path] | None:
        """Report the failing input that is pending under a name, in a folder of reports; None without one."""
        from properties.harness.report import write_report

        path = pending_path(self.reports, name)
        if not path.exists() or path.stat().st_mtime < self.since:
            return None
        case = Case.load(path)
        directory = write_report(case, folder, load(self.subject).module, note=note)
        path.unlink()
        return case, directory

    def forget(self, name: str) -> None:
        pending_path(self.reports, name).unlink(missing_ok=True)

    def put_down_all(self) -> None:
        """What a campaign that was killed had in hand becomes cases, before logs of the same names are written."""
        from properties.harness.device.log import recover_all

        recover_all(self.reports / "pending")

    def put_down(self, name: str, *, kept: bool) -> Path | None:
        """The input that was being run, as a case; None where it is not to be kept, or there is none."""
        from properties.harness.device.log import put_down, running_path

        path = running_path(self.reports, name)
        if not kept:
            path.unlink(missing_ok=True)
        return put_down(path) if kept and path.exists() else None
