"""What the generated tables of symbols and properties are made from."""

from __future__ import annotations

import pytest

from lab.docs import citations
from lab.docs.deciding import decided_by
from lab.docs.symbols import MANIFEST, Symbol
from statecheck.execution.registry import found, load_properties
from statecheck.reference import rule_for


def test_every_symbol_stands_in_the_manifest_once() -> None:
    names = [symbol.name for symbol in MANIFEST]
    assert len(names) == len(set(names))


def test_the_rule_of_a_symbol_is_the_rule_that_answers_its_calls() -> None:
    rules = {symbol.name: rule_for(symbol.name) for symbol in MANIFEST}
    named = {name: f"{rule.__module__}.{rule.__name__}" for name, rule in rules.items() if rule is not None}
    assert len(named) > 40
    listed = {symbol.name: f"oracle.{symbol.oracle}".replace("/", ".") for symbol in MANIFEST}
    assert named.items() <= listed.items()


def test_every_documented_symbol_is_named_where_its_rule_is() -> None:
    known, documented = citations.rules(), [symbol for symbol in MANIFEST if symbol.document != "own"]
    assert [one.name for one in documented if not citations.names(known[_label(one)], one.name)] == []


def _label(symbol: Symbol) -> str:
    return symbol.document if "contract" in symbol.document else f"document {symbol.document}"


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        ("builder/no-stale-step", "rule"),
        ("builder/partition", "condition"),
        ("lifecycle/v1-provenance", "condition"),
        ("builder/padding-rows", "law"),
        ("history/same-bytes", "rule and law"),
    ],
)
def test_what_decides_is_read_from_the_body(name: str, checks: str) -> None:
    load_properties()
    assert decided_by(found(name)) == checks
