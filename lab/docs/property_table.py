"""Every property by its id: the table in docs/properties.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab.docs.deciding import decided_by
from statecheck.execution.registry import Property
from statecheck.util import markdown
from statecheck.util.markdown import code, escaped

_MOST_FUNCTIONS = 3
_LONGEST = 400


def table(properties: Mapping[str, Property]) -> str:
    """A row for each property, in the order of ids, so that those of a topic stand together."""
    rows = []
    for tested in sorted(properties.values(), key=lambda tested: tested.id):
        file = f"{tested.module.replace('.', '/')}.py"
        functions, link = ", ".join(_functions(tested)), f"[{file}](../{file})"
        rows.append(
            (
                code(tested.id),
                escaped(tested.sentence, _LONGEST),
                tested.kind,
                decided_by(tested),
                functions,
                link,
            )
        )
    return "\n".join(markdown.table(("id", "should hold", "kind", "decided by", "functions", "file"), rows))


def _functions(tested: Property) -> Iterator[str]:
    """Documented functions that it calls, the first ones of many."""
    documented = [name for name in tested.functions if not name.startswith("harness.")]
    yield from map(code, documented[:_MOST_FUNCTIONS])
    if len(documented) > _MOST_FUNCTIONS:
        yield f"{len(documented) - _MOST_FUNCTIONS} more"
