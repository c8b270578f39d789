"""Writes a falsified property down: `report.md` for an issue tracker, `repro.py` to run, `case.json` to replay."""

from __future__ import annotations

import datetime as dt
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from properties.harness.case import Case
from properties.harness.compare import brief, outcome_difference
from properties.harness.repro import literal, repro_script
from properties.harness.trial import spell
from properties.harness.values import Call, Expected, Let, Name, Outcome, Overwrite, Raised, Refusal, Tensor

_AROUND = 8
_VERSIONS = ("torch", "triton", "numpy", "hypothesis")
_ROOT = Path(__file__).resolve().parents[2]


def write_report(case: Case, reports: Path, module: ModuleType, *, note: str = "") -> Path:
    """Write the three files into `reports/<date>-<property>-<hash>/`; the case first. Returns the directory.

    Args:
        module: the subject's module, to find where it is imported from.
        note: a sentence to add, such as that the failure does not repeat.
    """
    directory = reports / f"{_today()}-{case.property_name}-{case.digest}"
    case.save(directory / "case.json")
    script = repro_script(case, directory, subject_root(module))
    (directory / "repro.py").write_text(script, encoding="utf-8")
    (directory / "report.md").write_text(report_text(case, directory, note), encoding="utf-8")
    return directory


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
    rerun = f"make replay CASE={directory / 'case.json'} SUBJECT={case.subject}"
    title = case.property_name.replace("_", " ")
    parts = [
        f"# {case.subject}: {title}",
        f"**Should hold:** {case.sentence}",
        f"**Seen instead:** `{case.message}`",
        note,
        "## Input",
        f"```python\n{_input(case)}\n```",
        "## Expected and actual",
        _outcomes(case),
        "## Run it again",
        (
            f"`python {directory / 'repro.py'}` exits 1 while the defect is there and 0 once it is gone; it needs torch and "
            f"the subject.\n`{rerun}` replays the same input through the harness."
        ),
        "## Environment",
        _environment(case),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


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


def _environment(case: Case) -> str:
    rows = {
        "device": _device_name(case.device),
        "seed": str(case.seed),
        "revision": revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in _VERSIONS},
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _device_name(device: str) -> str:
    torch = sys.modules.get("torch")
    return f"cuda ({torch.cuda.get_device_name()})" if device == "cuda" and torch else device


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def revision() -> str:
    """The git revision of this checkout, with `+changes` where files differ from it."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+changes"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return found.stdout.strip() or "unknown"
