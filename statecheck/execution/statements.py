"""Properties that differ only in what they draw and call: each is a row of `statements`, and all of them have one body.

    @statements(
        statement("cdiv/sign", "agreement", ["cdiv"], x=st.integers(), steps=by_two, says="ceilings are rounded up"),
        statement("divide/exact", "agreement", ["divide"], x=st.integers(), steps=halved, says="halves are exact"),
    )
    def agree(trial, x, steps):
        trial.agrees(*steps(x))

A row is a property like any other: pytest collects `test_ceilings_are_rounded_up` at the line of its row.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis.strategies import SearchStrategy

from statecheck.execution.example import Trial
from statecheck.execution.registry import Property, put_at, remember

_TRIAL = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Body = TypeVar("_Body", bound=Callable[..., None])


@dataclass(frozen=True)
class Statement:
    """A property without its body. `given` are the body's arguments: strategies to draw from, and values that stay."""

    id: str
    kind: str
    functions: tuple[str, ...]
    name: str
    sentence: str
    device: str | None
    given: dict[str, Any]
    file: str
    line: int

    @property
    def strategies(self) -> dict[str, SearchStrategy[Any]]:
        return {name: one for name, one in self.given.items() if isinstance(one, SearchStrategy)}

    @property
    def fixed(self) -> dict[str, Any]:
        return {name: one for name, one in self.given.items() if not isinstance(one, SearchStrategy)}


def statement(
    id_: str,
    kind: str,
    functions: Sequence[str],
    *,
    says: str,
    sentence: str = "",
    device: str | None = None,
    **given: Any,
) -> Statement:
    """A row of `statements`; the other arguments are those of `prop`.

    Args:
        says: the statement that the property's name is.
        sentence: what it says in more words, as a test's docstring does.
        given: the body's arguments but `trial`; what is no strategy is handed over as it is.
    """
    name, place = "_".join(re.findall(r"[a-z0-9]+", says.lower())), sys._getframe(1)
    file, line = place.f_code.co_filename, place.f_lineno
    return Statement(id_, kind, tuple(functions), name, sentence or says, device, given, file, line)


def statements(*rows: Statement) -> Callable[[_Body], _Body]:
    """Register a property for each row, in the module of the decorated body, `body(trial, **given)`.

    Raises:
        ValueError: as `remember`.
    """

    def register(body: _Body) -> _Body:
        for one in rows:
            module, own = body.__module__, _body_of(one, body)
            new = Property(
                one.name,
                one.sentence,
                one.kind,
                one.functions,
                own,
                one.strategies,
                module,
                one.device,
                one.id,
            )
            vars(sys.modules[module])[own.__name__] = remember(new)
        return body

    return register


def _body_of(one: Statement, shared: Callable[..., None]) -> Callable[..., None]:
    def body(trial: Trial, **drawn: Any) -> None:
        shared(trial, **drawn, **one.fixed)

    body.__name__ = body.__qualname__ = f"test_{one.name}"
    body.__doc__, body.__module__ = one.sentence, shared.__module__
    put_at(body, one.file, one.line)
    # Hypothesis keeps examples by a test's source, which is one for all rows, and by its signature.
    drawn = inspect.Parameter(one.name, inspect.Parameter.VAR_KEYWORD)
    body.__signature__ = inspect.Signature([_TRIAL, drawn])  # type: ignore[attr-defined]
    return body
