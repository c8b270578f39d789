"""The timeline of a scenario in a release's own engine: what its scheduler decided in each step, and what blocks held; and its tables in Markdown.

A case that begins with an engine has all of it in what the engine's steps returned, so that nothing needs to be run for it. A step that does not say what
its blocks or slots hold has tables of those that requests own, and of those that may be hit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from statecheck.case import Case
from statecheck.case.timeline import Cell, Moment, TableRow, Timeline, WrongCell
from statecheck.case.values import Call, Outcome, Raised, Record, Returned
from statecheck.subject.subject import is_engine
from statecheck.util.markdown import escaped, table

_BROKEN = "result.broken."
"""Where a step reports the laws that it breaks."""
MOST_MOMENTS = 18
"""Of a report."""
CACHE = "cache"
"""In place of a request, for blocks of the prefix cache that no request has."""
_READS = ("computed", "tokens", "attention", "metadata", "read", "written", "output")
"""Laws that the forward breaks; the others are about what stands after a step."""

Place = tuple[int, int]
"""A group, and a block."""
Tables = dict[tuple[str, int], dict[int, int]]
"""By request and group, the block of each column."""
Found = tuple[str, int, tuple[int, ...]]
"""A state as the laws name it: its request, how many of its tokens it is after, and then which others."""
Founds = tuple[Found, ...]


def timeline_of(case: Case) -> Timeline | None:
    """The block tables of a case over time: those that it was recorded with, or those of the engine whose scenario it is."""
    made = case.calls[0].function if case.calls else ""
    step = f"{made}.step"
    if case.timeline is not None or not (
        is_engine(made) and any(call.function == step for call in case.calls)
    ):
        return case.timeline
    try:
        return _ScenarioStory(case, step).timeline()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # Another subject's engine may return anything.
        return None


def broken_law(case: Case) -> str:
    """The law of a whole engine, or of a library of sequences, that the case breaks, "" where it is about none."""
    part = case.failure.part if case.failure is not None else ""
    return part.removeprefix(_BROKEN) if part.startswith(_BROKEN) else ""


@dataclass
class _ScenarioStory:
    """Follows the calls of a case."""

    case: Case
    step: str
    """The function that takes a step."""
    begun: set[str] = field(default_factory=set)
    """Requests that have run before."""
    moments: list[Moment] = field(default_factory=list)
    finding: WrongCell | None = None
    held: dict[Place, Founds] = field(default_factory=dict)
    """What each block held after the step before, as far as it is known."""
    tables: Tables = field(default_factory=dict)
    published: dict[Place, tuple[str, int]] = field(default_factory=dict)
    since: list[str] = field(default_factory=list)
    """What has happened since the step before."""
    steps: int = 0

    def timeline(self) -> Timeline:
        self.since.append(engine(self.case.calls[0].named["settings"]))
        for call, outcome in zip(self.case.calls, self.case.actual, strict=True):
            self._called(call, outcome)
        return self._last(MOST_MOMENTS)

    def _last(self, most: int) -> Timeline:
        skipped = max(0, len(self.moments) - most)
        found = self.finding and replace(self.finding, moment=self.finding.moment - skipped)
        kept = self.moments[skipped:]
        if skipped:
            kept[0] = replace(kept[0], title=f"{skipped} moments before are left out. {kept[0].title}")
        return Timeline(tuple(kept), found)

    def _called(self, call: Call, outcome: Outcome) -> None:
        if call.function != self.step:
            self.since += happened(call)
        elif isinstance(outcome, Returned):
            assert isinstance(outcome.value, Record)
            seen = dict(outcome.value.fields)
            unsaid = dict.fromkeys(("tables", "accesses", "held", "preempted"), ())
            self._step(unsaid | {"owners": seen.get("owners_after", ())} | seen)
        if isinstance(outcome, Raised):
            where = f"step {self.steps}" if call.function == self.step else call.function
            raised = f"{where} raises {outcome.exception}: {outcome.message}"
            self.moments.append(Moment("; ".join((*self.since, raised)), ()))

    def _step(self, step: Mapping[str, Any]) -> None:
        # Several laws may be broken at once; the case is about one of them.
        findings = sorted(step["findings"], key=lambda finding: finding[0] != broken_law(self.case))
        law, seen, wanted, about = next(iter(findings), ("", "", "", {}))
        wrong = _Wrong(law, f"{seen}, but {wanted}", dict(about)) if law else None
        if step["scheduled"] or step["preempted"]:
            self._forward(step, wrong if law in _READS else None)
        self._after(step, wrong if law not in _READS else None)
        self.steps += 1

    def _forward(self, step: Mapping[str, Any], wrong: _Wrong | None) -> None:
        tables = _tables(step["tables"])
        known = {place: ((*state, ()),) for place, state in self.published.items()} | self.held
        words = decided(step, self.tables, tables, self.begun)
        rows = [
            self._used(name, group, table, known, step["accesses"])
            for (name, group), table in tables.items()
            if name in step["scheduled"]
        ]
        self._keep("the forward", words, rows, wrong)
        self.tables = tables or self.tables

    def _used(
        self, name: str, group: int, table: Mapping[int, int], known: Mapping[Place, Founds], accesses: Any
    ) -> TableRow:
        """A row of the forward: what it reads, and what stood in its other blocks before."""
        column_of = {block: column for column, block in table.items()}
        before = self.tables.get((name, group), {})
        reads: tuple[int, ...] = ()
        writes: tuple[int, ...] = ()
        run, found = None, ()
        for of, number, read, running, written, stood in accesses:
            if (of, number) == (name, group):
                reads = tuple(column_of[block] for block in read if block in column_of)
                writes = tuple(column_of[block] for block in written if block in column_of)
                run, found = column_of.get(running), tuple(stood)
        # Of the columns that are read, the temporal state's comes first; pages of attention are read in their order.
        looked = (reads[-1] if group == 0 else reads[0]) if reads else None
        cells = []
        for column in range(max(table, default=-1) + 1):
            block = table.get(column, 0)
            stood = found if column == looked and found else known.get((group, block), ())
            new = block and before.get(column) != block and not stood
            cells.append(self._cell(group, block, stood, "new" if new else ""))
        return TableRow(name, group, run, tuple(cells), reads, writes)

    def _after(self, step: Mapping[str, Any], wrong: _Wrong | None) -> None:
        tables = _tables(step["owners"])
        held = {
            (group, block): tuple(map(tuple, founds))
            for (_, group, _, block), founds in zip(step["owners"], step["held"], strict=False)
        }
        published = {(group, block): (name, count) for group, block, name, count in step["published"]}
        words = added(step, self.tables, tables)
        words += published_now(self.published, published)
        self.held, self.published = held, published
        rows = [
            TableRow(name, group, None, tuple(self._cells(group, table)))
            for (name, group), table in tables.items()
        ]
        owned = {(group, block) for (_, group), table in tables.items() for block in table.values()}
        rows += self._cached(published.keys() - owned)
        self._keep("after it", words, rows, wrong)
        self.tables = tables

    def _cells(self, group: int, table: Mapping[int, int]) -> Iterator[Cell]:
        for column in range(max(table, default=-1) + 1):
            block = table.get(column, 0)
            yield self._cell(group, block, self.held.get((group, block), ()))

    def _cached(self, places: set[Place]) -> Iterator[TableRow]:
        blocks: dict[int, list[int]] = defaultdict(list)
        for group, block in sorted(places):
            blocks[group].append(block)
        for group, found in blocks.items():
            stood = [((*self.published[group, block], ()),) for block in found]
            cells = (self._cell(group, block, state) for block, state in zip(found, stood, strict=True))
            yield TableRow(CACHE, group, None, tuple(cells))

    def _cell(self, group: int, block: int, found: Founds, otherwise: str = "") -> Cell:
        if not block:
            return Cell(0, "")
        cell = _holding(Cell(block, "", published=(group, block) in self.published), found)
        return replace(cell, holds=cell.holds or otherwise)

    def _keep(self, which: str, words: list[str], rows: list[TableRow], wrong: _Wrong | None) -> None:
        title = f"step {self.steps}, {which}: {'; '.join((*self.since, *words)) or 'nothing'}"
        self.since = []
        if wrong is not None:
            rows = self._marked(rows, wrong)
            if self.finding is None:
                title += f" ✗ {wrong.text}"
        self.moments.append(Moment(title, tuple(rows)))

    def _marked(self, rows: list[TableRow], wrong: _Wrong) -> list[TableRow]:
        """The rows with the cell that is wrong; and the finding, where there is such a cell."""
        place = _place(rows, wrong.about)
        if place is None:
            return rows
        number, column = place
        row = rows[number]
        cell = replace(row.cells[column], wrong="block" in wrong.about)
        if "found" in wrong.about:
            cell = self._expected(cell, wrong.about)
        cells = (*row.cells[:column], cell, *row.cells[column + 1 :])
        self.finding = WrongCell(len(self.moments), row.request, row.group, column, wrong.text)
        return [*rows[:number], replace(row, cells=cells), *rows[number + 1 :]]

    def _expected(self, cell: Cell, about: Mapping[str, Any]) -> Cell:
        """The cell with what stands there, and what should."""
        request, count, founds = about["request"], about["tokens"], tuple(map(tuple, about["found"]))
        part = ""
        if about["conv"]:
            row, count = wrong_row(founds, request, count)
            founds, part = founds[row : row + 1], f"row {row}: "
        shown = _holding(cell, founds)
        return replace(
            shown, holds=part + shown.holds, expected=f"{tokens(count)} {request}" if count else "zeros"
        )


@dataclass(frozen=True)
class _Wrong:
    """The first law that a step breaks, what breaks it, and what is known of that."""

    law: str
    text: str
    about: dict[str, Any]


def _holding(cell: Cell, founds: Founds) -> Cell:
    """The cell with these states in its block, the owner that of the first."""
    owner, count, _ = founds[0] if founds else ("?", 0, ())
    named = owner not in ("", "?", "@")
    words = " / ".join(map(holds, founds))
    return replace(cell, holds=words, tokens=count if named else None, owner=owner if named else "")


def _tables(owners: Any) -> Tables:
    found: Tables = {}
    for name, group, column, block in owners:
        found.setdefault((name, group), {})[column] = block
    return dict(sorted(found.items(), key=lambda item: (len(item[0][0]), item[0])))


def _place(rows: list[TableRow], about: Mapping[str, Any]) -> tuple[int, int] | None:
    """The number of the row, and the column, of the wrong block: in the request's own table, if it has the block.

    Without a block, where the request runs.
    """
    if "block" not in about:
        ran = ((number, row) for number, row in enumerate(rows) if row.request == about.get("request"))
        return next(((number, row.run) for number, row in ran if row.run is not None), None)
    found = [
        (row.request != about.get("request"), number, column)
        for number, row in enumerate(rows)
        for column, cell in enumerate(row.cells)
        if (row.group, cell.block) == (about["group"], about["block"])
    ]
    return min(found)[1:] if found else None


# What happened, in words.


def tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def holds(found: Found) -> str:
    """A state in a few words, without its owner."""
    owner, count, more = found
    if owner == "?":
        return "no state"
    if owner == "@":
        return "a state of another layer or kind"
    known = tokens(count) if owner else "zeros"
    return f"{known} + {len(more)} other" if more else known


def wrong_row(founds: Founds, request: str, count: int) -> tuple[int, int]:
    """The first conv row that is not its token's, and after how many tokens its state should be; see `KnownStates.window`."""
    wanted = [max(0, count - len(founds) + 1 + at) for at in range(len(founds))]
    for at, (found, right) in enumerate(zip(founds, wanted, strict=True)):
        if found != ((request, right, ()) if right else ("", 0, ())):
            return at, right
    return 0, wanted[0] if wanted else 0


