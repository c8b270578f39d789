"""The generated parts of the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from properties.harness import readme, symbols
from properties.harness.docs import citations

EMPTY = "\n".join(
    line for name in ("symbols", "deviations") for line in (*readme.markers(name), f"after {name}")
)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "README.md"
    path.write_text(EMPTY, encoding="utf-8")
    monkeypatch.setattr(readme, "README", path)
    monkeypatch.setattr(symbols, "complaints", lambda *_: [])
    monkeypatch.setattr(citations, "complaints", list)
    return path


def test_what_was_written_is_up_to_date(page: Path) -> None:
    assert readme.run_table(write=False, check=True) == 1
    assert readme.run_table(write=True, check=False) == 0
    assert readme.run_table(write=False, check=True) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"{readme.markers('symbols')[0]}\n| document |")
    assert text.endswith(f"|\n{readme.markers('deviations')[1]}\nafter deviations")


@pytest.mark.usefixtures("page")
def test_a_citation_that_leads_nowhere_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme.run_table(write=True, check=False)
    monkeypatch.setattr(citations, "complaints", lambda: ["impl/a.py:1: dead"])
    assert readme.run_table(write=False, check=True) == 1
    assert capsys.readouterr().err == "impl/a.py:1: dead\n"


def test_a_line_that_somebody_changed_is_shown(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme.run_table(write=True, check=False)
    page.write_text(page.read_text(encoding="utf-8").replace("| 2 |", "| 7 |", 1), encoding="utf-8")
    assert readme.run_table(write=False, check=True) == 1
    assert "-| 7 |" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "no markers\n", f"{readme.markers('symbols')[0]}\nno end\n"])
def test_a_readme_without_a_place_for_a_table_fails(
    page: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    page.unlink() if text is None else page.write_text(text, encoding="utf-8")
    assert readme.run_table(write=True, check=False) == 1
    assert readme.run_table(write=False, check=True) == 1
    assert capsys.readouterr().err.startswith("README.md: ")


def test_a_missing_room_fails_and_keeps_the_readme(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "complaints", lambda *_: ["x: no oracle, but should have one"])
    assert readme.run_table(write=True, check=False) == 1
    assert page.read_text(encoding="utf-8") == EMPTY
