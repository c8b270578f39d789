"""A round of mutants: each is judged in a process of its own by the items that reach it, until the first that fails."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from lab.mutants import items
from lab.mutants.equivalent import same_bytecode, same_ir
from lab.mutants.mutant import Mutant, Source
from lab.mutants.process import EndedProcess, Processes, Report
from lab.mutants.reach import Item, chosen, recorded, users
from lab.mutants.results import (
    CRASH,
    EQUIVALENT,
    KILLED,
    MEMORY,
    SURVIVED,
    TIMEOUT,
    UNREACHED,
    MutantResult,
    Shard,
)
from lab.mutants.substitute import module_of, substitute, substitute_in_children
from lab.mutants.targets import HARNESS, Target

_PATIENCE, _TIMES = 3.0, 10.0
"""An item hangs if it takes so many seconds of CPU time, and so many times as long as on the source."""
_TO_IMPORT = 30.0
NO_ITEM = "no item reaches it"
_BUDGET = 60.0
"""CPU time of a mutant's items on the source, with as many examples as when the reach was recorded: the cheapest come first."""
_FAVOUR = 5
"""An item that has killed a mutant of the same function goes before others that are so many times cheaper."""


@dataclass(frozen=True)
class Settings:
    """How mutants are judged.

    Args:
        examples: of each property; a fifth of it where kernels are launched.
        until: when no mutant is begun any more, by `time.monotonic`.
    """

    examples: int
    workers: int
    until: float = float("inf")


@dataclass(frozen=True)
class _Trial:
    """A mutant, the text of its file, and the items in the order in which they judge it."""

    mutant: Mutant
    content: bytes
    order: Sequence[str]
    limits: Sequence[float]


