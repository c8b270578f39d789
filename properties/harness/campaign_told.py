"""What a campaign tells at its end: failures, those of one kind together, and known defects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from properties.harness.campaign_rows import Row, Status
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.known_defects import Defect

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Falsified properties that show the same thing: `rule` says what, without anything of a single input."""

    rule: str
    rows: tuple[Row, ...]


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Falsified properties by what their reports show: the call, and what is wrong with its outcome."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(_kind(row), []).append(row)
    return [Group(kind[-1], tuple(members)) for kind, members in found.items()]


def _kind(row: Row) -> tuple[str, ...]:
    path = Path(row.report) / "case.json"
    if not row.report or not path.is_file():
        return (row.property_name, row.detail)
    case = Case.load(path)
    bucket = bucket_of(case)
    return (case.calls[-1].function if case.calls else "", bucket.fault, bucket.rule)


def tell_failures(tell: Tell, rows: Mapping[str, Row]) -> None:
    """Every failure with its report, and why properties do not apply."""
    for group in grouped(row for row in rows.values() if row.status is Status.FALSIFIED):
        _tell_group(tell, group)
    for row in rows.values():
        if row.status in (Status.ERROR, Status.UNEXPECTED_PASS):
            _tell_row(tell, row)
    for reason, names in _not_applicable(rows).items():
        tell(f"not applicable: {', '.join(names)}: {reason}")


def _not_applicable(rows: Mapping[str, Row]) -> dict[str, list[str]]:
    """The properties that do not apply, by the reason."""
    found: dict[str, list[str]] = {}
    for row in rows.values():
        if row.status is Status.NOT_APPLICABLE:
            found.setdefault(row.detail, []).append(row.property_name)
    return found


def _tell_group(tell: Tell, group: Group) -> None:
    first, *others = group.rows
    _tell_row(tell, first)
    if others:
        tell(f"  {len(others)} more show the same: {group.rule}")
    for row in others:
        tell(f"    {row.property_name}: {row.report}/report.md")


def _tell_row(tell: Tell, row: Row) -> None:
    tell(f"\n{row.status.value}: {row.property_name}\n  {row.detail}")
    if row.report:
        tell(f"  report: {row.report}/report.md")


def known_table(defects: Iterable[Defect]) -> Table | None:
    """A row for each known defect: whether it showed, and in how many examples; None without any."""
    table = Table(show_edge=False, pad_edge=False)
    table.add_column("known defect", overflow="fold")
    table.add_column("", no_wrap=True)
    for column in ("examples", "properties"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("title", overflow="fold", ratio=1)
    for one in defects:
        standing = f"[bold red]{one.standing}[/]" if one.stale else one.standing
        numbers = (f"{one.examples:,}", f"{len(one.properties)}")
        table.add_row(escape(one.name), standing, *numbers, escape(one.declared.title))
    return table if table.row_count else None


def tell_known(tell: Tell, defects: Iterable[Defect]) -> None:
    """Where each known defect is told of, the properties that it showed in, and its report."""
    for one in (one for one in defects if one.standing != "not tried"):
        tell(f"\nknown defect {one.name}: {one.standing}\n  {one.declared.link}")
        if one.properties:
            tell(f"  in {', '.join(sorted(one.properties))}")
        if one.remark:
            tell(f"  {one.remark}")
        if one.report:
            tell(f"  report: {one.report}/report.md")
