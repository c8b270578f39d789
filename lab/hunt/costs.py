"""What visits of properties take in the first pass of a campaign, measured on a copy without a defect."""

from __future__ import annotations

import gc
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from lab.hunt.first_examples import first_examples
from statecheck.campaign import scheduler
from statecheck.execution import profiles
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.kernels.launch import Launched, launching
from statecheck.subject import KnownDefectMatcher, Subject

_AROUND, _LEAST = 0.003, 0.0005
"""CPU seconds of a campaign's work around each exploration; and of an example at least, since its measurement is a difference."""


FIRST, AGAIN, PAIR = "first", "again", "pair"
KINDS = {FIRST: 1, AGAIN: 1, PAIR: 2}
"""By kind, the random examples of a visit: the first visit of a property in a process, a further visit, and a visit with two examples."""


@dataclass(frozen=True)
class Visit:
    """What the first examples of a property take on a copy without a defect.

    Args:
        seed: of the process, which visits all properties in the learned order for each of the `KINDS`.
        kind: one of these.
        cached: whether another process had compiled the kernels.
        seconds: of the CPU.
        variants: of kernels that were launched, as "kernel#digest".
    """

    property_id: str
    seed: int
    kind: str
    cached: bool
    seconds: float
    variants: tuple[str, ...] = ()


class Costs:
    """What visits take, from measurements.

    Args:
        visits: of each process in the order in which they were measured.
    """

    def __init__(self, visits: Sequence[Visit]) -> None:
        seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for visit in visits:
            if visit.cached:
                seconds[visit.property_id, visit.kind].append(visit.seconds)
        self._seconds = {key: median(found) for key, found in seconds.items()}
        self._shares = _shares(visits)
        self._compiling = _compiling(visits)

    def properties(self) -> set[str]:
        return {name for name, _ in self._seconds}

    def of(self, name: str, *, is_first: bool) -> float:
        """CPU seconds of a visit whose kernels are compiled."""
        return _AROUND + self._seconds[name, FIRST if is_first else AGAIN]

    def further(self, name: str) -> float:
        """CPU seconds of one further example in the same visit."""
        return max(_LEAST, self._seconds[name, PAIR] - self._seconds[name, AGAIN])

    def compiling(self, name: str, missing: Mapping[str, float]) -> float:
        """CPU seconds in which a visit waits for kernels.

        Args:
            missing: for each variant, the probability that it was not compiled before; 1 for others.
        """
        shares = self._shares.get(name, {})
        return sum(
            share * missing.get(one, 1.0) * self._compiling[_kernel(one)] for one, share in shares.items()
        )

    def compile(self, name: str, missing: dict[str, float]) -> None:
        """The property is visited: its variants are missing less often."""
        for one, share in self._shares.get(name, {}).items():
            missing[one] = missing.get(one, 1.0) * (1 - share)


def _shares(visits: Sequence[Visit]) -> dict[str, dict[str, float]]:
    """By property, which share of its visits launches each variant."""
    number, launched = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for one in visits:
        number[one.property_id] += 1
        launched[one.property_id].update(one.variants)
    return {
        name: {one: count / number[name] for one, count in found.items()} for name, found in launched.items()
    }


def _compiling(visits: Sequence[Visit]) -> dict[str, float]:
    """By kernel, what its variants take to compile: what the first visit that launches a variant takes beyond the same visit with a full cache."""
    cached = {(visit.property_id, visit.seed, visit.kind): visit.seconds for visit in visits if visit.cached}
    known, extra = defaultdict[int, set[str]](set), defaultdict[str, list[float]](list)
    for one in visits:
        if one.cached:
            continue
        new = set(one.variants) - known[one.seed]
        known[one.seed] |= new
        beyond = one.seconds - cached[one.property_id, one.seed, one.kind]
        for variant in new:
            extra[_kernel(variant)].append(max(0.0, beyond) / len(new))
    return {kernel: mean(found) for kernel, found in extra.items()}


def _kernel(variant: str) -> str:
    return variant.partition("#")[0]


def visits(subject: Subject, seed: int, *, cached: bool) -> Iterator[Visit]:
    """Visit all properties in this process, in the learned order, for each of the `KINDS`."""
    profiles.register()
    known = KnownDefectMatcher(subject.known_deviations, subject.profile)
    port = ordinary_port(subject, "cpu", sanitized=True)
    properties = load_properties()
    names = [
        name
        for name in dict.fromkeys((*(one for one, _ in scheduler.visits()), *properties))
        if name in properties
    ]
    launched = set[str]()

    def note(launch: Launched, make: Callable[[], None]) -> None:
        digest = hashlib.sha256(launch.compiled.source.encode()).hexdigest()
        launched.add(f"{launch.kernel}#{digest[:8]}")
        make()

    # As in a worker. What was imported is not searched for garbage.
    gc.freeze()
    with launching(note):
        for number, (kind, examples) in enumerate(KINDS.items()):
            for name in names:
                bench = ExecutionContext(subject, port)
                if properties[name].not_applicable(bench) is not None:
                    continue
                launched.clear()
                _, seconds = first_examples(
                    properties[name], bench, len(KINDS) * seed + number, known.known, examples
                )
                yield Visit(name, seed, kind, cached, round(seconds, 5), tuple(sorted(launched)))
    gc.unfreeze()
