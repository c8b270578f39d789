"""Names in declared defects: a slip is refused with the nearest, and a port's own names of functions are understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecheck.execution.breadth import require_narrow
from statecheck.execution.declared_names import require_names
from statecheck.execution.registry import load_properties
from subjects import KnownDeviation, Subject, Symptom, load
from tests.helpers.modules import module

OFFSETS = "fla-chunks/offsets"
PORT = """
STATECHECK_PROTOCOL = 2

def chunk_offsets(cu_seqlens, chunk_size):
    return cu_seqlens

def state_shapes(family, sizes, tp_size, num_spec, layout):
    return []
"""
ENTRY = """
[[known]]
id = "short"
title = "Offsets are short"
properties = ["{properties}"]
versions = ">=0"
link = "issue 1"
why = "seen"
[[known.symptoms]]
kind = "value"
function = "{function}"
place = "result"
"""


def declared(properties: Any, function: Any = "prepare_chunk_offsets") -> KnownDeviation:
    return KnownDeviation(properties, "issue 1", Symptom("value", function, "result"), id="short")


def subject_with(*known: KnownDeviation) -> Subject:
    return Subject("toy", load("impl").module, known)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (declared("fla-chunk/offset"), "properties = 'fla-chunk/offset', .* like it are fla-chunks/offsets"),
        (declared((OFFSETS, "nosuch/*")), r"properties = 'nosuch/\*', but should match a property"),
        (declared("zzz"), "topics are .*fla-chunks"),
        (
            declared(OFFSETS, "prepare_chunk_offset"),
            "function = 'prepare_chunk_offset', but should be a function",
        ),
        (declared(OFFSETS, "cdiv"), "that its properties call: prepare_chunk_offsets"),
        (declared(OFFSETS, ""), None),
        (declared(OFFSETS, "prepare_*"), None),
        (declared("chunk_offsets_count_*"), None),
    ],
)
def test_a_declaration_that_can_match_nothing_is_refused(known: KnownDeviation, message: str | None) -> None:
    if message is None:
        require_narrow(subject_with(known))
        return
    with pytest.raises(ValueError, match=message):
        require_narrow(subject_with(known))


@pytest.mark.parametrize("name", ["impl", "examples.numpy_port", "examples.mambapy_port"])
def test_what_adapters_declare_has_names_of_something(name: str) -> None:
    try:
        subject = load(name)
    except ValueError as error:
        pytest.skip(str(error))
    for one in subject.known_deviations:
        require_names(one, load_properties(), subject)


def test_a_port_declares_defects_by_its_own_names_of_functions(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(ENTRY.format(properties=OFFSETS, function="chunk_offsets"))
    with module(tmp_path, "toy_own_names", f'{PORT}\nKNOWN = "known.toml"\n') as name:
        subject = load(name)
        require_narrow(subject)
        (known,) = subject.known_deviations
        assert known.shown_by[0].function == ("prepare_chunk_offsets",)
        assert subject.declared_in(tmp_path / "known.toml") == (known,)
        assert subject.documented_names("state_shapes")[:2] == (
            "MambaStateShapeCalculator.linear_attention_state_shape",
            "MambaStateShapeCalculator.mamba1_state_shape",
        )


def test_a_function_that_no_property_calls_is_named_with_those_of_the_port(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(ENTRY.format(properties=OFFSETS, function="chunk_offset"))
    message = r"function = 'chunk_offset', .* call: chunk_offsets"
    with (
        module(tmp_path, "toy_slip", f'{PORT}\nKNOWN = "known.toml"\n') as name,
        pytest.raises(ValueError, match=message),
    ):
        require_narrow(load(name))