def engine(settings: Record) -> str:
    """What its groups are."""
    # A case has the settings that are not the engine's defaults.
    named = dict(settings.fields)
    kinds = named.get("kinds") or (named.get("kind", "recurrent"),)
    groups = [f"group {number} {kind}" for number, kind in enumerate(kinds, 1)]
    return f"group 0 is attention, {', '.join(groups)}"


def happened(call: Call) -> Iterator[str]:
    """What a call between steps does."""
    named, function = call.named, call.function.partition(".")[2]
    if function == "add_request":
        yield f"{named['id']} comes in with {tokens(len(named['prompt']))}"
    elif function == "abort":
        yield f"{named['id']} is aborted"
    elif function == "reset_prefix_cache":
        yield f"the prefix cache is reset{', and requests that run are preempted' if named['preempt'] else ''}"
    elif function == "update_weights":
        yield f"the model gets other weights{', and what was in memory is lost' if named['sleep'] else ''}"
    elif function == "sleep":
        yield f"the engine sleeps at level {named['level']} and wakes{', all requests are aborted' if named['mode'] == 'abort' else ''}"
    elif function:
        yield function.replace("_", " ")


def decided(step: Mapping[str, Any], before: Tables, tables: Tables, begun: set[str]) -> list[str]:
    """What the scheduler decided; requests that begin are `begun` from then on."""
    words = [f"{name} is preempted" for name in step["preempted"]]
    for name, work in step["scheduled"].items():
        words.append(f"{name} {_work(work, again=name in begun)}")
        begun.add(name)
    return words + _moved(before, tables)


