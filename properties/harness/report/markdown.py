"""Writes a falsified property down.

`report.md` is for an issue tracker and `report.html` for a browser, `repro.py` to run and `case.json` to replay;
`timeline.svg` is the picture, of a case that follows requests over several steps.
"""

from __future__ import annotations

import datetime as dt
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from properties.harness import rooms
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.case.switches import for_interpreter
from properties.harness.data.files import in_file_name, write_text
from properties.harness.report.case import ROOM, input_sections, outcome_sections
from properties.harness.report.meaning import rule_of, served_text
from properties.harness.report.page import PICTURE, report_page
from properties.harness.report.picture import svg
from properties.harness.report.repro.adapter import subject_of, titled
from properties.harness.report.repro.script import repro_script
from properties.harness.report.sections import Section, fitted, shortened
from properties.harness.subject import Subject
from properties.harness.text.command_lines import command_line, script_line
from properties.harness.text.markdown import code, escaped, inert, table

_VERSIONS = ("torch", "triton", "numpy", "hypothesis")
_MOST_OF_ONE_INPUT = 100
_LONGEST_MESSAGE = 500
_NOTHING = Section("", ())


def write_report(case: Case, reports: Path, module: ModuleType, *, note: str = "") -> Path:
    """Write the files into `reports/<date>-<property>-<hash>/`; the case first. Returns the directory.

    Args:
        module: the subject's module, to find where it is imported from.
        note: a sentence to add, such as that the failure does not repeat.
    """
    directory = _directory_of(case, reports)
    case.save(directory / "case.json")
    script = repro_script(case, directory, subject_root(module))
    write_text(directory / "repro.py", script)
    picture = svg(case.timeline) if case.timeline is not None else ""
    _write_picture(directory / PICTURE, picture)
    text = report_text(case, directory, note)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text, picture))
    return directory


def _directory_of(case: Case, reports: Path) -> Path:
    """A folder for the input, and another one where a report of it stands already that shows something else."""
    name, wanted = f"{_today()}-{in_file_name(case.property_name)}-{case.digest}", bucket_of(case).id
    for number in range(1, _MOST_OF_ONE_INPUT):
        directory = reports / (name if number == 1 else f"{name}-{number}")
        try:
            if bucket_of(Case.load(directory / "case.json")).id == wanted:
                return directory
        except FileNotFoundError:
            return directory
        except (OSError, ValueError):
            """What stands there is nobody's to overwrite."""
    return directory


def _write_picture(path: Path, picture: str) -> None:
    if picture:
        write_text(path, picture + "\n")
    else:
        # This input may have been reported before, with a picture.
        path.unlink(missing_ok=True)


def _today() -> dt.date:
    """The user's own date, which is what a person looks for in a list of reports."""
    return dt.datetime.now().astimezone().date()


def subject_root(module: ModuleType) -> Path | None:
    """The folder that has to be on the import path to find the subject, None inside site-packages."""
    if module.__file__ is None or "site-packages" in module.__file__:
        return None
    depth = module.__name__.count(".") + (1 if Path(module.__file__).name == "__init__.py" else 0)
    return Path(module.__file__).resolve().parents[depth]


def report_text(case: Case, directory: Path, note: str = "") -> str:
    """The report as Markdown that an issue tracker takes: what differs in the open, the rest folded, at most `MOST` characters."""
    subject = subject_of(case)
    return fitted(
        [
            Section("", tuple(filter(None, _head(case, subject, note)))),
            Section("Who did it", (inert(shortened(case.finding, ROOM)),)) if case.finding else _NOTHING,
            Section("What the programs did", (inert(case.interleaving),)) if case.interleaving else _NOTHING,
            _story(case),
            *outcome_sections(case),
            *input_sections(case),
            Section("Run it again", (_commands(case, directory, subject),)),
            Section("Environment", (_environment(case),)),
        ]
    )


def _head(case: Case, subject: Subject | None, note: str) -> Iterator[str]:
    yield f"# {inert(titled(case.subject, subject))}: {case.property_name.replace('_', ' ')}"
    yield f"**Should hold:** {inert(case.should_hold)}"
    yield f"**Seen instead:** {code(_seen(case))}"
    effect, rule = served_text(case), rule_of(case)
    yield f"**In a served text:** {effect}" if effect else ""
    yield f"**Rule:** {rule.words} ({rule.source})" if rule is not None else ""
    yield f"![block tables over time]({PICTURE})" if case.timeline is not None else ""
    yield inert(note)


def _seen(case: Case) -> str:
    """The message; where the call in it is long, its name alone, since the call itself stands below."""
    failure = case.failure
    if failure is None or len(case.message) <= _LONGEST_MESSAGE or not failure.shown:
        return shortened(case.message, ROOM)
    return f"{shortened(failure.sentence, ROOM)} [{failure.shown.partition('(')[0]}]"


def _commands(case: Case, directory: Path, subject: Subject | None) -> str:
    rerun = command_line("replay", directory / "case.json", subject=case.subject, device=case.device)
    return (
        f"{code(script_line(directory / 'repro.py', case.subject))} exits 1 while the defect is there and 0 once it is gone; it needs "
        f"{_needs(case, subject)}.\n{code(rerun)} replays the same input through the harness.{_unstepped(case)}"
    )


def _unstepped(case: Case) -> str:
    """What the script cannot do, where programs switch between operations."""
    if case.sanitized or not any(call.schedule != for_interpreter(call.schedule) for call in case.calls):
        return ""
    stepped = "\nThe script leaves kernels to Triton's interpreter, which cannot switch after single operations of this launch: "
    if case.order is None:
        return f"{stepped}**no order that it knows is known to show the failure**, so that it may exit 0 while the defect is there."
    return f"{stepped}it runs the programs in its order `{case.order or 'row by row'}`, which shows the failure too."


def _needs(case: Case, subject: Subject | None) -> str:
    """What the script runs with."""
    if case.sanitized and case.order is None:
        return "torch, triton, the subject, and statecheck, since no byte shows what is wrong"
    if subject is not None and subject.carried:
        return f"torch, triton and {titled(case.subject, subject)}, and no part of this repository"
    return "torch and the subject"


def _story(case: Case) -> Section:
    """What the requests did, up to what was seen."""
    if case.timeline is None or not case.timeline.moments:
        return _NOTHING
    told = "\n".join(f"- {inert(moment.title)}" for moment in case.timeline.moments)
    return Section("What happened", (told,))


def environment() -> dict[str, str]:
    """Revision, system and versions that results depend on, by name."""
    installed = rooms.installed_release()
    return {
        "revision": revision(),
        **({"statecheck": installed} if installed else {}),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in _VERSIONS},
    }


def _environment(case: Case) -> str:
    rows = {"device": _device_name(case.device), "seed": str(case.seed), **environment()}
    return "\n".join(table(("", ""), ((name, escaped(value, 200)) for name, value in rows.items())))


@cache
def _device_name(device: str) -> str:
    if device != "cuda":
        return device
    # Not from torch: the process that searches for counterexamples keeps away from the GPU.
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return device
    name = next(iter(found.stdout.splitlines()), "")
    return f"cuda ({name})" if name and not found.returncode else device


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def revision() -> str:
    """The git revision of this checkout, or of the port where statecheck is installed, with `+changes` where files differ."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+changes"],
            cwd=rooms.home(),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"
