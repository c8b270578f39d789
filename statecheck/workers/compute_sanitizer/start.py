"""compute-sanitizer, and Triton's own, over saved cases and recorded examples: what kernels touch that they should not.

Each tool watches one process that runs all cases. A kernel that it stops kills the process, and another one goes on
behind that case.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from statecheck.case import Case
from statecheck.execution.example import Bench
from statecheck.execution.registry import Property, load_properties
from statecheck.execution.selection import select
from statecheck.subject import Subject, load
from statecheck.text import visible
from statecheck.workers.compute_sanitizer.record import LaunchRecorder
from statecheck.workers.compute_sanitizer.report import conclusion, tell_findings, tell_run
from statecheck.workers.compute_sanitizer.run import ToolRun, WatchedCases, Watcher, run_tool
from statecheck.workers.compute_sanitizer.tool import ComputeSanitizer, WatchingTool

GSAN = "gsan"
TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck", GSAN)
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

    saved: list[Path] = field(default_factory=list)
    recorded: list[Path] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    seed: int = 0

    @property
    def cases(self) -> list[Path]:
        return [path.resolve() for path in (*self.saved, *self.recorded)]


@dataclass
class SanitizeRun:
    """Everything that a run came to."""

    options: SanitizeOptions
    versions: Mapping[str, str]
    """By tool; why it was left out, of one that was."""
    gathered: Gathered
    tools: list[ToolRun] = field(default_factory=list)

    @property
    def findings(self) -> bool:
        return any(one.own for one in self.tools)

    @property
    def incomplete(self) -> bool:
        return any(one.trouble for one in self.tools)

    def save(self, path: Path) -> None:
        """Write down everything but the logs, which lie beside it."""
        content = {
            "versions": dict(self.versions),
            "python": sys.version,
            "subject": self.options.subject,
            "seed": self.gathered.seed,
            "cases": list(map(str, self.gathered.cases)),
            "skipped": dict(self.gathered.skipped),
            "tools": list(map(_as_data, self.tools)),
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _as_data(run: ToolRun) -> dict[str, object]:
    return asdict(run) | {"compiled": sorted(run.compiled), "seconds": run.seconds}


def sanitize(options: SanitizeOptions, console: Console) -> SanitizeRun:
    """Gather cases, let each tool watch them, and leave logs and findings.json in `options.out`.

    Raises:
        ValueError: there is no compute-sanitizer, no GPU, no case, or none of the tools.
    """
    asked = [one for one in options.tools if one != GSAN]
    sanitizer = ComputeSanitizer.at(find_sanitizer()) if asked else None
    require_gpu()
    subject, tested = load(options.subject), load_properties()
    tools, versions = _tools(options, sanitizer, console)
    run = SanitizeRun(options, versions, gather(options, subject, tested, console))
    if not run.gathered.cases:
        raise ValueError(
            f"cases = [], but should be at least one; skipped: {dict(run.gathered.skipped)} [sanitize-gpu]"
        )
    _watch(run, tools, kernel_names(), console)
    tell_findings(run.tools, console)
    run.save(options.out / "findings.json")
    _say(console, conclusion(run.tools, options.out))
    return run


def _tools(
    options: SanitizeOptions, sanitizer: ComputeSanitizer | None, console: Console
) -> tuple[list[Watcher], dict[str, str]]:
    """The tools that are there, and their versions."""
    from statecheck.workers.global_sanitizer import tool as global_sanitizer

    tools: list[Watcher] = []
    versions: dict[str, str] = {}
    options.out.mkdir(parents=True, exist_ok=True)
    for old in (*options.out.glob("*.log"), *options.out.glob("launches/*.pickle")):
        old.unlink()
    if sanitizer is not None:
        tools += [WatchingTool(sanitizer, name) for name in options.tools if name != GSAN]
        versions["compute-sanitizer"] = sanitizer.version
        _say(console, f"{sanitizer.path}: {sanitizer.version.splitlines()[-1]}")
    if GSAN in options.tools:
        found = global_sanitizer.find(options.subject, options.out)
        versions[GSAN] = f"left out: {found}" if isinstance(found, str) else found.version
        tools += [] if isinstance(found, str) else [found]
        _say(console, f"{GSAN}: {versions[GSAN]}")
    if not tools:
        raise ValueError(f"tools = {list(options.tools)}, but should be there; {versions} [sanitize-gpu]")
    return tools, versions


def _say(console: Console, line: str) -> None:
    console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def find_sanitizer() -> str:
    found = shutil.which("compute-sanitizer")
    if found is None:
        raise ValueError(
            "compute-sanitizer = None, but should be on PATH; it comes with the CUDA toolkit [sanitize-gpu]"
        )
    return found


def require_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError("device = 'cpu', but should be a GPU that torch finds [sanitize-gpu]")


def _watch(run: SanitizeRun, tools: Sequence[Watcher], kernels: Collection[str], console: Console) -> None:
    listed = _listed(run.gathered.cases, run.options.out)
    work = WatchedCases(run.options.subject, run.gathered.cases, listed, kernels, run.options.out)
    for tool in tools:
        run.tools.append(run_tool(tool, work, run.options.timeout))
        tell_run(run.tools[-1], console)


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
    gathered.saved = [path for path, name in saved.items() if name in chosen]
    asked = [tested[name] for name in launching if name in chosen]
    if options.examples and asked:
        _record(gathered, LaunchRecorder(subject, "cuda", seed), asked, options, console)
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
    gathered: Gathered,
    recorder: LaunchRecorder,
    asked: Sequence[Property],
    options: SanitizeOptions,
    console: Console,
) -> None:
    """Record examples of each property that says something about the subject on a GPU."""
    folder, started = options.out / "cases", time.monotonic()
    for old in folder.glob("*.json"):
        old.unlink()
    bench = Bench(recorder.subject, recorder.port())
    for one in asked:
        reason = one.not_applicable(bench)
        if reason is not None:
            gathered.skipped[f"{one.name}: {reason}"] += 1
            continue
        recorded = recorder.record(one, options.examples)
        gathered.recorded += recorded.save(folder)
        gathered.skipped.update({f"{one.name}: {why}": n for why, n in recorded.skipped.items()})
    done = (
        f"{len(gathered.recorded)} examples of {len(asked)} properties in {time.monotonic() - started:.0f} s"
    )
    console.print(f"recorded {done}, seed {recorder.seed}", highlight=False)
    for reason, count in gathered.skipped.items():
        _say(console, f"skipped {count}: {reason}")


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
