"""The demo's defects still fit the implementation, and each shows on an input that a person would try."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.cli import demo
from statecheck.cli.demo import VARIANTS
from statecheck.subject.variants import Variant, broken_copy, implementation
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


@pytest.mark.parametrize(
    ("campaign", "exits", "caught"),
    [(1, (1, 0), True), (0, (1, 0), False), (1, (0, 0), False), (1, (1, 1), False), (1, (2, 0), False)],
)
def test_a_variant_is_caught_only_if_its_report_fails_on_the_copy_and_passes_on_the_original(
    campaign: int, exits: tuple[int, int], caught: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fuzz(variant: Variant, root: Path, reports: Path, budget: str) -> int:  # noqa: ARG001
        a_case(property_name="chunks_end").save(reports / "one" / "case.json")
        (reports / "one" / "repro.py").touch()
        return campaign

    monkeypatch.setattr(demo, "_fuzz", fuzz)
    monkeypatch.setattr(demo, "_exits", lambda script, root: exits)
    assert demo._is_caught(VARIANTS[0], implementation(), tmp_path, "1s") is caught
