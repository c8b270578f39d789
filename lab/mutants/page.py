"""The results as a page: score by file and operator, and each survivor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lab.mutants.mutant import Mutant, Source, difference
from lab.mutants.plan import MutantPlan, possible, valid
from lab.mutants.results import (
    CRASH,
    EQUIVALENT,
    KILLED,
    MEMORY,
    TIMEOUT,
    UNREACHED,
    MutantResult,
    Results,
)
from statecheck.report.render import report_page
from statecheck.util.files import write_text
from statecheck.util.markdown import code, fenced, table

PAGE, TEXT = "mutants.html", "mutants.md"
_COLUMNS = ("possible", "judged", EQUIVALENT, KILLED, TIMEOUT, MEMORY, CRASH, "explained", "survived")


@dataclass(frozen=True)
class Judged:
    """All mutants of a plan's targets, what became of those that are judged, and why survivors are equivalent."""

    mutants: Sequence[Mutant]
    results: Mapping[str, MutantResult]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def survivors(self) -> list[Mutant]:
        """Those without a reason."""
        return [mutant for mutant in self.mutants if self._column(mutant) == "survived"]

    @cached_property
    def ids(self) -> dict[str, set[str]]:
        """The ids of all mutants of each file."""
        found = dict[str, set[str]]()
        for mutant in self.mutants:
            found.setdefault(mutant.path, set()).add(mutant.id)
        return found

    def counts(self, group: Callable[[Mutant], str]) -> dict[str, Counter[str]]:
        """The columns of each group's row."""
        rows = dict[str, Counter[str]]()
        for mutant in self.mutants:
            row = rows.setdefault(group(mutant), Counter())
            row["possible"] += 1
            column = self._column(mutant)
            if column:
                row.update(("judged", column))
        return rows

    def _column(self, mutant: Mutant) -> str:
        result = self.results.get(mutant.id)
        if result is None:
            return ""
        if result.survives:
            return "explained" if mutant.id in self.reasons else "survived"
        return result.status


def judged(plan: MutantPlan, results: Results, reasons: Mapping[str, str]) -> Judged:
    """What is known of a plan's targets."""
    mutants = [mutant for target in plan.targets for mutant in possible(target)]
    known = {key: one for target in plan.targets for key, one in valid(target, results).items()}
    return Judged(mutants, known, reasons)


def write_page(plan: MutantPlan, found: Judged) -> None:
    """Write the page, and its text, into the plan's folder."""
    sources = {path: target.content(path) for target in plan.targets for path in target.paths}
    text = "\n".join(_lines(found, {path: Source(content) for path, content in sources.items()}))
    write_text(plan.folder / TEXT, text + "\n")
    write_text(plan.folder / PAGE, report_page(text))


def summary(found: Judged) -> list[str]:
    """A line for each package."""
    lines = []
    for package, row in found.counts(lambda one: one.path.partition("/")[0]).items():
        parts = [f"{row[name]:,} {name}" for name in _COLUMNS if row[name]]
        lines.append(f"{package}: {', '.join(parts)}; {_score(row)} killed of those that can be")
    return lines


def _score(row: Counter[str]) -> str:
    killed = sum(row[name] for name in (KILLED, TIMEOUT, MEMORY, CRASH))
    alive = killed + row["survived"]
    return f"{100 * killed / alive:.1f} %" if alive else "none"


def _lines(found: Judged, sources: Mapping[str, Source]) -> Iterator[str]:
    yield "# Mutants"
    yield ""
    yield from (f"- {line}" for line in summary(found))
    for title, group in (("file", lambda one: one.path), ("operator", lambda one: one.operator)):
        yield from ("", f"## By {title}", "")
        yield from _table(title, found.counts(group))
    yield from ("", "## Survivors", "")
    if not found.survivors:
        yield "None."
    for survivor in found.survivors:
        result = found.results[survivor.id]
        ran = (
            result.why
            if result.status == UNREACHED
            else f"{result.ran} items, {result.examples} examples each"
        )
        yield f"### {survivor.path}:{survivor.line} {survivor.operator}"
        place = code(survivor.edit.function or survivor.path)
        yield from ("", f"{code(survivor.id)} in {place}: {ran}.", "")
        yield from (fenced(difference(sources[survivor.path], survivor), "diff"), "")


def _table(title: str, rows: Mapping[str, Counter[str]]) -> list[str]:
    cells = (
        [name, *(str(rows[name][column]) for column in _COLUMNS), _score(rows[name])] for name in sorted(rows)
    )
    return table((title, *_COLUMNS, "score"), cells, numbers=range(1, len(_COLUMNS) + 2))
