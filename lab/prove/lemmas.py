"""Lemmas about a subject's launches: each is proved, refuted with a case, explained by declared defects, or out of reach.

The lemmas of one scene are about the same launch, and are proved together: every path is explored once, and on each the solver is asked
whether memory can be left otherwise than the oracle says, whether an access can be outside of its vector, table or pool, and whether an
integer can overflow. A path ends at an access outside. No lemma is proved by paths that all end before their comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from lab.prove.cases import CaseSearch, ShownCases
from lab.prove.inputs import BLOCK_SIZE, STRIDE, Inputs
from lab.prove.launches import CapturedLaunch, captured
from lab.prove.memory import ADDRESS, EQUAL, OVERFLOW, LemmaViolation, SymbolicMemory, source_in
from lab.prove.paths import OutOfReach, Path, Unreachable, as_term, paths
from lab.prove.scenes import LISTS, PRECOPY, PREPROCESS, SETUPS, V1, V2, SymbolicScene
from properties.strategies.align.batches import OUT
from properties.strategies.align.setup import CONTEXT, Setup
from statecheck.case import Case
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.subject import Subject

PROVED, REFUTED, KNOWN, OUT_OF_REACH = "proved", "refuted", "known", "out of reach"
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
SAME = "V1 = V2"
COMPILED_FOR = 16
"""Tokens of a block, where a kernel is compiled for a number of them."""
_STATES = {
    EQUAL: "leaves what the oracle says",
    ADDRESS: "touches nothing outside of its vectors, row and pool",
    OVERFLOW: "overflows nowhere",
}
_SIZES = ("block_size", "MAMBA_BLOCK_SIZE")
_QUESTION = 60_000
"""Milliseconds for a question to the solver."""
Prepared = tuple[SymbolicMemory, Callable[[], None]]
"""Memory whose violations count, and what executes and compares."""


@dataclass(frozen=True)
class LemmaVerdict:
    """What is known of a lemma. `why` says what was found, or what was in the way.

    `case` shows a refutation; where `known` names declared defects, it shows the first of them.
    """

    lemma: str
    state: str
    seconds: float
    paths: int
    why: str = ""
    case: Case | None = None
    known: str = ""


@dataclass
class ExploredPaths:
    """Paths of a scene: how many ended, how many of them with a comparison, how long they took, and what violates a lemma."""

    seconds: float = 0.0
    ended: int = 0
    compared: int = 0
    violations: list[LemmaViolation] = field(default_factory=list)
    stopped: str = ""


@dataclass(frozen=True)
class Proof:
    """What is to be proved of a subject with a scene's numbers, with what layers keep: `model`, of SETUPS.

    `limit` is seconds for all paths, and again for the cases of a lemma.
    """

    subject: Subject
    scene: SymbolicScene
    model: str
    limit: float

    @property
    def setup(self) -> Setup:
        return replace(SETUPS[self.model], block_size=COMPILED_FOR)

    def launch(self, scene: SymbolicScene) -> CapturedLaunch:
        names, steps = (*scene.vectors, "table0", "pool0", OUT), scene.steps(self.setup, self.subject.profile)
        return captured(self.subject, steps, names, {OUT: "counts"})

    def decided(self, lemma: str, about: str, size: Any, explored: ExploredPaths) -> LemmaVerdict:
        """The verdict on a lemma after its paths were explored."""
        violations = [violation for violation in explored.violations if violation.about == about]
        search = CaseSearch(self.subject, self.scene, SETUPS[self.model], size, self.limit)
        shown = search.shown(violations)
        verdict = LemmaVerdict(lemma, PROVED, explored.seconds, explored.ended)
        if shown.new is not None:
            return replace(verdict, state=REFUTED, why=shown.new.message, case=shown.new)
        missing = list(_missing(explored, shown))
        if shown.known:
            first = next(iter(shown.known.values()))
            why = f"{first.message}; {shown.inputs} inputs show nothing else, and the rest is not proved"
            verdict = replace(verdict, state=KNOWN, why=why, case=first, known=", ".join(shown.known))
        elif about != ADDRESS and any(violation.about == ADDRESS for violation in explored.violations):
            verdict = replace(verdict, why="where all accesses are inside")
        return replace(verdict, state=OUT_OF_REACH, why="; ".join(missing)) if missing else verdict


def _missing(explored: ExploredPaths, shown: ShownCases) -> Iterator[str]:
    """What is missing for a proof, or for saying that declared defects explain everything that was found."""
    if shown.unshown:
        yield f"{shown.unshown[0].text}, but no case shows it"
    if explored.stopped:
        yield explored.stopped
    elif not explored.ended:
        yield "no input is inside of the domain"
    elif not explored.compared:
        yield "no path comes to its comparison"


def prove(subject: Subject, scene: SymbolicScene, model: str, limit: float) -> list[LemmaVerdict]:
    """The lemmas of a scene on a subject.

    Args:
        model: what layers keep, of SETUPS.
        limit: seconds for all paths.
    """
    proof = Proof(subject, scene, model, limit)

    def prepare(path: Path, launches: Sequence[CapturedLaunch], size: Any) -> Prepared:
        inputs = scene.inputs(path, subject.profile, block_size=size)
        expected = scene.expect(inputs, proof.setup)
        memory = SymbolicMemory(path, scene.regions(inputs, proof.setup))

        def check() -> None:
            launches[0].execute(memory, scalars(inputs))
            memory.compare(expected.vectors, expected.copies)

        return memory, check

    about = (EQUAL,) if scene is LISTS else tuple(_STATES)
    return _verdicts(proof, (scene,), about, partial(_sentence, scene, model), prepare)


def _verdicts(
    proof: Proof,
    scenes: Sequence[SymbolicScene],
    about: Sequence[str],
    sentence: Callable[[str, Any], str],
    prepare: Callable[[Path, Sequence[CapturedLaunch], Any], Prepared],
) -> list[LemmaVerdict]:
    """What is known of lemmas about the launches of scenes."""
    try:
        launches = [proof.launch(scene) for scene in scenes]
    except NotUnderstoodError as unknown:
        why = f"the executor does not know {unknown}"
        return [LemmaVerdict(sentence(one, BLOCK_SIZE), OUT_OF_REACH, 0.0, 0, why) for one in about]
    size = size_of(proof.scene, launches[-1])
    explored = explore(lambda path: prepare(path, launches, size), proof.limit)
    return [proof.decided(sentence(one, size), one, size, explored) for one in about]


def offered(subject: Subject, scene: SymbolicScene) -> bool:
    owner = "" if scene is PREPROCESS else f"{CONTEXT}."
    return subject.has(f"{owner}{scene.function}")


def explore(prepare: Callable[[Path], Prepared], limit: float) -> ExploredPaths:
    """All paths of what is executed and compared, and what is violated on each."""
    found, begun = ExploredPaths(), time.monotonic()

    def run(path: Path) -> list[LemmaViolation]:
        memory, check = prepare(path)
        # A path that leaves memory ends there.
        with suppress(Unreachable):
            check()
            found.compared += 1
        return memory.violations

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


def size_of(scene: SymbolicScene, launch: CapturedLaunch) -> Any:
    """The tokens of a block, where they are a constant of the kernel; otherwise their symbol."""
    return BLOCK_SIZE if not scene.sized or any(map(launch.has, _SIZES)) else COMPILED_FOR


def scalars(inputs: Inputs) -> Mapping[str, Any]:
    """Arguments that are open, or are other than in the launch that was captured."""
    sizes = dict.fromkeys(_SIZES, inputs.block_size)
    return {**sizes, "block_table_stride_req": STRIDE, "block_table_width": inputs.width}


def _sentence(scene: SymbolicScene, model: str, about: str, size: Any) -> str:
    given = f"{size} tokens a block" if size is not BLOCK_SIZE else ""
    details = ", ".join(filter(None, ("" if scene is PREPROCESS else model, given)))
    return f"{scene.name}{f' ({details})' if details else ''} {_STATES[about]}"


def lemmas(subject: Subject, limit: float, only: str = "") -> Iterator[LemmaVerdict]:
    """Every lemma that a subject has the calls for, as soon as it is decided.

    Args:
        only: a part of the names of scenes; "" for all.

    Raises:
        ValueError: no scene has such a name.
    """
    names = [*(f"{scene.name} {model}" for scene, model in SCENES), SAME]
    if not any(only in name for name in names):
        near = get_close_matches(only, names, n=3, cutoff=0.0)
        raise ValueError(f"only = {only!r}, but should be a part of a name such as {', '.join(near)} [prove]")
    for scene, model in SCENES:
        if offered(subject, scene) and only in f"{scene.name} {model}":
            yield from prove(subject, scene, model, limit)
    if offered(subject, V1) and offered(subject, V2) and only in SAME:
        yield same_copies(subject, "SD", limit)


def same_copies(subject: Subject, model: str, limit: float) -> LemmaVerdict:
    """That V1's and V2's postprocess leave the same, for the same request in row 0 and in a slot."""
    proof = Proof(subject, V2, model, limit)

    def prepare(path: Path, launches: Sequence[CapturedLaunch], size: Any) -> Prepared:
        rows, slots = (
            scene.inputs(path, subject.profile, prefix, size) for scene, prefix in ((V1, "row's "), (V2, ""))
        )
        _same_request(rows, slots)
        other = SymbolicMemory(path, V2.regions(slots, proof.setup))
        one = SymbolicMemory(path, V1.regions(rows, proof.setup), violations=other.violations)
        # The request's row of the table, wherever that is.
        one.region("table0").initial = lambda index: slots.cell(index + STRIDE * slots.row)

        def check() -> None:
            for launch, memory, inputs in zip(launches, (one, other), (rows, slots), strict=True):
                launch.execute(memory, scalars(inputs))
            byte = path.fresh("byte")
            counts = (one.region(OUT).number(0), other.region("counts").number(slots.slot))
            moved = source_in(one.moved, byte) != source_in(other.moved, byte)
            other.differ({"bytes of the pool": moved, "the count": as_term(counts[0]) != as_term(counts[1])})

        return other, check

    sentence = f"{SAME} ({model}): a request in a row and in a slot is left the same"
    return _verdicts(proof, (V1, V2), (EQUAL,), lambda about, size: sentence, prepare)[0]


def _same_request(rows: Inputs, slots: Inputs) -> None:
    """Assume that both are about one request, in a row and in a slot."""
    after = rows.own("computed") + rows.own("scheduled") - rows.own("drafts") + rows.own("counts") - 1
    rows.path.assume(
        slots.slot >= 0,
        slots.own("computed") == after,
        *(rows.own(name) == slots.own(name) for name in ("counts", "columns")),
    )
