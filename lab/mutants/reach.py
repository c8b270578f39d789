"""Which items reach a mutant: recorded once for a target, and kept on disk until a source changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.mutants import items
from lab.mutants.equivalent import Specialisation
from lab.mutants.mutant import IMPORT, Mutant
from lab.mutants.process import Processes, Report
from lab.mutants.substitute import dependents, files_of, forget, imported_files, module_of
from lab.mutants.targets import TESTS, UNIT, Target
from lab.mutants.watching import ExecutedLines, Variants, unpacked, watching
from statecheck.rooms import FOLDER
from statecheck.util.files import write_text

_TOGETHER = 12
"""Items of a file that one process runs."""
_SECONDS, _ITEM_SECONDS = 900.0, 20.0
"""CPU time of a process, and of an item: one that takes longer while it is watched is no judge."""


@dataclass(frozen=True)
class Item:
    """A pytest item that passes on the source as it is, or shows known defects only; `seconds` of CPU time, `lines` by path, `launched` digests of variants."""

    id: str
    seconds: float
    lines: Mapping[str, frozenset[int]]
    launched: frozenset[str]


class Reach:
    """The items of a target, with what each of them uses.

    Args:
        imported: lines that run when the target is imported, by path.
        variants: of kernels, by digest.
        examples: how many each property had.
    """

    def __init__(
        self,
        found: Sequence[Item],
        imported: Mapping[str, frozenset[int]],
        variants: Mapping[str, Specialisation],
        root: Path,
        examples: int,
    ) -> None:
        self.items, self._imported, self.variants, self._root = found, imported, variants, root
        self.examples = examples
        self._kernels = {
            digest: {
                (str(Path(file).relative_to(root)), line) for file, line in one.places if _is_in(file, root)
            }
            for digest, one in variants.items()
        }
        self._dependents = dict[str, frozenset[str]]()

    def reaching(self, mutant: Mutant) -> list[Item]:
        """The items that may notice a mutant, cheapest first."""
        variants = self._of(mutant) if mutant.edit.kernel else set[str]()
        found = [item for item in self.items if self._reaches(item, mutant, variants)]
        return sorted(found, key=lambda one: one.seconds)

    def specialisations(self, mutant: Mutant) -> list[Specialisation]:
        """The variants of kernels that a mutant of a kernel is part of."""
        return [self.variants[digest] for digest in sorted(self._of(mutant))]

    def _of(self, mutant: Mutant) -> set[str]:
        first, last = mutant.edit.lines
        found, others = set[str](), set[str]()
        for digest, places in self._kernels.items():
            lines = {line for path, line in places if path == mutant.path}
            (found if any(first <= line <= last for line in lines) else others).update(
                [digest] if lines else ()
            )
        # Operations that are equal to earlier ones are merged with them: then the IR names no line of the function.
        return found or others

    def _reaches(self, item: Item, mutant: Mutant, variants: set[str]) -> bool:
        span, path = mutant.edit.lines, mutant.path
        if mutant.edit.kernel:
            return not item.launched.isdisjoint(variants)
        lines = range(span[0], span[1] + 1)
        if not item.lines.get(path, frozenset()).isdisjoint(lines):
            return True
        if span != IMPORT and self._imported.get(path, frozenset()).isdisjoint(lines):
            return False
        # A test that executes no line reads what the import has made.
        if item.launched or not item.lines:
            return True
        users = self._users(path)
        return any(module_of(used) in users for used in item.lines)

    def _users(self, path: str) -> frozenset[str]:
        if path not in self._dependents:
            files = files_of(self._root, path.partition("/")[0])
            self._dependents[path] = frozenset(dependents(module_of(path), files))
        return self._dependents[path]


def _is_in(file: str, root: Path) -> bool:
    return Path(file).is_relative_to(root)


def recorded(target: Target, examples: int, workers: int, folder: Path, say: Callable[[str], None]) -> Reach:
    """The reach of a target's items, from the folder if it has been recorded before.

    Raises:
        ValueError: no item passes.
    """
    file, digest = folder / f"reach-{target.package}.json", target.digest
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if known.get("digest") != digest:
        say(f"{target.package}: recording which items reach which lines")
        known = {"digest": digest, "examples": examples} | _Recording(target, examples, workers).run()
        write_text(file, json.dumps(known))
    found = [
        Item(item["item"], item["seconds"], _sets(item["lines"]), frozenset(item["launched"]))
        for item in known["items"]
    ]
    if not found:
        raise ValueError(f"{target.package} = no item passes, but should have some that judge it [mutants]")
    variants = {one.digest: one for one in map(unpacked, known["variants"])}
    return Reach(found, _sets(known["imported"]), variants, target.root, known["examples"])


def _sets(lines: Mapping[str, Sequence[int]]) -> dict[str, frozenset[int]]:
    return {path: frozenset(numbers) for path, numbers in lines.items()}


class _Recording:
    def __init__(self, target: Target, examples: int, workers: int) -> None:
        self._target, self._examples, self._workers = target, examples, workers

    def run(self) -> dict[str, Any]:
        found, variants, imported = list[dict[str, Any]](), dict[str, str](), dict[str, set[int]]()
        chunks = self._chunks()
        while chunks:
            works, chunks = chunks, []
            for ended in Processes[tuple[str, ...]](self._workers, self._record).run(
                (work, _SECONDS) for work in works
            ):
                for message in ended.messages:
                    for path, lines in message.pop("imported", {}).items():
                        imported.setdefault(path, set()).update(lines)
                    variants.update(message.pop("new", {}))
                    if _judges(message, self._target):
                        found.append(
                            {name: message[name] for name in ("item", "seconds", "lines", "launched")}
                        )
                # What ended the process was the item after the last one that was seen.
                rest = ended.work[sum("item" in message for message in ended.messages) + 1 :]
                chunks += [rest] if ended.how and rest else []
        lines = {path: sorted(numbers) for path, numbers in imported.items()}
        return {"items": found, "variants": list(variants.values()), "imported": lines}

    def _chunks(self) -> list[tuple[str, ...]]:
        files = dict[str, list[str]]()
        for item in self._collected():
            files.setdefault(item.partition("::")[0], []).append(item)
        return [
            tuple(inside[start : start + _TOGETHER])
            for inside in files.values()
            for start in range(0, len(inside), _TOGETHER)
        ]

    def _collected(self) -> list[str]:
        def collect(_: None, report: Report) -> None:
            plugin = items.Collected(self._examples, report.send)
            arguments = [*self._target.judges, *self._target.options, "--collect-only"]
            items.run(arguments, plugin, report.scratch)

        [ended] = Processes[None](1, collect).run(iter([(None, _SECONDS)]))
        return [message["item"] for message in ended.messages]

    def _record(self, chunk: tuple[str, ...], report: Report) -> None:
        target = self._target
        files = {str(target.root / path): path for path in target.all_paths}
        by_line = {str(target.root / path) for path in target.by_line}
        lines = ExecutedLines(files, by_line, str(FOLDER / target.without) + "/" if target.without else "")
        # So that lines of the import are seen, too.
        forget(set().union(*(users(target, path) for path in target.paths)))
        variants = Variants() if target.watched else None
        if variants is not None:
            variants.start()
        first = True

        def around() -> Any:
            nonlocal first
            if first:
                report.send(imported=lines.take()[0])
                first = False
            report.allow(_ITEM_SECONDS)
            return watching(lines, variants)

        lines.start()
        items.run(chosen(target, chunk), items.Timed(self._examples, around, report.send), report.scratch)


def _judges(message: Mapping[str, Any], target: Target) -> bool:
    """Whether an item passes, and uses the target and nothing that it must not; a test of the target may only read its names."""
    if not message.get("passed") or message["other"]:
        return False
    executes = bool(message["lines"] or message["launched"])
    return executes or message["item"].startswith((f"{UNIT}/{target.package}/", f"{TESTS}/{target.package}/"))


def users(target: Target, path: str) -> set[str]:
    """The modules to import again with another text of a file: those that this process has of it and of what imports it."""
    files = files_of(target.root, target.package) | imported_files()
    return dependents(module_of(path), files)


def chosen(target: Target, ids: Sequence[str]) -> list[str]:
    """pytest's arguments for some items only."""
    return [*target.options, *(str(target.home / one) for one in ids)]
