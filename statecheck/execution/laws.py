"""A law with a table of configurations: each row is a property, and all of them have one body.

    CONFIGURATIONS = (
        Configuration("toys/small", toys(most=3), (FULL,), "where the box has room for three"),
        Configuration("toys/large", toys(most=9), (), "where the box has room for nine"),
    )

    @law("agreement", "Box.put", CONFIGURATIONS)
    def toys_stay_in_the_box(trial, story):
        "Toys stay in the box."
        trial.agrees(*story.steps())

pytest collects `test_toys_stay_in_the_box[small]` and `test_toys_stay_in_the_box[large]`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis.strategies import SearchStrategy

from statecheck.execution.registry import Property, put_at, remember, sentence_of
from statecheck.execution.statements import named_body

_Body = TypeVar("_Body", bound=Callable[..., None])


@dataclass(frozen=True)
class Configuration:
    """A row of a law's table.

    `id`: of the property that the law is in this configuration. `story`: draws its scenarios. `situations`: what the configuration is
    for, by the names under which it is counted how many scenarios came to it; a few hundred scenarios come to each. `reason`: how the
    configuration differs from others.
    """

    id: str
    story: SearchStrategy[Any]
    situations: tuple[str, ...]
    reason: str


def law(
    kind: str,
    function: str,
    configurations: Sequence[Configuration],
    *,
    device: str | None = None,
    held: bool = False,
) -> Callable[[_Body], _Body]:
    """Register a property for each configuration, in the module of the decorated body, `body(trial, story)`.

    Args:
        held: the situations are operations on sequences, all of which a scenario has to come to; see `Property.held`.

    Raises:
        ValueError: as `remember`.
    """

    def register(body: _Body) -> _Body:
        sentence, module, code = sentence_of(body).rstrip("."), body.__module__, body.__code__
        for row in configurations:
            word = row.id.rpartition("/")[2]
            named = named_body(f"{body.__name__}_{word.replace('-', '_')}", body, {})
            put_at(named, code.co_filename, code.co_firstlineno)
            named.__doc__ = f"{sentence}, {row.reason}."
            new = Property(
                row.id,
                named.__doc__,
                kind,
                (function,),
                named,
                {"story": row.story},
                module,
                device,
                held=row.situations if held else (),
            )
            vars(sys.modules[module])[f"test_{body.__name__}[{word}]"] = remember(new)
        return body

    return register
