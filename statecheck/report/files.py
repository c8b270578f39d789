"""Writes the report of a falsified property: `report.md` is for an issue tracker and `report.html` for a browser, `repro.py` to run,
`test_repro.py` for pytest, and `case.json` to replay.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.report.bisection import Bisection, save, with_section
from statecheck.report.render import report_page, report_text
from statecheck.report.scripts.script import repro_script, repro_test
from statecheck.report.sections import TEST
from statecheck.subject import Subject
from statecheck.util.files import in_file_name, mark_reports, write_text

_MOST_OF_ONE_INPUT = 100


def write_report(case: Case, reports: Path, subject: Subject | None, *, note: str = "") -> Path:
    """Write the files into `reports/<date>-<property>-<hash>/`; the case first. Returns the directory.

    Args:
        subject: the case's, None where it cannot be imported here.
        note: a sentence to add, such as that the failure does not repeat.
    """
    directory = _directory_of(case, reports)
    case.save(directory / "case.json")
    mark_reports(reports)
    write_text(directory / "repro.py", repro_script(case, directory, subject))
    test = repro_test(case, subject)
    if test:
        write_text(directory / TEST, test)
    else:
        # This input may have been reported before, with such a file.
        (directory / TEST).unlink(missing_ok=True)
    text = with_section(report_text(case, subject, note), directory)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text))
    return directory


def add_bisection(directory: Path, bisection: Bisection) -> None:
    """Keep it in a report's folder, and let the report tell of it."""
    save(directory, bisection)
    text = with_section((directory / "report.md").read_text(encoding="utf-8"), directory)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text))


def _directory_of(case: Case, reports: Path) -> Path:
    """A folder for the input, and another one where a report of it stands already that shows something else."""
    # The user's own date, which is what a person looks for in a list of reports.
    today = dt.datetime.now().astimezone().date()
    name, wanted = f"{today}-{in_file_name(case.property_id)}-{case.digest}", bucket_of(case).id
    for number in range(1, _MOST_OF_ONE_INPUT):
        directory = reports / (name if number == 1 else f"{name}-{number}")
        try:
            if bucket_of(Case.load(directory / "case.json")).id == wanted:
                return directory
        except FileNotFoundError:
            return directory
        except (OSError, ValueError):
            """It is no report of ours, and is not overwritten."""
    return directory
