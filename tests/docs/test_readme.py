"""The generated parts of README and docs/."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecheck.execution.registry import found, load_properties
from tools.docs import citations, symbols
from tools.docs import generated as readme
from tools.docs.deciding import decided_by

PARTS = ("symbols", "properties")
EMPTY = {name: "\n".join(("before", *readme.part(name).marks, "after")) for name in PARTS}


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    paths = {name: tmp_path / readme.FILES[name] for name in EMPTY}
    (tmp_path / "docs").mkdir()
    for name, path in paths.items():
        path.write_text(EMPTY[name], encoding="utf-8")
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(symbols, "complaints", lambda *_: [])
    monkeypatch.setattr(citations, "complaints", list)
    return paths


def test_what_was_written_is_up_to_date(pages: dict[str, Path]) -> None:
    assert readme.run_table(write=False, check=True) == 1
    assert readme.run_table(write=True, check=False) == 0
    assert readme.run_table(write=False, check=True) == 0
    texts = {name: path.read_text(encoding="utf-8") for name, path in pages.items()}
    assert texts["symbols"].startswith(f"before\n{readme.part('symbols').marks[0]}\n| document |")
    row = "| `v1-postprocess/boundary` | an accepted state on a boundary is stored in the column of its block | byte-exact | rule |"
    assert row in texts["properties"]


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


@pytest.mark.usefixtures("pages")
def test_a_citation_that_leads_nowhere_fails_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme.run_table(write=True, check=False)
    monkeypatch.setattr(citations, "complaints", lambda: ["impl/a.py:1: dead"])
    assert readme.run_table(write=False, check=True) == 1
    assert capsys.readouterr().err == "impl/a.py:1: dead\n"


@pytest.mark.parametrize("text", [None, "no markers\n", f"{readme.part('symbols').marks[0]}\nno end\n"])
def test_a_file_without_a_place_for_a_table_fails(
    pages: dict[str, Path], text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    page = pages["symbols"]
    page.unlink() if text is None else page.write_text(text, encoding="utf-8")
    assert readme.run_table(write=True, check=False) == 1
    assert readme.run_table(write=False, check=True) == 1
    assert capsys.readouterr().err.startswith("docs/symbols.md: ")
