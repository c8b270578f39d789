"""The demo's defects still fit the implementation, and each shows on an input that a person would try."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.values import Call, Let, Name, Step, call, int32
from statecheck.cli.demo import VARIANTS, Caught, DemoReport, is_minimal
from statecheck.execution.variants import Variant, broken_copy, implementation
from tests.breakages.broken import a_case
from tests.breakages.variants import broken_subject

NAMES = [variant.package for variant in VARIANTS]


def test_a_broken_copy_leaves_nothing_behind_in_the_process(tmp_path: Path) -> None:
    before, path = set(sys.modules), list(sys.path)
    with broken_subject(VARIANTS[0], tmp_path) as broken:
        assert f"{broken.name}.chunks" in sys.modules
    assert set(sys.modules) == before
    assert sys.path == path


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_a_broken_copy_differs_in_one_place(variant: Variant, tmp_path: Path) -> None:
    intact = implementation()
    package = broken_copy(variant, intact, tmp_path)
    files = {file.relative_to(package).as_posix(): file.read_text() for file in package.rglob("*.py")}
    changed = [name for name, text in files.items() if text != (intact / name).read_text()]
    assert changed == [variant.file]
    assert files[variant.file].replace(variant.new, variant.old, 1) == (intact / variant.file).read_text()


def test_a_line_that_is_gone_or_ambiguous_is_refused(tmp_path: Path) -> None:
    for old, times in (("no such line", 0), ("import", "")):
        with pytest.raises(
            ValueError, match=rf"^old = '{old}', but should be in chunks.py once, but is there {times}"
        ):
            broken_copy(replace(VARIANTS[0], old=old), implementation(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def case(*steps: Step, message: str = "") -> Case:
    return a_case(
        property_name="chunks_end", subject="impl", steps=steps, expected=(), actual=(), message=message
    )


def varlen(starts: Any, chunk_size: int = 4) -> Call:
    return call("compute_varlen_chunk_metadata", query_start_loc=starts, chunk_size=chunk_size)


@pytest.mark.parametrize(
    ("steps", "minimal"),
    [
        ((varlen(int32([0, 4, 5])),), True),
        ((varlen(int32([0, 6])),), False),
        ((varlen(int32([0, 1, 2, 3])),), False),
        ((Let("starts", int32([0, 6])), varlen(Name("starts"))), False),
        ((call("cdiv", x=100, y=1),), True),
    ],
)
def test_a_minimal_chunk_case_has_two_requests_and_a_token_beyond_the_chunk(
    steps: tuple, minimal: bool
) -> None:
    assert is_minimal(case(*steps)) is minimal


def test_a_variant_is_caught_only_if_its_reports_fail_on_the_copy_and_pass_on_the_original() -> None:
    small = case(
        varlen(int32([0, 4])), message="x = 1, but should be 2 [compute_varlen_chunk_metadata(a=int32[0])]"
    )
    good = DemoReport(small, broken=1, intact=0)
    assert good.shrunk == "compute_varlen_chunk_metadata(a=int32[0])"
    assert Caught(VARIANTS[0], 1, [good]).as_expected()
    assert not Caught(VARIANTS[0], 0, [good]).as_expected()
    assert not Caught(VARIANTS[0], 1, []).as_expected()
    for bad in (replace(good, broken=0), replace(good, intact=1), replace(good, broken=2)):
        assert not Caught(VARIANTS[0], 1, [good, bad]).as_expected()