def _work(row: Mapping[str, Any], *, again: bool) -> str:
    own, drafts = row["tokens"] - row["drafts"], row["drafts"]
    work = f"computes {own}" + (f" and {drafts} {'draft' if drafts == 1 else 'drafts'}" if drafts else "")
    if not row["begins"]:
        return work
    hit = f" with a hit of {tokens(row['computed'])}" if row["computed"] else ""
    return f"{'resumes' if again else 'begins'}{hit} and {work}"


def added(step: Mapping[str, Any], before: Tables, tables: Tables) -> list[str]:
    """What came of the step."""
    words = [f"{name} says {tokens(len(said))}" for name, said in step["outputs"].items()]
    words += [f"{name} finishes" for name in step["finished"]]
    words += _moved(before, tables)
    return [*words, f"{step['free']} blocks are free"] if "free" in step else words


def _moved(before: Tables, after: Tables) -> list[str]:
    """Which blocks requests get and lose."""
    words = []
    for name in dict.fromkeys(name for name, _ in (*before, *after)):
        had, has = _blocks(before, name), _blocks(after, name)
        words += [f"{name} gets {_named(has - had)}"] if has - had else []
        words += [f"{name} gives back {_named(had - has)}"] if had - has else []
    return words


def _blocks(tables: Tables, name: str) -> set[int]:
    return {block for (of, _), table in tables.items() if of == name for block in table.values()}


