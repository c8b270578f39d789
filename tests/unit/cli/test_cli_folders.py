"""No command writes into a folder that holds something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.bench import __main__ as bench
from lab.compatibility import __main__ as compatibility
from statecheck.cli import main as cli
from statecheck.cli.options import require_own
from statecheck.util.files import mark
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT

WRITERS: dict[str, tuple[Any, ...]] = {
    "bench": (bench.main, "--out"),
    "replay-trace": (cli.main, "replay-trace", str(ROOT / "README.md"), "--subject", "impl", "--out"),
    "compatibility": (compatibility.main, "--reports"),
    "fuzz": (cli.main, "fuzz", "--device", "cpu", "--reports"),
    "nightly reports": (
        cli.main,
        "nightly",
        "--device",
        "cpu",
        "--budget",
        "1s",
        "--corpus",
        "none",
        "--reports",
    ),
    "nightly corpus": (
        cli.main,
        "nightly",
        "--device",
        "cpu",
        "--budget",
        "1s",
        "--reports",
        "none",
        "--corpus",
    ),
    "merge reports": (cli.main, "merge", "shards", "--corpus", "none", "--reports"),
    "merge corpus": (cli.main, "merge", "shards", "--reports", "none", "--corpus"),
}


@pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)
def test_a_folder_with_something_else_is_refused_before_anything_is_written(
    words: tuple[Any, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("of ten years", encoding="utf-8")
    run, *options = words
    assert run([*options, "theirs"]) == 3
    output = capsys.readouterr().err
    assert "= 'theirs', which holds thesis.txt, but should be a new or empty folder, or one of " in output
    assert [path.name for path in tmp_path.rglob("*")] == ["theirs", "thesis.txt"]


def test_reports_do_not_go_where_a_checkout_is() -> None:
    with pytest.raises(
        ValueError, match=r"reports = '.*', which holds .*, but should be a new or empty folder"
    ):
        require_own(ROOT, "reports", "reports")


def test_a_command_may_write_into_a_folder_that_it_has_written(tmp_path: Path) -> None:
    mark(tmp_path / "new", "reports")
    (tmp_path / "new" / "index.json").touch()
    require_own(tmp_path / "new", "reports", "out")


@pytest.mark.parametrize("name", ["lost+found", ".gitignore", "README.md", "2026-11-21-a_property-0123abcd"])
def test_a_folder_for_reports_may_be_a_new_volume_or_older_than_its_marker(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    require_own(tmp_path, "reports", "reports")


def test_a_corpus_is_known_by_its_cases(tmp_path: Path) -> None:
    a_case().save(tmp_path / "a_property-0123456789.json")
    (tmp_path / "notes.txt").touch()
    require_own(tmp_path, "corpus", "corpus")
