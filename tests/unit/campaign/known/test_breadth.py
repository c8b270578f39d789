"""Declarations that most failures match are refused, and narrow ones are not, however few functions a port has."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statecheck.campaign.plan import Plan
from statecheck.campaign.start import begin
from statecheck.case.failure import KINDS
from statecheck.diagnose.replay import NOT_APPLICABLE, replay_file
from statecheck.execution.breadth import Combinations, _matches, require_narrow
from statecheck.execution.registry import load_properties
from statecheck.suite.items import SuitePlace, suite_of
from statecheck.suite.options import pytest_configure
from subjects import KnownDeviation, Subject, Symptom, load
from tests.helpers.cases import a_case
from tests.helpers.declared import entries
from tests.helpers.modules import module

OFFSETS = ("prepare_chunk_offsets", "prepare_chunk_indices")
PLACES = ("*e*", "*a*", "*l*")
PORT = """
import sys
from subjects import KnownDeviation, Subject, Symptom

STATECHECK_PROTOCOL = 2

def chunk_offsets(cu_seqlens, chunk_size):
    return cu_seqlens
"""
KNOWN = """
[[known]]
id = "everything"
title = "All is wrong"
properties = ["*_*"]
versions = ">=0"
link = "https://example.org/1"
why = "seen"
""" + "".join(
    f'[[known.symptoms]]\nkind = "{kind}"\nfunction = "*_*"\nplace = ["*e*", "*a*", "*l*"]\n'
    for kind in sorted(KINDS)
)


def _declared(properties: Any, *symptoms: Symptom, **fields: Any) -> KnownDeviation:
    return KnownDeviation(properties, "bug", symptoms, id="broad", **fields)


def _each_kind(function: Any, place: Any) -> tuple[Symptom, ...]:
    return tuple(Symptom(kind, function, place) for kind in sorted(KINDS))  # type: ignore[arg-type]


def _with(*declared: KnownDeviation, name: str = "impl") -> Subject:
    loaded = load(name)
    return Subject("toy", loaded.module, declared)


BROAD = {
    "every word": _declared("*_*", *_each_kind("*_*", PLACES)),
    "every id": _declared("*/*", *_each_kind(("*_*", "*e*"), PLACES)),
    "letters": _declared(("*a*", "*b*"), *_each_kind(("*a*", "*e*"), PLACES)),
    "with a condition": _declared("*_*", *_each_kind("*_*", PLACES), condition=lambda case: True),
    "one property": _declared("fla-chunks/offsets", *_each_kind("prepare_*", PLACES)),
    "without a star": _declared(
        "fla-chunks/offsets",
        *_each_kind("prepare_chunk_offsets", ("the call", "result", "cu_seqlens", "chunk_size")),
    ),
    "with others": _declared(("fla-chunks/*", "split/partition"), *_each_kind(OFFSETS, PLACES)),
    "every refusal": _declared("*_*", Symptom("refusal", ("*_*", "*e*"), PLACES)),
    "wrong values of a builder": _declared(
        "gdn-builder/*", Symptom("value", "GDNAttentionMetadataBuilder.*", ("result.*", "result"))
    ),
}


@pytest.mark.parametrize("name", BROAD)
def test_a_declaration_that_matches_most_of_what_can_fail_is_refused(name: str) -> None:
    rule = (
        r"combinations of property, function, kind and place in which .* can fail, but should be at most half"
    )
    with pytest.raises(
        ValueError, match=rf"^known defect 'broad' = [\d,]+ of [\d,]+ {rule} of them \[toy\]$"
    ):
        require_narrow(_with(BROAD[name]))


@pytest.mark.slow
def test_declarations_that_match_most_of_what_can_fail_together_are_refused() -> None:
    parts = [
        KnownDeviation(name, "bug", Symptom(kind, ("*_*", "*e*"), PLACES), id=kind)  # type: ignore[arg-type]
        for kind, name in itertools.product(sorted(KINDS), load_properties())
    ]
    require_narrow(_with(*parts[:4]))
    with pytest.raises(
        ValueError, match=r"^(all known defects|known defect 'value') .*but should be at most"
    ):
        require_narrow(_with(*parts))


@pytest.mark.parametrize(
    "symptom",
    [
        Symptom("value", "prepare_chunk_offsets", "result"),
        Symptom("refusal", "prepare_chunk_offsets", "the call", "IndexError"),
        Symptom("memory", "prepare_chunk_offsets", "cu_seqlens"),
        Symptom("hang", "prepare_chunk_offsets", "the call"),
    ],
    ids=lambda one: one.kind,
)
def test_a_precise_declaration_is_accepted_on_a_port_of_one_function(
    symptom: Symptom, tmp_path: Path
) -> None:
    with module(tmp_path, "narrow_port", PORT):
        subject = load("narrow_port")
    for named in ("fla-chunks/offsets", "fla-chunks/*", "chunk*"):
        subject.known_deviations = (_declared(named, symptom),)
        require_narrow(subject)


def test_every_declaration_of_a_released_engine_is_narrow() -> None:
    combinations = Combinations(load_properties().values())
    shares = {}
    for entry, named in ((entry, combinations.named_by(entry)) for entry in entries()):
        ways = Counter(name.property for name in named)
        matches = Counter(name.property for name in named if _matches(entry, name))
        shares[entry.id] = max((matches[name] / ways[name] for name in matches), default=0.0)
    assert {name: share for name, share in shares.items() if share > 0.25} == {}


def test_no_way_in_takes_a_declaration_that_matches_most_of_what_can_fail(
    tmp_path: Path, device: str
) -> None:
    (tmp_path / "known.toml").write_text(KNOWN, encoding="utf-8")
    case = tmp_path / "case.json"
    a_case().save(case)
    message = r"^known defect 'everything' = \d+ of \d+ combinations"
    with module(tmp_path, "broad_port", PORT + 'KNOWN = "known.toml"\n') as name:
        with pytest.raises(ValueError, match=message):
            begin(Plan("x", subject=name, device=device, budget=1.0))
        with pytest.raises(ValueError, match=message):
            suite_of(name, SuitePlace("", 1), device=device, known=None, require=(), max_examples=None)
        with pytest.raises(ValueError, match=message):
            replay_file(case, name, device)
        assert replay_file(case, name, device, as_new=True).verdict == NOT_APPLICABLE
        assert begin(Plan("x", subject=name, device=device, budget=1.0, as_new=True))[1].all == {}
        config = SimpleNamespace(
            getoption={"--subject": name, "--device": device, "--max-examples": None}.get
        )
        with pytest.raises(pytest.UsageError, match=message):
            pytest_configure(config)  # type: ignore[arg-type]
