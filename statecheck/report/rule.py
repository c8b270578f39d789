"""The rule that a failing case broke, and where it stands."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass

from statecheck.case import Case
from statecheck.case.cause import cause_of
from statecheck.expectations.symbols import MANIFEST, Symbol

_BETTER_SAID_BY = dict.fromkeys(
    ("align/decisions.after_v1_steps", "align/decisions.after_v2_steps"), "align/decisions.after_step"
)
"""Rules that only say for which rows another one decides."""
_SOURCE = re.compile(r"\bSource:\s+(.*?)\.?\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """A rule in a sentence or two, and its place in the documents or the contract."""

    words: str
    source: str


def rule_of(case: Case) -> Rule | None:
    """The rule of the call that went wrong first; None where there is none, or it has no words."""
    cause = cause_of(case)
    symbol = _symbol(cause.function)
    if symbol is None or "." not in symbol.oracle:
        return None
    text = _docstring(symbol.oracle)
    words = _docstring(_BETTER_SAID_BY.get(symbol.oracle, symbol.oracle)).partition("\n\n")[0]
    words = " ".join(words.partition("Source:")[0].split())
    source = _SOURCE.search(text)
    named = " ".join(source[1].split()) if source is not None else _place_of(symbol)
    named += f"; PROTOCOL.md, `{cause.own}`" if cause.own else ""
    return Rule(words, named) if words else None


def _symbol(function: str) -> Symbol | None:
    """The documented symbol of that name, or the one that stands for it, such as a base class's method."""
    plain = function.removesuffix(".fget")
    exact = (symbol for symbol in MANIFEST if symbol.name == plain)
    return next(exact, None) or next((one for one in MANIFEST if plain in one.functions), None)


def _place_of(symbol: Symbol) -> str:
    document = symbol.document if symbol.document.startswith("contract") else f"document {symbol.document}"
    return f"{document}, `{symbol.name}`"


def _docstring(rule: str) -> str:
    topic, _, name = rule.partition(".")
    found = getattr(importlib.import_module(f"oracle.{topic.replace('/', '.')}"), name)
    # A constant has the docstring of its type.
    return (inspect.getdoc(found) or "") if inspect.isroutine(found) or inspect.isclass(found) else ""
