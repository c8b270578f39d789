"""Writes a falsified property down.

`report.md` is for an issue tracker and `report.html` for a browser, `repro.py` to run and `case.json` to replay;
`timeline.svg` is the picture, of a case that follows requests over several steps.
"""

from __future__ import annotations

import datetime as dt
import platform
import re
import subprocess
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from properties.harness import rooms
from properties.harness.campaign.command_lines import command_line, script_line
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.case.compare import brief, outcome_difference
from properties.harness.execution.example import spell
from properties.harness.files import write_text
from properties.harness.kernels.orders.switches import for_interpreter
from properties.harness.picture import plain, svg
from properties.harness.repro import repro_script
from properties.harness.repro_adapter import subject_of, titled
from properties.harness.repro_literals import literal
from properties.harness.values import Call, Expected, Let, Name, Outcome, Overwrite, Raised, Refusal, Tensor
from properties.subjects import Subject

_AROUND = 8
_VERSIONS = ("torch", "triton", "numpy", "hypothesis")
_MOST_OF_ONE_INPUT = 100
_PICTURE = "timeline.svg"
_IMAGE = re.compile(rf'<p><img src="{re.escape(_PICTURE)}"[^>]*></p>')
_STYLE = """
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff;
  font: 1rem/1.5 system-ui, sans-serif; }
pre, code { font: 0.85rem/1.45 ui-monospace, Menlo, Consolas, monospace; background: #f4f4f4; }
pre { padding: 0.8rem; overflow-x: auto; }
p code { overflow-wrap: anywhere; }
table { border-collapse: collapse; }
td { padding: 0.2rem 0.8rem; border: 1px solid #d0d0d0; }
figure { margin: 1rem 0; overflow-x: auto; }
svg { max-width: 100%; height: auto; }
"""
_PAGE = """<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}</body>
</html>
"""


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
    _write_picture(directory / _PICTURE, picture)
    text = report_text(case, directory, note)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text, picture))
    return directory


def _directory_of(case: Case, reports: Path) -> Path:
    """A folder for the input, and another one where a report of it stands already that shows something else."""
    name, wanted = f"{_today()}-{case.property_name}-{case.digest}", bucket_of(case).id
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
    """The report as Markdown."""
    rerun = command_line("replay", directory / "case.json", subject=case.subject, device=case.device)
    title, subject = case.property_name.replace("_", " "), subject_of(case)
    parts = [
        f"# {titled(case.subject, subject)}: {title}",
        f"**Should hold:** {case.sentence}",
        f"**Seen instead:** `{case.message}`",
        f"![block tables over time]({_PICTURE})" if case.timeline is not None else "",
        note,
        f"## Who did it\n\n{case.finding}" if case.finding else "",
        f"## What the programs did\n\n{case.interleaving}" if case.interleaving else "",
        _story(case),
        "## Input",
        f"```python\n{_input(case)}\n```",
        "## Expected and actual",
        _outcomes(case),
        "## Run it again",
        (
            f"`{script_line(directory / 'repro.py', case.subject)}` exits 1 while the defect is there and 0 once it is gone; it needs "
            f"{_needs(case, subject)}.\n`{rerun}` replays the same input through the harness.{_unstepped(case)}"
        ),
        "## Environment",
        _environment(case),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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


def _story(case: Case) -> str:
    """What the requests did, up to what was seen."""
    if case.timeline is None or not case.timeline.moments:
        return ""
    return "## What happened\n\n" + "\n".join(f"- {moment.title}" for moment in case.timeline.moments)


def report_page(text: str, picture: str = "") -> str:
    """The report as one HTML page that is well-formed XML too.

    Args:
        text: what `report_text` wrote.
        picture: the SVG that `text` refers to, to stand in the page itself.
    """
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    title = text.splitlines()[0].removeprefix("# ")
    body = _IMAGE.sub(lambda _: f"<figure>{picture}</figure>", markdown.render(plain(text)), count=1)
    return _PAGE.format(title=escape(plain(title)), style=_STYLE, body=body)


def _input(case: Case) -> str:
    lines: list[str] = []
    for step in case.steps:
        if isinstance(step, Let):
            lines.append(f"{step.name} = {literal(step.value)}")
        elif isinstance(step, Overwrite):
            lines.append(f"{step.name}[...] = {literal(step.elements)}  # in place")
        else:
            lines += _call_lines(step)
    return "\n".join(lines).replace(", device=DEVICE", "")


def _call_lines(call: Call) -> list[str]:
    lines = [f'os.environ["{name}"] = "{value}"' for name, value in call.environment]
    lines += [f"{name} = {literal(value)}" for name, value in call.named.items() if value != Name(name)]
    arguments = [name for name, _ in call.arguments] + [f"{name}={name}" for name, _ in call.keywords]
    order = f"  # programs {call.schedule}" if call.schedule else ""
    bound = f"{call.bind} = " if call.bind else ""
    return [*lines, f"{bound}{call.function}({', '.join(arguments)}){order}"]


def _outcomes(case: Case) -> str:
    blocks = []
    for call, expected, actual in zip(case.calls, case.expected, case.actual, strict=True):
        found = outcome_difference(expected, actual, places=case.device != "cpu")
        lines = [
            f"`{spell(call) if len(case.calls) > 1 else call.function}`",
            "```text",
            f"expected    {_expected(expected)}",
            f"actual      {_actual(actual)}",
            f"difference  {found or 'none'}",
            *(_marked(*found.tensors) if found and found.tensors else []),
            "```",
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _marked(expected: Tensor, actual: Tensor) -> list[str]:
    """Both tensors around the first element in which they differ, in row-major order, with a mark below it."""
    want, got = expected.values(), actual.values()
    pairs = enumerate(zip(want, got, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), min(len(want), len(got)))
    first = max(0, at - _AROUND)
    skipped = "... " if first else ""
    texts = [", ".join(map(str, values[first : at + _AROUND])) for values in (want, got)]
    before = ", ".join(map(str, got[first:at]))
    column = len(skipped) + len(before) + (2 if before else 0)
    labels = (f"  expected  {skipped}", f"  actual    {skipped}")
    return [
        f"from element {first} on, {expected.dtype}{list(expected.shape)} and {actual.dtype}{list(actual.shape)}:",
        *(label + text for label, text in zip(labels, texts, strict=True)),
        f"{' ' * 12}{' ' * column}^ element {at}",
    ]


def _expected(expected: Expected) -> str:
    if isinstance(expected, Refusal):
        return f"{expected.exception}{f' that names {expected.argument}' if expected.argument else ''}"
    return brief(expected.value)


def _actual(actual: Outcome) -> str:
    return f"{actual.exception}: {actual.message}" if isinstance(actual, Raised) else brief(actual.value)


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
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


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
