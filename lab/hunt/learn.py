"""Learn in which order properties find planted defects soonest: `python -m lab.hunt.learn`.

Each property has the examples of a campaign's first pass on each planted defect, with several seeds: how often does it find which defect?
A copy without a defect says what each property costs, and which kernels it waits for until they are compiled. The property that finds the
most for its CPU time comes first, then the property that finds the most of what is left, and so on. `--write` writes the order that campaigns
begin with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.hunt.costs import Costs, Visit, visits
from lab.hunt.defects import HuntedDefect, planted_defects, release_python
from lab.hunt.first_examples import first_examples
from lab.hunt.trial import ROOT, new_machine
from statecheck.campaign import scheduler
from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.kernels import triton_mode
from statecheck.subject import KnownDefectMatcher, Subject, load
from statecheck.workers.forkserver import kernels_of

_PROCESS_SECONDS = 240.0
"""What a process has not measured by then is left out: a defect may keep its caller waiting."""


@dataclass(frozen=True)
class Attempt:
    """With how many of the `seeds` the first examples of a property failed on a broken copy."""

    defect: str
    property_id: str
    found: int
    seeds: int


def attempts(subject: Subject, defect: str, seeds: int) -> Iterator[Attempt]:
    """Try all properties on a subject with the defect, in this process."""
    profiles.register()
    known = KnownDefectMatcher(subject.known_deviations, subject.profile)
    for tested in load_properties().values():
        bench = ExecutionContext(subject, ordinary_port(subject, "cpu", sanitized=tested.launches))
        if tested.not_applicable(bench) is not None:
            continue
        tried = [first_examples(tested, bench, seed, known.known) for seed in range(1, seeds + 1)]
        yield Attempt(defect, tested.id, sum(failed for failed, _ in tried), seeds)


def order(tried: Sequence[Attempt], costs: Costs) -> list[str]:
    """Properties, sorted by the defects that an example of each is expected to add per CPU second.

    A property has up to `_MOST_EXAMPLES` examples. An example behind another one of the same property is run in the same visit.
    """
    chances: dict[str, dict[str, float]] = {name: {} for name in costs.properties()}
    for one in tried:
        chances.setdefault(one.property_id, {})[one.defect] = one.found / one.seeds
    missing: dict[str, float] = {}
    missed: dict[str, float] = defaultdict(lambda: 1.0)

    def value(name: str) -> float:
        is_first = name not in ordered
        goes_on = ordered[-1:] == [name]
        cost = costs.further(name) if goes_on else costs.of(name, is_first=is_first)
        added = _UNKNOWN * is_first + _added(chances[name], missed)
        return added / (cost + costs.compiling(name, missing))

    ordered = list[str]()
    while set(chances) - set(ordered):
        best = max((name for name in sorted(chances) if ordered.count(name) < _MOST_EXAMPLES), key=value)
        ordered.append(best)
        costs.compile(best, missing)
        for defect, chance in chances[best].items():
            missed[defect] *= 1 - chance
    return ordered


_MOST_EXAMPLES = 6
"""The most examples of a property. Of the defects, 90 % are found within 3.5 CPU s of the first pass; with three examples, 87 % in the whole pass."""
_UNKNOWN = 0.2
"""Unknown defects that the first visit of every property is assumed to find. Five-fold cross-validation: half of the defects that were left out are
found within 1.32 CPU s with .05, within 1.09 with .2, and within 1.03 with .4."""


def _added(chances: Mapping[str, float], missed: Mapping[str, float]) -> float:
    """How many more defects it is expected to find."""
    return sum(missed[defect] * chance for defect, chance in chances.items())


def _attempted(defect: HuntedDefect, seeds: int) -> list[Attempt]:
    """The attempts on a broken copy."""
    with tempfile.TemporaryDirectory(prefix="statecheck-learn-") as name:
        folder = Path(name)
        planted = defect.plant(folder)
        python = release_python(planted.subject, defect.release) if defect.release else sys.executable
        about = ["--subject", planted.subject, "--defect", defect.name, "--seeds", str(seeds)]
        rows = _printed(python, about, new_machine(folder) | dict(planted.variables))
    print(f"{defect.name}: {len(rows)} properties", flush=True)
    return [Attempt(**row) for row in rows]


def _measured(seed: int) -> list[Visit]:
    """The visits of two processes. The second process finds the compiled kernels of the first process."""
    with tempfile.TemporaryDirectory(prefix="statecheck-learn-") as name:
        variables = new_machine(Path(name))
        rows = [
            row
            for cached in ("", "cached")
            for row in _printed(sys.executable, ["--visits", str(seed), "--cached", cached], variables)
        ]
    print(f"costs, seed {seed}: {len(rows)} visits", flush=True)
    return [_visit(row) for row in rows]


def _printed(
    python: Path | str, options: Sequence[str], variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The rows that a process of this module has printed by the end of its time."""
    try:
        printed = subprocess.run(
            [python, "-m", "lab.hunt.learn", *options],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            timeout=_PROCESS_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
    return [json.loads(line) for line in printed.decode().splitlines() if line.endswith("}")]


def _visit(row: dict[str, Any]) -> Visit:
    return Visit(**row | {"variants": tuple(row["variants"])})


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m lab.hunt.learn", description=__doc__)
    made.add_argument("--seeds", type=int, default=5, help="of each property on each copy (default 5)")
    made.add_argument("--passes", type=int, default=6, help="measurements of the costs (default 6)")
    made.add_argument("--groups", default="", help="as of lab.hunt (default: all copies of impl)")
    made.add_argument(
        "--every", type=int, default=1, help="every so manieth defect of each group (default 1)"
    )
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="copies at once")
    made.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "learn.json",
        help="where what was measured is kept; what stands there stays",
    )
    made.add_argument(
        "--write", action="store_true", help=f"write {scheduler.ORDER.name} from it, and measure nothing"
    )
    for hidden in ("--defect", "--subject", "--visits", "--cached"):
        made.add_argument(hidden, default="", help=argparse.SUPPRESS)
    return made


