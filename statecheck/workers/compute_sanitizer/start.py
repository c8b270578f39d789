"""compute-sanitizer over saved cases and recorded examples: what kernels touch that they should not.

Each tool watches one process that runs all cases. A kernel that it stops kills the process, and another one goes on
behind that case.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from statecheck.case import Case
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.selection import select
from statecheck.subject import Subject, load
from statecheck.workers.compute_sanitizer.record import LaunchRecorder
from statecheck.workers.compute_sanitizer.report import conclusion, tell, tell_findings, tell_run
from statecheck.workers.compute_sanitizer.run import ToolRun, WatchedCases, run_tool
from statecheck.workers.compute_sanitizer.tool import ComputeSanitizer

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
_SAVED = (("corpus", "**/*.json"), ("reports", "**/case.json"), ("reports/pending", "*.json"))
_OTHERS = ("torch", "triton")


@dataclass(frozen=True)
class SanitizeOptions:
    """What the command line asks for."""

    cases: Sequence[Path]
    subject: str
    tools: Sequence[str]
    examples: int
    out: Path
    only: str
    seed: int | None
    timeout: float


@dataclass
class Gathered:
    """The cases of a run, and how many examples or files were left out, by reason."""

    cases: list[Path] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    seed: int = 0


def sanitize(options: SanitizeOptions, console: Console) -> list[ToolRun]:
    """Gather cases, let each tool watch them, and leave logs and findings.json in `options.out`.

    Raises:
        ValueError: there is no compute-sanitizer, no GPU, or no case.
    """
    import torch

    sanitizer = ComputeSanitizer.found()
    if not torch.cuda.is_available():
        raise ValueError("device = 'cpu', but should be a GPU that torch finds [sanitize-gpu]")
    subject = load(options.subject)
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*.log"):
        old.unlink()
    tell(console, f"{sanitizer.path}: {sanitizer.version.splitlines()[-1]}")
    gathered = gather(options, subject, load_properties(), console)
    if not gathered.cases:
        raise ValueError(
            f"cases = [], but should be at least one; skipped: {dict(gathered.skipped)} [sanitize-gpu]"
        )
    listed = _listed(gathered.cases, options.out)
    work = WatchedCases(options.subject, gathered.cases, listed, kernel_names(), options.out)
    runs: list[ToolRun] = []
    for tool in options.tools:
        runs.append(run_tool(sanitizer, tool, work, options.timeout))
        tell_run(runs[-1], console)
    tell_findings(runs, console)
    _save(options, gathered, sanitizer, runs)
    tell(console, conclusion(runs, options.out))
    return runs


def _save(
    options: SanitizeOptions, gathered: Gathered, sanitizer: ComputeSanitizer, runs: Sequence[ToolRun]
) -> None:
    """Write down everything but the logs, which lie beside it."""
    content = {
        "version": sanitizer.version,
        "python": sys.version,
        "subject": options.subject,
        "seed": gathered.seed,
        "cases": list(map(str, gathered.cases)),
        "skipped": dict(gathered.skipped),
        "tools": [asdict(run) | {"compiled": sorted(run.compiled)} for run in runs],
    }
    (options.out / "findings.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _listed(cases: Sequence[Path], out: Path) -> Path:
    """A file with the cases, since a command line is not long enough for any number."""
    listed = out / "cases.txt"
    listed.write_text("".join(f"{path}\n" for path in cases), encoding="utf-8")
    return listed.resolve()


def gather(
    options: SanitizeOptions, subject: Subject, tested: dict[str, Property], console: Console
) -> Gathered:
    """Saved cases, and without any that are asked for recorded examples as well."""
    seed = secrets.randbits(31) if options.seed is None else options.seed
    gathered = Gathered(seed=seed)
    saved = dict(_readable(options.cases, gathered.skipped))
    launching = [name for name, one in tested.items() if one.launches and not options.cases]
    chosen = set(select(sorted({*saved.values(), *launching}), options.only, tested))
    gathered.cases = [path.resolve() for path, name in saved.items() if name in chosen]
    asked = [tested[name] for name in launching if name in chosen]
    if options.examples and asked:
        _record(gathered, LaunchRecorder(subject, "cuda", seed), asked, options)
        tell(console, f"recorded examples of {len(asked)} properties, seed {seed}")
    for reason, count in gathered.skipped.items():
        tell(console, f"skipped {count}: {reason}")
    return gathered


def _readable(given: Sequence[Path], skipped: Counter[str]) -> Iterator[tuple[Path, str]]:
    """Files that hold a case, with the name of its property; what is in a folder and is no case is left out."""
    for path in _files(given):
        try:
            yield path, Case.load(path).property_name
        except (ValueError, OSError) as error:
            if path in given:
                raise ValueError(
                    f"case = {str(path)!r}, but should be a case [sanitize-gpu]: {error}"
                ) from error
            skipped[f"{path}: {error}"] += 1


def _files(given: Sequence[Path]) -> list[Path]:
    if not given:
        found = (path for folder, form in _SAVED for path in sorted(Path(folder).glob(form)))
    else:
        found = (one for path in given for one in (sorted(path.rglob("*.json")) if path.is_dir() else [path]))
    return list(dict.fromkeys(found))


def _record(
    gathered: Gathered, recorder: LaunchRecorder, asked: Sequence[Property], options: SanitizeOptions
) -> None:
    """Record examples of each property that says something about the subject on a GPU."""
    folder = options.out / "cases"
    for old in folder.glob("*.json"):
        old.unlink()
    for one in asked:
        reason, cases = one.not_applicable(recorder.bench()), list[Case]()
        if reason is None:
            cases, reason = recorder.record(one, options.examples)
        if reason:
            gathered.skipped[f"{one.name}: {reason}"] += 1
        for case in cases:
            path = folder / f"{case.property_name}-{case.digest}.json"
            gathered.cases.append(case.save(path, durable=False).resolve())


def kernel_names() -> frozenset[str]:
    """The names of all Triton kernels that have been imported, but for those of torch and Triton."""
    from statecheck.kernels.private import KernelInterface

    modules = [one for name, one in sys.modules.items() if name.partition(".")[0] not in _OTHERS]
    held = (item for module in modules for item in list(getattr(module, "__dict__", {}).values()))
    return frozenset(_kernel_name(item) for item in held if issubclass(type(item), KernelInterface))


def _kernel_name(kernel: object) -> str:
    """The name of the function below all decorators."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return str(getattr(kernel, "__name__", ""))