def _named(blocks: set[int]) -> str:
    return f"block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, sorted(blocks)))}"


def published_now(
    before: Mapping[tuple[int, int], tuple[str, int]], now: Mapping[tuple[int, int], tuple[str, int]]
) -> list[str]:
    """Which blocks may be hit now, and which may not be any more."""
    words = [
        f"block {block} may be hit as {tokens(count)} of {name or 'no request'}"
        for (group, block), (name, count) in now.items()
        if before.get((group, block)) != (name, count)
    ]
    gone = {block for _, block in before.keys() - now.keys()}
    return words + ([f"{_named(gone)} may not be hit any more"] if gone else [])


# Tables, one for each moment: a row is the block table of a request and a group; below the table, a line says what is wrong.

LEGEND = (
    "3: what block 3 holds; @: the request runs in this column; R, W: read, written in this step; P: published in the prefix cache; "
    "**✗**: wrong; ( ): what the block should hold; columns that never change are left out of wide tables"
)
_NAME, _CELL, _SENTENCE = 40, 80, 400
"""Characters of what stands in a table and below it."""


def block_tables(timeline: Timeline) -> dict[int, str]:
    """Markdown for each moment that has tables, by the moment's number."""
    moments = enumerate(timeline.moments)
    return {
        number: "\n".join(_table_of(timeline, number, moment)) for number, moment in moments if moment.rows
    }


def _table_of(timeline: Timeline, number: int, moment: Moment) -> Iterator[str]:
    shown = [column for column in timeline.columns if column < max(len(row.cells) for row in moment.rows)]
    yield f"**{escaped(moment.when, _SENTENCE)}**\n"
    rows = ([_row_name(row), *(_cell_text(row, column) for column in shown)] for row in moment.rows)
    yield from table(("", *map(str, shown)), rows)
    sentences = [*_sentences(timeline, number)]
    yield from ("", *(f"- {escaped(sentence, _SENTENCE)}" for sentence in sentences)) if sentences else ()


def _row_name(row: TableRow) -> str:
    return escaped(f"{row.request}, group {row.group}", _NAME)


def _cell_text(row: TableRow, column: int) -> str:
    if column >= len(row.cells):
        return ""
    cell = row.cells[column]
    marks = {"@": column == row.run, "R": column in row.reads, "W": column in row.writes, "P": cell.published}
    words = (
        f"{cell.block}:" if cell.block else "null",
        cell.holds,
        cell.owner,
        f"({cell.expected})" if cell.expected else "",
        "".join(mark for mark, holds in marks.items() if holds),
    )
    text = escaped(" ".join(filter(None, words)), _CELL)
    return f"**✗ {text}**" if cell.wrong else text


def _sentences(timeline: Timeline, number: int) -> Iterator[str]:
    finding = timeline.finding
    if finding is None or finding.moment != number:
        return
    yield f"✗ {finding.request}, group {finding.group}, column {finding.column}: {finding.text}"