@dataclass
class _Kept:
    """What was measured, in a file."""

    path: Path
    attempts: list[Attempt]
    visits: list[Visit]

    @classmethod
    def read(cls, path: Path) -> _Kept:
        if not path.exists():
            return cls(path, [], [])
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            path, [Attempt(**row) for row in data["attempts"]], [_visit(row) for row in data["visits"]]
        )

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "attempts": [asdict(attempt) for attempt in self.attempts],
            "visits": [asdict(visit) for visit in self.visits],
        }
        self.path.write_text(json.dumps(data, indent=0) + "\n", encoding="utf-8")


def _print_rows(options: argparse.Namespace) -> None:
    """What a process of its own measures."""
    subject = options.subject or "impl"
    if kernels_of(subject, "cpu"):
        triton_mode.prepare("cpu")
    rows: Iterator[Attempt | Visit]
    if options.visits:
        rows = visits(load(subject), int(options.visits), cached=bool(options.cached))
    else:
        rows = attempts(load(subject), options.defect, options.seeds)
    for row in rows:
        print(json.dumps(asdict(row)), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.defect or options.visits:
        _print_rows(options)
        return 0
    kept = _Kept.read(options.out)
    if options.write:
        ordered = order(kept.attempts, Costs(kept.visits))
        scheduler.ORDER.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        return 0
    groups = tuple(filter(None, options.groups.split(",")))
    done, seeds = {attempt.defect for attempt in kept.attempts}, {visit.seed for visit in kept.visits}
    wanted = [
        planted_defect
        for planted_defect in planted_defects(groups, every=options.every)
        if planted_defect.name not in done
    ]
    with ThreadPoolExecutor(options.workers) as pool:
        for measured in pool.map(
            _measured, [one for one in range(1, options.passes + 1) if one not in seeds]
        ):
            kept.visits += measured
            kept.save()
        for found in pool.map(lambda one: _attempted(one, options.seeds), wanted):
            kept.attempts += found
            kept.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
