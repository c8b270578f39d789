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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hypothesis.strategies import SearchStrategy

from statecheck.execution.example import Example
from statecheck.execution.registry import Property, put_at, remember

_TRIAL = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Body = TypeVar("_Body", bound=Callable[..., None])


Statement = Callable[[Callable[..., None]], Property]
"""Makes a row's property of the body that all rows have."""


def statement(
    id_: str,
    kind: str,
    functions: Sequence[str],
    *,
    says: str,
    sentence: str = "",
    device: str | None = None,
    written: Iterable[Mapping[str, Any]] = (),
    **given: Any,
) -> Statement:
    """A row of `statements`; the other arguments are those of `prop`.

    Args:
        says: the statement that the property's name is.
        sentence: what it says in more words, as a test's docstring does.
        written: of each written example what is drawn for others.
        given: the body's arguments but `trial`; what is no strategy is handed over as it is.
    """
    name, place = "_".join(re.findall(r"[a-z0-9]+", says.lower())), sys._getframe(1)
    file, line = place.f_code.co_filename, place.f_lineno
    strategies = {argument: one for argument, one in given.items() if isinstance(one, SearchStrategy)}
    fixed = {argument: one for argument, one in given.items() if argument not in strategies}

    def made(shared: Callable[..., None]) -> Property:
        body = named_body(name, shared, fixed)
        body.__doc__ = sentence or says
        put_at(body, file, line)
        about = (f"{says[0].upper()}{says[1:]}.", kind, tuple(functions))
        return Property(id_, *about, body, strategies, shared.__module__, device, written=tuple(written))

    return made


def named_body(name: str, shared: Callable[..., None], fixed: Mapping[str, Any]) -> Callable[..., None]:
    """The body of a row: the one that all rows have, under a name of its own."""

    def body(trial: Example, **drawn: Any) -> None:
        shared(trial, **drawn, **fixed)

    body.__name__ = body.__qualname__ = f"test_{name}"
    body.__module__ = shared.__module__
    # Hypothesis keeps examples by a test's source, which is one for all rows, and by its signature.
    drawn = inspect.Parameter(name, inspect.Parameter.VAR_KEYWORD)
    body.__signature__ = inspect.Signature([_TRIAL, drawn])  # type: ignore[attr-defined]
    return body


def statements(*rows: Statement) -> Callable[[_Body], _Body]:
    """Register a property for each row, in the module of the decorated body, `body(trial, **given)`.

    Raises:
        ValueError: as `remember`.
    """

    def register(body: _Body) -> _Body:
        for row in rows:
            new = row(body)
            vars(sys.modules[body.__module__])[new.body.__name__] = remember(new)
        return body

    return register
