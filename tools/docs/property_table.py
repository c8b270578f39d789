"""Every property by its id: the table in docs/properties.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from statecheck.execution.registry import Property
from statecheck.text.markdown import code, escaped
from tools.docs.deciding import decided_by

_MOST_FUNCTIONS = 3
_LONGEST = 400


def table(tested: Mapping[str, Property]) -> str:
    """A row for each property, in the order of ids, so that those of a topic stand together."""
    rows = ["| id | should hold | kind | decided by | functions | file |", "|---|---|---|---|---|---|"]
    for one in sorted(tested.values(), key=lambda one: one.id):
        file = f"{one.module.replace('.', '/')}.py"
        cells = (
            code(one.id),
            _said(one),
            one.kind,
            decided_by(one),
            ", ".join(_functions(one)),
            f"[{file}](../{file})",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _said(one: Property) -> str:
    """The statement that its name is, and what its sentence says besides."""
    words = one.name.replace("_", " ")
    return escaped(words if one.sentence == words else f"{words}. {one.sentence}", _LONGEST)


def _functions(one: Property) -> Iterator[str]:
    """Documented functions that it calls, the first ones of many."""
    documented = [name for name in one.functions if not name.startswith("harness.")]
    yield from map(code, documented[:_MOST_FUNCTIONS])
    if len(documented) > _MOST_FUNCTIONS:
        yield f"{len(documented) - _MOST_FUNCTIONS} more"
