"""The word list of `make lint`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import words
from tools.words import Vocabulary, complaints


@pytest.mark.parametrize(
    "text", ["a hire", "hire_worker", "_hire", "HIRE", "HireWorker", "onHire", "`hire`,", "is_hire_2"]
)
def test_a_word_is_found_in_sentences_and_as_a_part_of_names(text: str) -> None:
    assert [str(use) for use in Vocabulary(["hire"]).uses("a.py", f"\n{text}")] == [
        "a.py:2: hire, but should be spawn, start"
    ]


@pytest.mark.parametrize("text", ["hired", "shire", "Shire", "higher", "SHIRE", "aspire"])
def test_another_word_with_these_letters_is_none(text: str) -> None:
    assert list(Vocabulary(["hire"]).uses("a.py", text)) == []


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one folder and two uses of a word."""
    monkeypatch.setattr(words, "FOLDERS", ("docs",))
    monkeypatch.setattr(words, "WORDS", {"hire": "spawn"})
    monkeypatch.setattr(words, "EXCEPTIONS", {})
    (tmp_path / "docs").mkdir()
    (tmp_path / "Makefile").touch()
    (tmp_path / "docs" / "a.md").write_text("We hire.\n")
    (tmp_path / "b.md").write_text("They hire, too.\n")
    return tmp_path


def test_each_use_is_a_line_with_its_place(root: Path) -> None:
    assert complaints(root) == ["b.md:1: hire, but should be spawn", "docs/a.md:1: hire, but should be spawn"]


def test_an_exception_is_for_one_file_and_only_while_it_is_needed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "EXCEPTIONS", {("hire", "docs/a.md"): "a quotation"})
    assert complaints(root) == ["b.md:1: hire, but should be spawn"]
    (root / "docs" / "a.md").write_text("We start.\n")
    (root / "b.md").unlink()
    assert complaints(root) == ["docs/a.md: hire is in EXCEPTIONS, but should be in the file"]
