"""The manifest of symbols."""

from __future__ import annotations

from dataclasses import replace

import pytest

from statecheck.execution.registry import load_properties
from statecheck.expectations.symbols import MANIFEST, Symbol
from subjects import Subject, load
from tools.docs import symbols

IMPL = load("impl")


def test_every_symbol_has_its_three_rooms_and_every_public_name_is_a_symbol() -> None:
    assert symbols.complaints(IMPL, load_properties()) == []


def test_every_symbol_stands_in_the_manifest_once() -> None:
    names = [symbol.name for symbol in MANIFEST]
    assert len(names) == len(set(names))


def test_a_symbol_without_a_room_a_property_or_a_row_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "compute_varlen_chunk_metadata"
    known = next(symbol for symbol in MANIFEST if symbol.name == name)

    def complaints(*rows: Symbol) -> set[str]:
        monkeypatch.setattr(symbols, "MANIFEST", rows)
        # A subject remembers what it found, so it is asked through a fresh one.
        lines = symbols.complaints(Subject("impl", IMPL.module), {})
        return {line.partition(": ")[2] for line in lines if line.startswith(f"{name}: ")}

    assert complaints(replace(known, impl="batch", oracle="chunks.query_lens")) == {
        "no impl, but should be defined in impl/batch.py and exported",
        "no oracle, but its rule should be oracle/chunks.py: query_lens",
        "no properties, but one should name it",
    }
    assert complaints() == {"is public in impl, but has no row in MANIFEST"}
