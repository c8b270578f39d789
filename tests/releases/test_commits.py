"""Commits of a checkout: which ones are tried, where they are put, and that the checkout stays as it is."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from statecheck.cli import bisect_runs
from statecheck.execution.exit_codes import CLEAN, FALSIFIED
from statecheck.releases.commits import commits_of, put_into, version_of_commit
from statecheck.report.bisection import saved
from tests.releases.test_bisect import ToyBisect, bisect

__all__ = ["bisect"]
PACKAGE = "vllm/__init__.py"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    # Commits of one second, as those of a rebase are.
    moment = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | moment).stdout


def commit(folder: Path, title: str, **files: str) -> str:
    """Files by name, in which two underscores are a slash; the whole id."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", title)
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Five commits, of which the third changes only documents and the fifth merges a branch."""
    folder = tmp_path / "tree"
    (folder / "vllm").mkdir(parents=True)
    (folder / PACKAGE).touch()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "Begin", vllm__said="FIXED", requirements__common="x", docs__a="1")
    git(folder, "tag", "v0.31.0")
    commit(folder, "Copy faster", vllm__said="FAILED")
    commit(folder, "Say more", docs__a="2")
    git(folder, "checkout", "-q", "-b", "side")
    commit(folder, "Try something", vllm__other="1")
    commit(folder, "Try more", vllm__other="2")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "Merge side", "side")
    commit(folder, "Copy right", vllm__said="FIXED!")
    return folder


def content(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_commits_are_first_parents_that_change_the_package_after_the_last_before(tree: Path) -> None:
    found = commits_of(tree, "v0.31.0..HEAD")
    assert list(found.titles.values()) == ["Begin", "Copy faster", "Merge side", "Copy right"]
    assert all(sha.startswith(name) for name, sha in found.shas.items())


def test_without_a_range_those_since_the_latest_tag_are_tried(tree: Path) -> None:
    assert commits_of(tree) == commits_of(tree, "v0.31.0..HEAD")


def test_a_range_of_the_whole_history_has_nothing_before_it(tree: Path) -> None:
    git(tree, "checkout", "-q", "--orphan", "new")
    commit(tree, "Begin again", vllm__said="1")
    assert list(commits_of(tree, "v0.31.0..new").titles.values()) == ["Begin again"]


@pytest.mark.parametrize(
    ("range_", "rule"),
    [
        ("HEAD", "should be a range of commits that change vllm/"),
        ("--all..HEAD", "should be a range"),
        ("a...b", "should be a range"),
        ("no-tag..HEAD", "should be a range .*: fatal:"),
        ("HEAD..HEAD", "which has none"),
    ],
)
def test_what_is_no_range_is_refused(tree: Path, range_: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"commits = '{range_}'.* {rule}"):
        commits_of(tree, range_)


def test_a_folder_without_tags_or_without_git_needs_a_range(tree: Path, tmp_path: Path) -> None:
    git(tree, "tag", "-d", "v0.31.0")
    for folder in (tree, tmp_path):
        with pytest.raises(ValueError, match=r"commits = '', but should be a range .* where no tag is found"):
            commits_of(folder)


def test_a_commit_is_put_down_whole_and_nothing_of_another_one_stays(tree: Path, tmp_path: Path) -> None:
    found, before = commits_of(tree), content(tree)
    oldest, *_, newest = found.names
    for name in (newest, oldest):
        put_into(tmp_path / "put", found, name)
    put = {str(path.relative_to(tmp_path / "put")) for path in (tmp_path / "put").rglob("*.*")}
    assert put == {PACKAGE, "vllm/said.txt", "requirements/common.txt"}
    assert (tmp_path / "put" / "vllm" / "said.txt").read_text() == "FIXED"
    assert content(tree) == before


def test_files_of_two_commits_of_one_second_have_other_times(tree: Path, tmp_path: Path) -> None:
    found = commits_of(tree)
    times = set()
    for name in found.names:
        put_into(tmp_path / "put", found, name)
        times.add((tmp_path / "put" / PACKAGE).stat().st_mtime)
    assert len(times) == len(found.names)


def test_a_commit_without_the_package_is_refused(tree: Path, tmp_path: Path) -> None:
    git(tree, "rm", "-rq", "vllm")
    git(tree, "commit", "-q", "-m", "Go elsewhere")
    found = commits_of(tree)
    with pytest.raises(ValueError, match=r"should be one with vllm/ \[bisect\]"):
        put_into(tmp_path / "put", found, found.names[-1])


def test_the_version_of_a_commit_is_that_of_its_latest_tag(tree: Path) -> None:
    found = commits_of(tree)
    git(tree, "tag", "v0.32.0rc1")
    assert [version_of_commit(found, found.names[at]) for at in (0, -1)] == ["0.31.0", "0.32.0rc1"]
    git(tree, "tag", "-d", "v0.31.0")
    assert version_of_commit(found, found.names[0]) == "999"


@pytest.fixture
def over_commits(bisect: ToyBisect, tree: Path, monkeypatch: pytest.MonkeyPatch) -> ToyBisect:
    monkeypatch.setenv("VLLM_PATH", str(tree))
    monkeypatch.setattr(bisect_runs, "home", lambda: bisect.index.folder)
    return bisect


def test_the_line_says_which_commit_broke_it(
    over_commits: ToyBisect, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, names = content(tree), commits_of(tree).names
    (over_commits.case.parent / "report.md").write_text("# x\n\n## Run it again\n\nso\n", encoding="utf-8")
    commit_ = commit(tree, "Copy right at last", vllm__said="FIXED")
    before = content(tree)
    assert over_commits.run("--commits", "v0.31.0..HEAD", "--all") == CLEAN
    output = capsys.readouterr().out
    assert "5 commits, " in output
    assert f"wrong since {names[1]} (Copy faster)" in output
    assert f"right since {commit_[:12]} (Copy right at last)" in output
    assert [one.over for one in saved(over_commits.case.parent)] == ["commits"]
    assert content(tree) == before
    assert set(over_commits.index.made) == {"0.31.0"}


def test_how_many_commits_there_are_and_how_many_are_tried_is_said_first(
    over_commits: ToyBisect, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(tree, "Copy wrong", vllm__said="FAILED")
    assert over_commits.run() == FALSIFIED
    assert (
        ": 2 of them are tried first, then about 2 for each change" in capsys.readouterr().out.splitlines()[0]
    )


def test_releases_beside_a_checkout_are_refused(over_commits: ToyBisect) -> None:
    with pytest.raises(ValueError, match=r"releases = '0.25.1', but should be given without VLLM_PATH"):
        over_commits.run("--releases", "0.25.1")


def test_two_bisections_of_one_checkout_exclude_each_other(over_commits: ToyBisect, tree: Path) -> None:
    with (
        bisect_runs._own_folder(tree.resolve()),
        pytest.raises(ValueError, match="no other bisection goes through"),
    ):
        over_commits.run()
