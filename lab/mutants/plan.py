"""Which mutants a command judges: a part or a sample of all, without those that are judged already."""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.mutants.mutant import Mutant
from lab.mutants.operators import mutants_of
from lab.mutants.results import MutantResult, Results, Shard, merged
from lab.mutants.run import Round, Settings
from lab.mutants.targets import Target


@dataclass(frozen=True)
class MutantPlan:
    """What is judged.

    Args:
        part, parts: the shard, from 1, and how many there are.
        sample: how many mutants of each target, all by default.
        again: whether survivors are judged again.
    """

    targets: Sequence[Target]
    settings: Settings
    folder: Path
    part: int = 1
    parts: int = 1
    sample: int | None = None
    seed: int = 0
    again: bool = False

    @property
    def shard(self) -> Path:
        return self.folder / f"shard-{self.part}-of-{self.parts}.json"


def possible(target: Target) -> list[Mutant]:
    """All mutants of a target's files."""
    return [mutant for path in target.paths for mutant in mutants_of(path, target.content(path))]


def valid(target: Target, results: Results) -> dict[str, MutantResult]:
    """The results about files as they are now, by mutant."""
    now = {path: target.source(path) for path in target.paths}
    known = ((mutant.id, results.get((mutant.id, now[mutant.path]))) for mutant in possible(target))
    return {mutant: result for mutant, result in known if result is not None}


def pending(plan: MutantPlan, target: Target, results: Results) -> list[Mutant]:
    """The mutants to judge, in an order that has nothing to do with their places."""
    mutants = sorted(possible(target), key=lambda one: one.id)
    if plan.sample is not None:
        mutants = random.Random(plan.seed).sample(mutants, min(plan.sample, len(mutants)))
    done = valid(target, results)
    return [
        mutant
        for mutant in mutants
        if int(mutant.id, 16) % plan.parts == plan.part - 1 and _is_open(plan, done.get(mutant.id))
    ]


def _is_open(plan: MutantPlan, result: MutantResult | None) -> bool:
    return result is None or (result.survives and (plan.again or result.examples < plan.settings.examples))


def unjudged(plan: MutantPlan, results: Results) -> int:
    """How many of the plan's mutants have no result."""
    once = replace(plan, again=False, settings=replace(plan.settings, examples=0))
    return sum(len(pending(once, target, results)) for target in plan.targets)


def judge(plan: MutantPlan, say: Callable[[str], None]) -> None:
    """Judge what is pending; results are in the plan's folder.

    Raises:
        ValueError: a target's items do not pass on the source as it is.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    for target in plan.targets:
        mutants = pending(plan, target, merged(plan.folder))
        if mutants:
            say(f"{target.package}: {len(mutants)} mutants to judge")
            _apart(lambda target=target, mutants=mutants: _round(plan, target, mutants, say))  # type: ignore[misc]


def _round(plan: MutantPlan, target: Target, mutants: Sequence[Mutant], say: Callable[[str], None]) -> None:
    shard = Shard(plan.shard)
    try:
        Round(target, plan.settings, shard, plan.folder, say).run(mutants)
    finally:
        shard.save()


def _apart(body: Callable[[], None]) -> None:
    """Run in a forked process, which imports what this one must not have."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise ValueError("mutants = not judged, but should be; the reason is above [mutants]")
