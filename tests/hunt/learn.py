"""Learn in which order properties find planted defects soonest: `python -m tests.hunt.learn`.

Each property has the examples of a campaign's first pass on each planted defect, with several seeds. Of all properties, that comes first which
finds the most for its CPU time, of what is left that which finds the most of what the first has missed, and so on. The first that launches
a kernel has to wait until that is compiled. `--write` makes of it the order that campaigns begin with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from statecheck.campaign.known_defects import KnownDefectMatcher
from statecheck.campaign.schedule import learned
from statecheck.campaign.schedule.assignment import FIRST_EXAMPLES, first_compared
from statecheck.execution import profiles
from statecheck.execution.example import Bench, Falsified
from statecheck.execution.ports import ordinary_port
from statecheck.execution.property import Property
from statecheck.execution.registry import load_properties
from statecheck.kernels import coverage, triton_mode
from statecheck.subject import Subject, load
from statecheck.workers.forkserver import kernels_of
from tests.breakages.table import hunting
from tests.hunt.defects import HuntedDefect, planted_defects, release_python
from tests.hunt.trial import ROOT, new_machine

_MOST_SECONDS = 2.0
"""CPU seconds of the examples of one seed."""
_DEFECT_SECONDS = 240.0
"""What is not tried on a copy by then is left out: a defect may keep its caller waiting."""


@dataclass(frozen=True)
class Attempt:
    """What the first examples of a property came to on a broken copy.

    Args:
        found: with how many of the `seeds` one of them failed.
        cost: CPU seconds for one seed, the median.
        first: the same for the first seed, for which kernels may have been compiled.
        kernels: that were launched.
    """

    defect: str
    property_id: str
    found: int
    seeds: int
    cost: float
    first: float = 0.0
    kernels: tuple[str, ...] = ()


class _Enough(BaseException):
    """The first pass ends here. No `Exception`: it is nothing that the example shows."""


def attempts(subject: Subject, defect: str, seeds: int) -> Iterator[Attempt]:
    """Try all properties on a subject with the defect, in this process."""
    profiles.register()
    known = KnownDefectMatcher(subject.known_deviations, subject.profile)
    for tested in load_properties().values():
        bench = Bench(subject, ordinary_port(subject, "cpu", sanitized=tested.launches))
        bench.known_by = known.known
        if tested.not_applicable(bench) is not None:
            continue
        coverage.take()
        tried = [_first_examples(tested, bench, seed) for seed in range(1, seeds + 1)]
        kernels = tuple(sorted({how.kernel for how in coverage.take().launches}))
        found, costs = sum(failed for failed, _ in tried), [cost for _, cost in tried]
        cost, first = round(median(costs), 4), round(costs[0], 4)
        yield Attempt(defect, tested.id, found, seeds, cost, first, kernels)


def _first_examples(tested: Property, bench: Bench, seed: int) -> tuple[bool, float]:
    """Whether one of the first examples fails, and their CPU seconds until then."""
    enough = first_compared(tested)
    began, failed, over = time.process_time(), list[float](), list[bool]()
    bench.counts.take()

    def end_if_enough() -> None:
        if bench.counts.compared >= enough or time.process_time() - began > _MOST_SECONDS:
            over.append(True)
            raise _Enough

    bench.on_example = bench.on_example_end = end_if_enough
    bench.on_falsified = lambda case: failed.append(time.process_time() - began)
    try:
        with suppress(_Enough, Falsified), hunting(shrink=False):
            tested.explore(bench, seed=seed, max_examples=FIRST_EXAMPLES, simplest=False)
    except Exception as error:
        # A state machine that ends between two draws is taken for one that draws something else each time.
        if not over:
            print(f"{tested.id}: {type(error).__name__}", file=sys.stderr)
    return bool(failed), failed[0] if failed else time.process_time() - began


def order(tried: Sequence[Attempt]) -> list[str]:
    """The visits of properties, sorted by the defects that each visit is expected to add per CPU second.

    A property has up to `_MOST_VISITS` visits.
    """
    chances: dict[str, dict[str, float]] = defaultdict(dict)
    costs: dict[str, list[float]] = defaultdict(list)
    kernels: dict[str, set[str]] = defaultdict(set)
    for one in tried:
        chances[one.property_id][one.defect] = one.found / one.seeds
        kernels[one.property_id].update(one.kernels)
        if not one.found:
            costs[one.property_id].append(one.cost)
    compiling, compiled = _compiling(tried), set[str]()
    missed: dict[str, float] = defaultdict(lambda: 1.0)

    def value(name: str) -> float:
        cost = _AROUND + median(costs[name] or [_LEAST])
        cost += sum(compiling.get(kernel, 0.0) for kernel in kernels[name] - compiled)
        return (_UNKNOWN * (name not in ordered) + _added(chances[name], missed)) / cost

    ordered = list[str]()
    while set(chances) - set(ordered):
        best = max((name for name in sorted(chances) if ordered.count(name) < _MOST_VISITS), key=value)
        ordered.append(best)
        compiled |= kernels[best]
        for defect, chance in chances[best].items():
            missed[defect] *= 1 - chance
    return ordered


def _compiling(tried: Iterable[Attempt]) -> dict[str, float]:
    """CPU seconds until each kernel is compiled: what the first seed of the first property that launches the kernel on a copy takes beyond others."""
    compiled: dict[str, set[str]] = defaultdict(set)
    extra: dict[str, list[float]] = defaultdict(list)
    for one in tried:
        new = set(one.kernels) - compiled[one.defect]
        for kernel in new:
            extra[kernel].append(max(0.0, one.first - one.cost) / len(new))
        compiled[one.defect] |= new
    return {kernel: median(seconds) for kernel, seconds in extra.items()}


_MOST_VISITS = 3
"""The most visits of a property. With one visit of each, half of the defects are found within .68 CPU s of the first pass, and 71 % in the whole
pass. With up to three visits, half are found within .52 CPU s, and three quarters within 1.65."""
_LEAST, _AROUND = 0.003, 0.003
"""CPU seconds of the first examples, for a property that was never measured without a failure; and of a campaign's work around each exploration."""
_UNKNOWN = 0.2
"""Unknown defects that the first visit of every property is assumed to find. Five-fold cross-validation: half of the defects that were left out are
found within 1.28 CPU s with .05, and within .98 with .2 or .3."""


