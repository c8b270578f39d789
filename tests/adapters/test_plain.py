"""The protocol of plain functions: the document, the adapter, and the example, which is right, and found where it is broken."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from examples import numpy_port
from statecheck.case.values import Call, Device, call, int32
from statecheck.execution.example import ExecutionContext, Falsified, OutsideDomain
from statecheck.execution.executors import ordinary_port
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.execution.selection import Offers
from statecheck.execution.verdict import Status, verdict_of
from statecheck.subject import is_documented
from statecheck.subject.profile import Profile
from subjects import Subject, load
from subjects.plain import PlainSubject, adapted
from subjects.plain.protocol import ENGINES, FUNCTIONS, NEEDS, RECURRENCES, SUPPLIED
from tests.helpers.cases import a_property
from tests.helpers.modules import ROOT, module

DOCUMENT = (ROOT / "PROTOCOL.md").read_text(encoding="utf-8")
SLOW = 3
"""Examples of each property: what is looked for here is an error of the adapter, which the first few show."""


def port_of(**names: Any) -> ModuleType:
    """A port that has nothing but `names`."""
    port = ModuleType("toy_port")
    vars(port).update({"STATECHECK_PROTOCOL": 2} | names)
    return port


def subject_of(**names: Any) -> PlainSubject:
    return adapted(port_of(**names))


def context_of(subject: Subject) -> ExecutionContext:
    return ExecutionContext(subject, InProcess(subject, "cpu"))


def offsets_of(number: int) -> Any:
    return lambda cu_seqlens, chunk_size: [number]


OFFSETS = call("prepare_chunk_offsets", cu_seqlens=int32([0]), chunk_size=4)
TILES = Call(
    "compute_causal_conv1d_metadata",
    (("query_start_loc_p_cpu", int32([0, 9, 8]).on_host()),),
    (("device", Device()),),
)


# The document.


def rows() -> list[tuple[str, ...]]:
    """Signature, sentence and documented symbols of each function in the document."""
    found = (line.strip("| ").split(" | ") for line in DOCUMENT.splitlines() if re.match(r"\| `\w+\(", line))
    return [tuple(cells) for cells in found]


def test_the_document_has_every_function_with_its_arguments_and_symbols() -> None:
    documented = [(cells[0].strip("`"), tuple(re.findall(r"`([^`]+)`", cells[-1]))) for cells in rows()]
    assert documented == [(plain.signature, plain.answers_for) for plain in (*FUNCTIONS, *ENGINES)]


def test_the_page_of_recurrences_has_every_kernel_with_its_arguments() -> None:
    page = (ROOT / "docs/recurrences.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+\([^`]*\))`", page, re.MULTILINE) == [
        plain.signature for plain in RECURRENCES
    ]


def test_the_port_of_the_examples_has_every_kernel() -> None:
    assert load("examples.recurrences_port").functions == tuple(plain.name for plain in RECURRENCES)


def test_the_port_of_slots_has_every_decision_of_an_engine() -> None:
    assert Offers(load("examples.slots_port")).offered == tuple(plain.name for plain in ENGINES)


def test_the_document_has_every_attribute_that_the_adapter_reads() -> None:
    source = inspect.getsource(inspect.getmodule(adapted) or ModuleType("none"))
    source += (ROOT / "subjects/plain/port.py").read_text(encoding="utf-8")
    source += (ROOT / "subjects/plain/outside.py").read_text(encoding="utf-8")
    read = set(re.findall(r'getattr\(port, "([A-Z_]+)"', source))
    assert read == set(re.findall(r"^\| `([A-Z_]+)", DOCUMENT, re.MULTILINE))


def test_every_symbol_of_the_protocol_is_a_documented_one() -> None:
    documented = filter(is_documented, (*NEEDS, *SUPPLIED))
    assert [symbol for symbol in documented if not load("impl").has(symbol)] == []


def test_every_symbol_of_the_protocol_is_found_in_the_adapter() -> None:
    subject = load("examples.numpy_port")
    assert [symbol for symbol in (*NEEDS, *SUPPLIED) if subject.resolve(symbol) is None] == []


# What is a port.


def test_a_module_that_names_the_protocol_is_adapted(tmp_path: Path) -> None:
    source = "STATECHECK_PROTOCOL = 2\ndef chunk_offsets(cu_seqlens, chunk_size):\n    return [0] * len(cu_seqlens)\n"
    with module(tmp_path, "toy_plain", source) as name:
        subject = load(name)
    assert (subject.name, subject.refuses, subject.has("prepare_chunk_offsets")) == (name, False, True)


def test_properties_of_functions_that_a_port_lacks_are_not_applicable() -> None:
    context = context_of(subject_of(chunk_offsets=offsets_of(0)))
    names = {name for name, tested in load_properties().items() if tested.not_applicable(context) is None}
    assert names == {"fla-chunks/offsets", "chunk-metadata/changed-in-place"}


def test_the_example_offers_every_function() -> None:
    assert [plain.name for plain in FUNCTIONS if not hasattr(numpy_port, plain.name)] == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"STATECHECK_PROTOCOL": 3}, "STATECHECK_PROTOCOL = 3, but should be 2 [toy_port]"),
        ({}, "functions = none, but should be at least one of those in PROTOCOL.md [toy_port]"),
        ({"STATECHECK_PROTOCOL": 1}, "STATECHECK_PROTOCOL = 1, but should be 2 [toy_port]"),
        (
            {"chunk_offsets": lambda starts, chunk_size: []},
            "chunk_offsets = (starts, chunk_size), but should be chunk_offsets(cu_seqlens, chunk_size) [toy_port]",
        ),
        (
            {"chunk_offsets": 7},
            "chunk_offsets = 7, but should be chunk_offsets(cu_seqlens, chunk_size) [toy_port]",
        ),
        (
            {"chunk_offsets": offsets_of(0), "PROFILE": {"colour": "red"}},
            "PROFILE['colour'] = 'red', but should be a field of statecheck.subject.profile.Profile [toy_port]",
        ),
    ],
    ids=["version", "nothing", "version 1", "arguments", "no function", "profile"],
)
def test_a_module_that_does_not_follow_the_protocol_is_refused(names: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        subject_of(**names)


def test_a_port_may_follow_other_rules_and_promise_to_refuse() -> None:
    profile = {"skips_missing_states": False}
    found = subject_of(chunk_offsets=offsets_of(0), PROFILE=profile, REFUSES=True)
    assert (found.profile, found.refuses) == (Profile(skips_missing_states=False), True)


def test_known_defects_of_a_port_are_those_of_its_release(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text(
        "\n".join(
            f'[[known]]\nid = "{name}"\ntitle = "t"\nproperties = ["p"]\nversions = "{versions}"\nlink = "l"\nwhy = "w"\n'
            '[[known.symptoms]]\nkind = "value"\nfunction = "chunk_offsets"\nplace = "result"'
            for name, versions in (("now", ">=1.2"), ("then", "<1.2"))
        ),
        encoding="utf-8",
    )
    names = {"chunk_offsets": offsets_of(0), "KNOWN": "known.toml", "RELEASE": "1.2.0"}
    found = subject_of(**names, __file__=str(tmp_path / "toy_port.py"))
    assert [known.id for known in found.known_deviations] == ["now"]


# What becomes of calls.


def test_two_ports_in_one_process_are_never_mistaken_for_each_other() -> None:
    subjects = [subject_of(chunk_offsets=offsets_of(number)) for number in (0, 7)]
    ports = [InProcess(subject, "cpu") for subject in subjects]
    for port in ports:
        port.begin()
    values = [getattr(port.execute(OFFSETS), "value", None) for port in (*ports, *ports)]
    assert [value and value.values() for value in values] == [(0,), (7,)] * 2


def test_inputs_that_a_port_does_not_implement_are_outside() -> None:
    def chunk_offsets(cu_seqlens: list[int], chunk_size: int) -> list[int]:
        raise NotImplementedError("chunks")

    context = context_of(subject_of(chunk_offsets=chunk_offsets))
    with pytest.raises(OutsideDomain):
        context.begin(a_property()).agrees(OFFSETS)
    assert context.counts.not_offered == {"toy_port does not implement chunk_offsets: chunks": 1}


def test_waiting_is_an_error_for_those_alone_who_promise_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 2)
    context_of(subject_of(chunk_offsets=offsets_of(0), NEVER_WAITS=True)).begin(a_property()).agrees(OFFSETS)
    with pytest.raises(OutsideDomain, match="does not promise never to wait"):
        context_of(subject_of(chunk_offsets=offsets_of(0))).begin(a_property()).agrees(OFFSETS)


def test_a_refusal_is_told_in_the_documents_words() -> None:
    def conv_tiles(query_start_loc: list[int]) -> None:
        raise ValueError(f"query_start_loc[2] = {query_start_loc[2]}, but should be >= 9 [conv_tiles]")

    context_of(subject_of(conv_tiles=conv_tiles, REFUSES=True)).begin(a_property()).refuses(TILES)


def test_a_port_that_promises_to_refuse_is_tried_with_bad_input() -> None:
    tested = load_properties()["refusals/bad-input"]
    context = context_of(subject_of(chunk_offsets=offsets_of(0), REFUSES=True))
    with pytest.raises(Falsified, match="should be ValueError that names cu_seqlens"):
        tested.explore(context, seed=1, max_examples=20)
    assert tested.not_applicable(context_of(subject_of(chunk_offsets=offsets_of(0)))) is not None


def test_a_port_to_which_no_bad_input_can_be_given_is_not_tested_with_bad_input() -> None:
    tested = load_properties()["refusals/bad-input"]
    # Bad input of a function that launches is tensors, and plain functions get numbers and lists alone.
    context = context_of(subject_of(copy_runs=lambda src_ptrs, dst_ptrs, sizes: None, REFUSES=True))
    assert tested.not_applicable(context) is None
    tested.explore(context, seed=1, max_examples=20)
    assert context.counts.examples > 0
    assert verdict_of(context.counts).status is Status.NOT_TESTED


# The example.


APPLICABLE = [
    (port, name)
    for port in ("examples.numpy_port", "examples.slots_port")
    for name, tested in load_properties().items()
    if tested.not_applicable(context_of(load(port))) is None
]


def test_most_properties_of_plain_functions_apply_to_an_example() -> None:
    assert len(APPLICABLE) > 90


@pytest.mark.parametrize(("port", "name"), APPLICABLE)
def test_an_example_passes(port: str, name: str) -> None:
    subject = load(port)
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    load_properties()[name].explore(context, seed=1, max_examples=SLOW)
