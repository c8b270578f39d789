"""Which mutants a command judges: a part or a sample of all, without those that are judged already."""

from __future__ import annotations

import os
import random
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from statecheck.mutants.mutant import Mutant
from statecheck.mutants.operators import mutants_of
from statecheck.mutants.results import MutantResult, Shard, digest, merged
from statecheck.mutants.run import Round, Settings
from statecheck.mutants.targets import Target


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


def part_of(text: str) -> tuple[int, int]:
    """The shard that "2/4" names.

    Raises:
        ValueError: it names none.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part, parts = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    if not 1 <= part <= parts:
        raise ValueError(
            f"shard = {text!r}, but should be a part and the number of parts, such as 2/4 [mutants]"
        )
    return part, parts


def possible(target: Target) -> list[Mutant]:
    """All mutants of a target's files."""
    return [mutant for path in target.paths for mutant in mutants_of(path, target.content(path))]


def valid(target: Target, results: Mapping[str, MutantResult]) -> dict[str, MutantResult]:
    """The results about files as they are now."""
    found = {}
    for path in target.paths:
        content = target.content(path)
        now = digest(content)
        for mutant in mutants_of(path, content):
            result = results.get(mutant.id)
            if result is not None and result.source == now:
                found[mutant.id] = result
    return found


def pending(plan: MutantPlan, target: Target, results: Mapping[str, MutantResult]) -> list[Mutant]:
    """The mutants to judge, in an order that has nothing to do with their places."""
    mutants = sorted(possible(target), key=lambda one: one.id)
    if plan.sample is not None:
        mutants = random.Random(plan.seed).sample(mutants, min(plan.sample, len(mutants)))
    done = valid(target, results)
    return [
        one
        for one in mutants
        if int(one.id, 16) % plan.parts == plan.part - 1 and _is_open(plan, done.get(one.id))
    ]


def _is_open(plan: MutantPlan, result: MutantResult | None) -> bool:
    return result is None or (result.survives and (plan.again or result.examples < plan.settings.examples))


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
