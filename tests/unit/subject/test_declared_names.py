"""Names in declared defects: a slip in a property is refused with the nearest ids, and a port's own names of functions are understood."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecheck.campaign.coordinator import begin
from statecheck.campaign.plan import Plan
from statecheck.diagnose.replay import NOT_APPLICABLE, replay_file
from statecheck.execution.selection import require_declared_properties
from statecheck.suite.items import suite_of
from statecheck.suite.options import pytest_configure
from subjects import KnownDeviation, Subject, Symptom, load
from tests.helpers.cases import a_case
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
        (declared("*/*"), r"properties = \*/\*, but should leave out a property at least .*'short'"),
        (declared(("[a-m]*", "[n-z]*")), "but should leave out a property at least"),
        (declared(OFFSETS), None),
        (declared("fla-chunks/*"), None),
    ],
)
def test_a_declaration_that_matches_no_property_or_all_is_refused(
    known: KnownDeviation, message: str | None
) -> None:
    if message is None:
        require_declared_properties(subject_with(known))
        return
    with pytest.raises(ValueError, match=message):
        require_declared_properties(subject_with(known))


@pytest.mark.parametrize(
    "name", ["impl", "examples.numpy_port", "examples.mambapy_port", "examples.rwkv_port"]
)
def test_declarations_of_adapters_name_existing_properties_and_functions(name: str) -> None:
    try:
        subject = load(name)
    except ValueError as error:
        pytest.skip(str(error))
    require_declared_properties(subject)


def test_a_port_declares_defects_by_its_own_names_of_functions(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(ENTRY.format(properties=OFFSETS, function="chunk_offsets"))
    with module(tmp_path, "toy_own_names", f'{PORT}\nKNOWN = "known.toml"\n') as name:
        subject = load(name)
        require_declared_properties(subject)
        (known,) = subject.known_deviations
        assert known.shown_by[0].function == ("prepare_chunk_offsets",)
        assert subject.declared_in(tmp_path / "known.toml") == (known,)
        assert subject.documented_names("state_shapes")[:2] == (
            "MambaStateShapeCalculator.linear_attention_state_shape",
            "MambaStateShapeCalculator.mamba1_state_shape",
        )


def test_every_way_in_refuses_a_declaration_that_names_no_property(tmp_path: Path, device: str) -> None:
    (tmp_path / "known.toml").write_text(
        ENTRY.format(properties="fla-chunk/offset", function="chunk_offsets")
    )
    case = tmp_path / "case.json"
    a_case().save(case)
    message = r"^properties = 'fla-chunk/offset', but should match a property; like it are fla-chunks/offsets"
    with module(tmp_path, "slip_port", f'{PORT}\nKNOWN = "known.toml"\n') as name:
        with pytest.raises(ValueError, match=message):
            begin(Plan("x", subject=name, device=device, budget=1.0))
        with pytest.raises(ValueError, match=message):
            suite_of(name, ("", 1), device=device, known=None, require=(), max_examples=None)
        with pytest.raises(ValueError, match=message):
            replay_file(case, name, device)
        assert replay_file(case, name, device, as_new=True).verdict == NOT_APPLICABLE
        assert begin(Plan("x", subject=name, device=device, budget=1.0, as_new=True))[1].all == {}
        config = SimpleNamespace(
            getoption={"--subject": name, "--device": device, "--max-examples": None}.get
        )
        with pytest.raises(pytest.UsageError, match=message):
            pytest_configure(config)  # type: ignore[arg-type]