class Round:
    """The mutants of one target, in a process that has imported what all of them need."""

    def __init__(
        self, target: Target, settings: Settings, shard: Shard, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._target, self._settings, self._shard, self._folder, self._say = (
            target,
            settings,
            shard,
            folder,
            say,
        )
        self._kills = Counter[tuple[str, str, str]]()
        self._sources = dict[str, Source]()

    def run(self, mutants: Sequence[Mutant]) -> None:
        """Judge mutants until all are done or the time is up; the shard has the results.

        Raises:
            ValueError: items do not pass on the source as it is.
        """
        preload(self._target, self._settings.examples)
        workers = self._settings.workers
        self._reach = recorded(self._target, self._settings.examples, workers, self._folder, self._say)
        self._users = self._dependents(mutants)
        self._require_sound()
        # A forked process that collects garbage would copy every page of what this one holds.
        gc.collect()
        gc.freeze()
        begun = time.monotonic()
        for number, ended in enumerate(
            Processes[_Trial](workers, self._judge).run(self._trials(mutants)), start=1
        ):
            self._keep(ended)
            if number % 100 == 0:
                rate = number / (time.monotonic() - begun) * 60
                self._say(
                    f"{self._target.package}: {number} of {len(mutants)} mutants, {rate:.0f} per minute"
                )
        self._shard.save()

    def _dependents(self, mutants: Sequence[Mutant]) -> Mapping[str, set[str]]:
        paths = {mutant.path for mutant in mutants}
        return {path: users(self._target, path) for path in paths}

    def _source(self, path: str) -> Source:
        if path not in self._sources:
            self._sources[path] = Source(self._target.content(path))
        return self._sources[path]

    def _trials(self, mutants: Sequence[Mutant]) -> Iterator[tuple[_Trial, float]]:
        more = max(1, self._settings.examples / self._reach.examples)
        for mutant in mutants:
            if time.monotonic() > self._settings.until:
                return
            reaching = self._reach.reaching(mutant)
            found = _affordable(reaching)
            if not found:
                why = (
                    f"each of the {len(reaching)} items that reach it takes too long" if reaching else NO_ITEM
                )
                self._shard.add(mutant.id, self._result(mutant, UNREACHED, why=why))
                continue
            found.sort(
                key=lambda item: item.seconds / (1 + _FAVOUR * self._kills[self._key(mutant, item.id)])
            )
            limits = [_PATIENCE + _TIMES * more * one.seconds for one in found]
            content = self._source(mutant.path).changed(mutant.edit)
            trial = _Trial(mutant, content, [one.id for one in found], limits)
            yield trial, _TO_IMPORT + sum(limits)

    @staticmethod
    def _key(mutant: Mutant, item: str) -> tuple[str, str, str]:
        return mutant.path, mutant.edit.function, item

    def _judge(self, trial: _Trial, report: Report) -> None:
        mutant = trial.mutant
        report.allow(_TO_IMPORT)
        if same_bytecode(self._source(mutant.path).content, trial.content):
            report.send(equivalent="the same bytecode")
            return
        substitute(module_of(mutant.path), trial.content, self._users[mutant.path])
        if not self._target.watched:
            children = report.scratch / "children"
            children.mkdir()
            substitute_in_children(module_of(mutant.path), trial.content, children)
        if mutant.edit.kernel:
            # Variants of a mutant are of no use to others.
            os.environ["TRITON_CACHE_DIR"] = str(report.scratch / "triton")
            same = same_ir(self._reach.specialisations(mutant))
            if same:
                report.send(equivalent="the same IR in every variant that is launched")
                return
        self._run(trial, report)

    def _run(self, trial: _Trial, report: Report) -> None:
        def begin(place: int) -> None:
            report.send(begun=place)
            report.allow(trial.limits[place])

        def fail(place: int, error: BaseException) -> None:
            is_memory = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
            report.send(failed=place, why=items.in_short(error), memory=is_memory)
            report.end()

        judge = items.Judge(self._settings.examples, trial.order, begin, fail)
        code = items.run(chosen(self._target, trial.order), judge, report.scratch)
        report.send(code=code)

    def _keep(self, ended: EndedProcess[_Trial]) -> None:
        trial, said = ended.work, {key: value for message in ended.messages for key, value in message.items()}
        mutant, ran = trial.mutant, sum("begun" in message for message in ended.messages)
        by = trial.order[said["begun"]] if "begun" in said else ""
        result = self._result(mutant, SURVIVED, ran=ran, seconds=round(ended.seconds, 2))
        if "equivalent" in said:
            result = replace(result, status=EQUIVALENT, why=said["equivalent"])
        elif "failed" in said:
            status = MEMORY if said.get("memory") else KILLED
            result = replace(result, status=status, by=by or "import", why=said["why"])
            self._kills[self._key(mutant, by)] += 1
        elif ended.how:
            status = TIMEOUT if ended.how == "timeout" else CRASH
            result = replace(result, status=status, by=by or "import")
        elif said.get("code") not in (0, 5):
            # pytest itself ended: an import or the collection failed.
            result = replace(result, status=KILLED, by="import", why=f"pytest ended with {said.get('code')}")
        self._shard.add(mutant.id, result)

    def _result(self, mutant: Mutant, status: str, **others: object) -> MutantResult:
        source = self._target.source(mutant.path)
        return replace(MutantResult(status, source, examples=self._settings.examples), **others)  # type: ignore[arg-type]

    def _require_sound(self) -> None:
        """The source itself has to survive, by the cheapest item of each file."""
        cheapest = {
            item.id.partition("::")[0]: item
            for item in sorted(self._reach.items, key=lambda one: -one.seconds)
        }
        order = [one.id for one in cheapest.values()]
        path = self._target.paths[0]
        importing = users(self._target, path)

        def judge(_: None, report: Report) -> None:
            substitute(module_of(path), self._target.content(path), importing)
            self._run(_Trial(None, b"", order, [_BUDGET] * len(order)), report)  # type: ignore[arg-type]

        [ended] = Processes[None](1, judge).run(iter([(None, _BUDGET * len(order))]))
        said = {key: value for message in ended.messages for key, value in message.items()}
        if said.get("code") != 0 or "failed" in said:
            by = order[said["begun"]] if "begun" in said else "the collection"
            raise ValueError(
                f"{by} = {said.get('why') or ended.how or said}, but should pass on the source as it is [mutants]"
            )


def _affordable(found: Sequence[Item]) -> list[Item]:
    """The first items that the budget is enough for."""
    spent = accumulate(one.seconds for one in found)
    return [one for one, seconds in zip(found, spent, strict=True) if seconds <= _BUDGET]


def preload(target: Target, examples: int) -> None:
    """Import what processes of the target need, and nothing of the target."""
    import pytest  # noqa: F401 - for the processes that are forked
    import torch

    items.set_examples(examples)
    torch.set_num_threads(1)
    if target.package == HARNESS:
        return
    import triton.language  # noqa: F401 - as above

    from statecheck.kernels import triton_mode
    from statecheck.rooms import open_rooms

    open_rooms()
    triton_mode.prepare("cpu")
    if target.watched:
        for module in ("statecheck.suite.options", "subjects.plain"):
            importlib.import_module(module)
        from statecheck.execution.registry import load_properties

        load_properties()
    items.set_examples(examples)
