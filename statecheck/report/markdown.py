"""Writes a falsified property down.

`report.md` is for an issue tracker and `report.html` for a browser, `repro.py` to run, `test_repro.py` for pytest and `case.json`
to replay.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.timeline import Timeline
from statecheck.report.bisection import ROOM as ROOM_OF_BISECTION
from statecheck.report.bisection import Bisection, save, with_section
from statecheck.report.block_tables import LEGEND, block_tables
from statecheck.report.case import ROOM, input_sections, outcome_sections
from statecheck.report.environment import environment_table
from statecheck.report.page import report_page
from statecheck.report.scenario_timeline import timeline_of
from statecheck.report.scripts.script import calls_of, repro_script, repro_test
from statecheck.report.sections import MOST, Section, fitted, shortened
from statecheck.report.statement import headline, rule_of, served_text, should_hold, subject_of, titled
from statecheck.subject import BUILT_IN, Subject
from statecheck.util.command_lines import command_line, script_line
from statecheck.util.files import in_file_name, write_text
from statecheck.util.markdown import code, inert
from statecheck.util.marked import mark_reports

_MOST_OF_ONE_INPUT = 100
_LONGEST_MESSAGE = 500
TEST = "test_repro.py"
"""The script as a test of the project that has the defect."""
ALONE = ("-m", "pytest", "--noconftest", "-c", "/dev/null")
"""How it is run where it lies: what this repository's own tests are run with would import Triton before it."""
_NOTHING = Section("", ())


def write_report(case: Case, reports: Path, module: ModuleType, *, note: str = "") -> Path:
    """Write the files into `reports/<date>-<property>-<hash>/`; the case first. Returns the directory.

    Args:
        module: the subject's module, to find where it is imported from.
        note: a sentence to add, such as that the failure does not repeat.
    """
    directory = _directory_of(case, reports)
    case.save(directory / "case.json")
    mark_reports(reports)
    script = repro_script(case, directory, subject_root(module))
    write_text(directory / "repro.py", script)
    _write_or_remove(directory / TEST, repro_test(case))
    text = report_text(case, directory, note)
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
    name, wanted = f"{today}-{in_file_name(case.property_name)}-{case.digest}", bucket_of(case).id
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


def _write_or_remove(path: Path, text: str) -> None:
    if text:
        write_text(path, text)
    else:
        # This input may have been reported before, with such a file.
        path.unlink(missing_ok=True)


def subject_root(module: ModuleType) -> Path | None:
    """The folder that has to be on the import path to find the subject, None inside site-packages.

    Of an engine with a module inside it is that module's: scripts carry what they need of the engine's adapter.
    """
    module = getattr(module, "__inside__", module)
    if module.__file__ is None or "site-packages" in module.__file__:
        return None
    depth = module.__name__.count(".") + (1 if Path(module.__file__).name == "__init__.py" else 0)
    return Path(module.__file__).resolve().parents[depth]


def _finding_title(case: Case) -> str:
    """A library of sequences shows where it differs first, and no writer of bytes."""
    return "What differs first" if case.model else "Who did it"


def report_text(case: Case, directory: Path, note: str = "") -> str:
    """The report as Markdown that an issue tracker takes: what differs in the open, the rest folded, at most `MOST` characters."""
    subject = subject_of(case)
    text = fitted(
        [
            Section("", tuple(filter(None, _head(case, note)))),
            Section(_finding_title(case), (inert(shortened(case.finding, ROOM)),))
            if case.finding
            else _NOTHING,
            *_story(timeline_of(case)),
            *outcome_sections(case),
            *input_sections(case),
            Section("Run it again", (_commands(case, directory, subject),)),
            Section("Environment", (environment_table(case, subject),)),
        ],
        MOST - ROOM_OF_BISECTION,
    )
    return with_section(text, directory)


def _head(case: Case, note: str) -> Iterator[str]:
    yield f"# {inert(headline(case))}"
    yield f"**Should hold:** {inert(should_hold(case))}"
    yield f"**Seen instead:** {code(_seen(case))}"
    effect, rule = served_text(case), rule_of(case)
    yield f"**In a served text:** {effect}" if effect else ""
    yield f"**Rule:** {rule.words} ({rule.source})" if rule is not None else ""
    yield inert(note)


def _seen(case: Case) -> str:
    """The message; where the call in it is long, its name alone, since the call itself stands below."""
    failure = case.failure
    if failure is None or len(case.message) <= _LONGEST_MESSAGE or not failure.shown:
        return shortened(case.message, ROOM)
    return f"{shortened(failure.sentence, ROOM)} [{failure.shown.partition('(')[0]}]"


def _commands(case: Case, directory: Path, subject: Subject | None) -> str:
    rerun = command_line("replay", directory / "case.json", subject=case.subject, device=case.device)
    script = script_line(directory / "repro.py")
    codes = "exits 1 while the defect is there and 0 once it is gone"
    lines = [f"{code(script)} {codes}; it needs {_needs(case, subject)}."]
    if repro_test(case):
        test = script_line(directory / TEST, *ALONE)
        lines.append(f"{code(test)} is the same as a test for pytest, to be put among the project's own.")
    lines.append(f"{code(rerun)} replays the same input through the harness.")
    if case.subject in BUILT_IN and case.subject != "impl":
        bisect = command_line("bisect", directory / "case.json", subject=case.subject, device=case.device)
        lines.append(f"{code(bisect)} says which release broke it, and which repaired it.")
    return "\n".join(lines)


def _needs(case: Case, subject: Subject | None) -> str:
    """What the script runs with."""
    if case.model:
        writes = (
            subject is not None and subject.sequences is not None and subject.sequences.script is not None
        )
        return "the library that is verified" if writes else "the port, and the library that is verified"
    plain = calls_of(case, subject)
    if plain is not None:
        return "torch and the project alone" if plain.takes_torch else "the project alone"
    return f"torch, triton, numpy and {titled(case.subject, subject)}, and has the modules of statecheck that replay it"


def _story(timeline: Timeline | None) -> Iterator[Section]:
    """What the requests did, up to what was seen; the block tables where it went wrong, and folded, all of them."""
    if timeline is None or not timeline.moments:
        return
    yield Section("What happened", ("\n".join(f"- {inert(moment.title)}" for moment in timeline.moments),))
    tables, finding = block_tables(timeline), timeline.finding
    if finding is not None:
        yield Section("Block tables where it went wrong", (tables[finding.moment], LEGEND))
    if tables:
        pieces = tuple(tables.values()) if finding is not None else (LEGEND, *tables.values())
        yield Section("", pieces, "table", "tables", rank=5, summary="Block tables over time")