def _added(chances: Mapping[str, float], missed: Mapping[str, float]) -> float:
    """How many more defects it is expected to find."""
    return sum(missed[defect] * chance for defect, chance in chances.items())


def _attempted(defect: HuntedDefect, seeds: int) -> list[Attempt]:
    """In a process of its own; what it has printed by the end of its time."""
    with tempfile.TemporaryDirectory(prefix="statecheck-learn-") as name:
        folder = Path(name)
        planted = defect.plant(folder)
        python = release_python(planted.subject, defect.release) if defect.release else sys.executable
        about = ["--subject", planted.subject, "--defect", defect.name, "--seeds", str(seeds)]
        try:
            printed = subprocess.run(
                [python, "-m", "tests.hunt.learn", *about],
                cwd=ROOT,
                env=new_machine(folder) | dict(planted.variables),
                stdout=subprocess.PIPE,
                timeout=_DEFECT_SECONDS,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as late:
            printed = late.stdout or b""
    lines = [line for line in printed.decode().splitlines() if line.endswith("}")]
    print(f"{defect.name}: {len(lines)} properties", flush=True)
    return [_read(json.loads(line)) for line in lines]


def _read(row: dict[str, Any]) -> Attempt:
    return Attempt(**row | {"kernels": tuple(row["kernels"])})


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.hunt.learn", description=__doc__)
    made.add_argument("--seeds", type=int, default=5, help="of each property on each copy (default 5)")
    made.add_argument("--groups", default="", help="as of tests.hunt (default: all copies of impl)")
    made.add_argument(
        "--every", type=int, default=1, help="every so manieth defect of each group (default 1)"
    )
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="copies at once")
    made.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "learn.json",
        help="where what was tried is kept; what stands there stays",
    )
    made.add_argument(
        "--write", action="store_true", help=f"write {learned.FILE.name} from it, and try nothing"
    )
    made.add_argument("--defect", default="", help=argparse.SUPPRESS)
    made.add_argument("--subject", default="", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.defect:
        if kernels_of(options.subject, "cpu"):
            triton_mode.prepare("cpu")
        for one in attempts(load(options.subject), options.defect, options.seeds):
            print(json.dumps(asdict(one)), flush=True)
        return 0
    kept = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    tried = [_read(row) for row in kept]
    if options.write:
        learned.FILE.write_text(json.dumps(order(tried), indent=1) + "\n", encoding="utf-8")
        return 0
    groups = tuple(filter(None, options.groups.split(",")))
    done = {one.defect for one in tried}
    wanted = [one for one in planted_defects(groups, every=options.every) if one.name not in done]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.workers) as pool:
        for found in pool.map(lambda one: _attempted(one, options.seeds), wanted):
            tried += found
            rows = [asdict(one) for one in tried]
            options.out.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
