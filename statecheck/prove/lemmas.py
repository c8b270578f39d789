"""Lemmas about a subject's launches: each is proved, refuted with a case, or out of reach.

The lemmas of one scene are about the same launch, and are proved together: every path is explored once, and on each the solver is asked
whether memory can be left otherwise than the oracle says, whether an access can be outside of its vector, table or pool, and whether an
integer can overflow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from properties.strategies.align.batches import OUT
from properties.strategies.align.setup import CONTEXT, Setup
from statecheck.case import Case
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.prove.cases import smallest_case
from statecheck.prove.inputs import BLOCK_SIZE, STRIDE, Inputs
from statecheck.prove.launches import CapturedLaunch, captured
from statecheck.prove.memory import ADDRESS, EQUAL, OVERFLOW, LemmaViolation, SymbolicMemory, source_in
from statecheck.prove.paths import OutOfReach, Path, Unreachable, as_term, paths
from statecheck.prove.scenes import (
    LISTS,
    PRECOPY,
    PREPROCESS,
    SETUPS,
    V1,
    V2,
    Expected,
    SymbolicScene,
)
from statecheck.subject import Subject

PROVED, REFUTED, OUT_OF_REACH = "proved", "refuted", "out of reach"
SCENES: tuple[tuple[SymbolicScene, str], ...] = (
    (PREPROCESS, "SD"),
    (V1, "SD"),
    (V1, "DS"),
    (V2, "SD"),
    (V2, "DS"),
    (PRECOPY, "SD"),
    (PRECOPY, "DS"),
    (PRECOPY, "fewer states"),
    (LISTS, "SD"),
)
COMPILED_FOR = 16
"""Tokens of a block, where a kernel is compiled for a number of them."""
_STATES = {
    EQUAL: "leaves what the oracle says",
    ADDRESS: "touches nothing outside of its vectors, row and pool",
    OVERFLOW: "overflows nowhere",
}
_SIZES = ("block_size", "MAMBA_BLOCK_SIZE")
_MOST_TRIED = 12
_QUESTION = 60_000
"""Milliseconds for a question to the solver."""


@dataclass(frozen=True)
class LemmaVerdict:
    """What is known of a lemma. `why` says what was found, or what was in the way; `case` shows a refutation."""

    lemma: str
    state: str
    seconds: float
    paths: int
    why: str = ""
    case: Case | None = None
    known: str = ""


@dataclass
class ExploredPaths:
    """Paths of a scene: how many came to their end, how long they took, and the first that violate something."""

    seconds: float = 0.0
    ended: int = 0
    violations: list[LemmaViolation] = field(default_factory=list)
    stopped: str = ""


def prove(subject: Subject, scene: SymbolicScene, model: str, limit: float) -> list[LemmaVerdict]:
    """The lemmas of a scene on a subject; nothing where it does not offer the call.

    Args:
        model: what layers keep, of SETUPS.
        limit: seconds for all paths.
    """
    setup = replace(SETUPS[model], block_size=COMPILED_FOR)
    try:
        launch = launch_of(subject, scene, setup)
    except NotUnderstoodError as unknown:
        reason = f"the executor does not know {unknown}"
        return [
            LemmaVerdict(_sentence(scene, model, about, BLOCK_SIZE), OUT_OF_REACH, 0.0, 0, reason)
            for about in _STATES
        ]
    explored = explore(_beside_the_oracle(subject, scene, setup, launch), limit)
    about = (EQUAL,) if scene is LISTS else tuple(_STATES)
    return [_verdict(subject, scene, model, launch, one, explored) for one in about]


def offered(subject: Subject, scene: SymbolicScene) -> bool:
    owner = "" if scene is PREPROCESS else f"{CONTEXT}."
    return subject.has(f"{owner}{scene.function}")


def launch_of(subject: Subject, scene: SymbolicScene, setup: Setup) -> CapturedLaunch:
    names = (*scene.vectors, "table0", "pool0", OUT)
    return captured(subject, scene.steps(setup, subject.profile), names, {OUT: "counts"})


def explore(run: Callable[[Path], Sequence[LemmaViolation]], limit: float) -> ExploredPaths:
    """All paths of a run, which says what is violated on one."""
    found, begun = ExploredPaths(), time.monotonic()
    try:
        for ended in paths(run, _QUESTION):
            found.ended += 1
            found.violations += ended.result
            if time.monotonic() - begun > limit:
                raise OutOfReach(f"more than {limit:g} s")
    except (OutOfReach, NotUnderstoodError) as stopped:
        found.stopped = str(stopped)
    found.seconds = time.monotonic() - begun
    return found


def _beside_the_oracle(
    subject: Subject, scene: SymbolicScene, setup: Setup, launch: CapturedLaunch
) -> Callable[[Path], Sequence[LemmaViolation]]:
    def run(path: Path) -> Sequence[LemmaViolation]:
        inputs = scene.inputs(path, subject.profile, block_size=size_of(scene, launch))
        expected = scene.expect(inputs, setup)
        memory = SymbolicMemory(path, scene.regions(inputs, setup))
        # A path that leaves memory ends there.
        with suppress(Unreachable):
            launch.execute(memory, scalars(inputs))
            _compare(scene, memory, expected)
        return memory.violations

    return run


def size_of(scene: SymbolicScene, launch: CapturedLaunch) -> Any:
    """The tokens of a block, where they are a constant of the kernel; otherwise their symbol."""
    return BLOCK_SIZE if not scene.sized or any(map(launch.has, _SIZES)) else COMPILED_FOR


def scalars(inputs: Inputs) -> Mapping[str, Any]:
    """Arguments that are open, or are other than in the launch that was captured."""
    sizes = dict.fromkeys(_SIZES, inputs.block_size)
    return {**sizes, "block_table_stride_req": STRIDE, "block_table_width": inputs.width}


def _compare(scene: SymbolicScene, memory: SymbolicMemory, expected: Expected) -> None:
    """Note where memory is left otherwise than expected."""
    path = memory.path
    byte, index = path.fresh("byte"), path.fresh("index")
    differs = [source_in(memory.moved, byte) != source_in(expected.copies, byte)]
    for name in scene.changed:
        region = memory.region(name)
        wanted, inside = expected.vectors[name](index), z3.And(index >= 0, 4 * index < as_term(region.size))
        differs.append(z3.And(inside, as_term(region.number(index)) != as_term(wanted)))
    if path.possible(z3.Or(*differs)):
        memory.violated(EQUAL, z3.Or(*differs), "another byte or number is left")


def _verdict(
    subject: Subject,
    scene: SymbolicScene,
    model: str,
    launch: CapturedLaunch,
    about: str,
    explored: ExploredPaths,
) -> LemmaVerdict:
    size = size_of(scene, launch)
    sentence = _sentence(scene, model, about, size)
    of = (sentence, explored.seconds, explored.ended)
    violations = [one for one in explored.violations if one.about == about]
    case = smallest_case(subject, scene, SETUPS[model], violations[:_MOST_TRIED], size)
    if case is not None:
        known = subject.known(case)
        return _of(REFUTED, of, violations[0].text, case, known.id if known is not None else "")
    if violations:
        return _of(OUT_OF_REACH, of, f"{violations[0].text}, but no case shows it")
    if explored.stopped:
        return _of(OUT_OF_REACH, of, explored.stopped)
    if not explored.ended:
        return _of(OUT_OF_REACH, of, "no input is inside of the domain")
    if about == EQUAL and any(one.about == ADDRESS for one in explored.violations):
        return _of(PROVED, of, "where all accesses are inside")
    return _of(PROVED, of)


def _of(
    state: str, of: tuple[str, float, int], why: str = "", case: Case | None = None, known: str = ""
) -> LemmaVerdict:
    sentence, seconds, ended = of
    return LemmaVerdict(sentence, state, seconds, ended, why, case, known)


def _sentence(scene: SymbolicScene, model: str, about: str, size: Any) -> str:
    given = f"{size} tokens a block" if size is not BLOCK_SIZE else ""
    details = ", ".join(filter(None, ("" if scene is PREPROCESS else model, given)))
    return f"{scene.name}{f' ({details})' if details else ''} {_STATES[about]}"


def lemmas(subject: Subject, limit: float, only: str = "") -> Iterator[LemmaVerdict]:
    """Every lemma that a subject has the calls for, as soon as it is decided.

    Args:
        only: a part of the names of scenes; "" for all.
    """
    for scene, model in SCENES:
        if offered(subject, scene) and only in f"{scene.name} {model}":
            yield from prove(subject, scene, model, limit)
    if offered(subject, V1) and offered(subject, V2) and only in "V1 = V2":
        yield same_copies(subject, "SD", limit)


def same_copies(subject: Subject, model: str, limit: float) -> LemmaVerdict:
    """That V1's and V2's postprocess leave the same, for the same request in row 0 and in a slot."""
    setup = replace(SETUPS[model], block_size=COMPILED_FOR)
    launches = [launch_of(subject, scene, setup) for scene in (V1, V2)]
    size = size_of(V2, launches[1])

    def run(path: Path) -> list[LemmaViolation]:
        rows, slots = (
            scene.inputs(path, subject.profile, prefix, size) for scene, prefix in ((V1, "row's "), (V2, ""))
        )
        _same_request(rows, slots)
        one, other = (
            SymbolicMemory(path, scene.regions(inputs, setup)) for scene, inputs in ((V1, rows), (V2, slots))
        )
        # The request's row of the table, wherever that is.
        one.region("table0").initial = lambda index: slots.cell(index + STRIDE * slots.row)
        for launch, memory, inputs in zip(launches, (one, other), (rows, slots), strict=True):
            launch.execute(memory, scalars(inputs))
        byte = path.fresh("byte")
        counts = (one.region(OUT).number(0), other.region("counts").number(slots.slot))
        moved = source_in(one.moved, byte) != source_in(other.moved, byte)
        differs = z3.Or(moved, as_term(counts[0]) != as_term(counts[1]))
        if path.possible(differs):
            other.violated(EQUAL, differs, "V1 and V2 leave something else")
        return [found for found in other.violations if found.about == EQUAL]

    verdict = _verdict(subject, V2, model, launches[1], EQUAL, explore(run, limit))
    return replace(verdict, lemma=f"V1 = V2 ({model}): a request in a row and in a slot is left the same")


def _same_request(rows: Inputs, slots: Inputs) -> None:
    """Assume that both are about one request, in a row and in a slot."""
    after = rows.own("computed") + rows.own("scheduled") - rows.own("drafts") + rows.own("counts") - 1
    rows.path.assume(
        slots.slot >= 0,
        slots.own("computed") == after,
        *(rows.own(name) == slots.own(name) for name in ("counts", "columns")),
    )
