"""Results of `statecheck bisect` from the verdicts of releases."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import call
from statecheck.cli import bisect as bisect_command
from statecheck.cli.bisect import run_bisect
from statecheck.cli.main import main
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.bisect import Replays
from statecheck.report.bisection import FILE, TriedRelease
from statecheck.subject.loading import Project
from tests.helpers.cases import a_case
from tests.helpers.parsing import options_of

PROGRAM = """
import json, sys
from pathlib import Path
words, release = sys.argv[1:], sys.argv[-1]
index = Path(words.pop(0))
with (index / "tried").open("a") as tried:
    print(release, file=tried)
verdict = json.loads((index / "verdicts.json").read_text()).get(release, "missing")
if verdict == "missing":
    sys.exit(print(f"error: {release} cannot be set up") or 3)
if verdict == "none":
    print("Segmentation fault")
    sys.exit(139)
said = {"verdict": verdict, "message": f"as {release} on {words[words.index('--device') + 1]}"}
Path(words[words.index("--verdict") + 1]).write_text(json.dumps(said))
"""
"""Stands in for statecheck: it says which verdict a replay on a release comes to."""


@dataclass
class ToyBisect:
    """Runs `statecheck bisect` on releases that need no download."""

    folder: Path
    case: Path
    verdicts: dict[str, str]
    ready: set[str]

    def run(self, *arguments: str, case: Path | None = None) -> int:
        (self.folder / "verdicts.json").write_text(json.dumps(self.verdicts), encoding="utf-8")
        (self.folder / "tried").unlink(missing_ok=True)
        options = options_of(["bisect", str(case or self.case), "--device", "cpu", *arguments])
        return run_bisect(options, (sys.executable, "-c", PROGRAM, str(self.folder)))

    @property
    def tried(self) -> list[str]:
        path = self.folder / "tried"
        return path.read_text(encoding="utf-8").split() if path.exists() else []


RELEASES = {"0.25.1": "FIXED", "0.26.0": "KNOWN", "0.27.0": "FAILED", "0.27.1": "FAILED", "0.28.0": "FIXED"}


@pytest.fixture
def bisect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyBisect:
    case = a_case(subject="vllm", steps=(call("cdiv", x=4, y=2),)).save(tmp_path / "one" / "case.json")
    toy = ToyBisect(tmp_path, case, dict(RELEASES), {"0.27.0"})
    monkeypatch.setattr(Project, "root", tmp_path)
    monkeypatch.setattr(bisect_command, "releases_of", lambda _: sorted(RELEASES))
    monkeypatch.setattr(bisect_command, "is_ready", lambda release: release.version in toy.ready)
    return toy


COST = "downloads about 300 MB once, and takes a minute to set up"


def test_the_command_says_what_it_will_take_and_which_release_broke_and_repaired_it(
    bisect: ToyBisect, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bisect.run() == CLEAN
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"5 releases, 0.25.1 to 0.28.0; 1 are set up in {bisect.folder}; each other one that is tried {COST}",
        "--releases 0.29.0,0.33.0 tries only these",
    ]
    assert any(re.fullmatch(r"0\.26\.0: KNOWN \(\d+ s\): as 0\.26\.0 on cpu", line) for line in lines)
    assert lines[-1] == "wrong since 0.26.0, right since 0.28.0"
    assert bisect.tried[:3] == ["0.27.0", "0.25.1", "0.28.0"]


def test_only_releases_that_are_asked_for_are_tried(
    bisect: ToyBisect, capsys: pytest.CaptureFixture[str]
) -> None:
    bisect.run("--releases", "0.28.0, 0.27.0")
    assert bisect.tried == ["0.27.0", "0.28.0"]
    assert capsys.readouterr().out.endswith(
        "wrong since 0.27.0 or before, right since 0.28.0 at the latest\n"
    )


def test_a_release_that_cannot_be_set_up_is_neither_right_nor_wrong(
    bisect: ToyBisect, capsys: pytest.CaptureFixture[str]
) -> None:
    bisect.verdicts |= {"0.26.0": "missing", "0.27.0": "none"}
    bisect.ready = {"0.27.1"}
    bisect.run()
    output = capsys.readouterr().out
    assert "0.26.0: CANNOT BE SET UP" in output
    assert "0.27.0: NO VERDICT" in output
    assert "the replay ended with exit code 139: Segmentation fault" in output
    assert output.endswith(
        "wrong since 0.27.1 at the latest (no verdict on 0.26.0, 0.27.0), right since 0.28.0\n"
    )


@pytest.mark.parametrize(
    ("newest", "code"),
    [
        ("FIXED", CLEAN),
        ("FAILED", FALSIFIED),
        ("KNOWN", FALSIFIED),
        ("NOT APPLICABLE", INCOMPLETE),
        ("none", INCOMPLETE),
    ],
)
def test_the_exit_code_is_that_of_the_newest_one(bisect: ToyBisect, newest: str, code: int) -> None:
    bisect.verdicts["0.28.0"] = newest
    assert bisect.run() == code


def test_releases_that_were_not_tried_are_named_with_the_command_that_tries_them(
    bisect: ToyBisect, capsys: pytest.CaptureFixture[str]
) -> None:
    bisect.verdicts |= {"0.26.0": "FIXED", "0.27.0": "FIXED", "0.27.1": "FIXED"}
    bisect.run()
    output = capsys.readouterr().out
    assert "2 of 5 releases were not tried" in output
    line = next(line_ for line_ in output.splitlines() if line_.endswith(" tries all of them."))
    words = shlex.split(line.removesuffix(" tries all of them."))
    assert "--all" in words
    bisect.run("--all")
    assert sorted(bisect.tried) == sorted(RELEASES)


def test_the_release_that_the_case_was_seen_with_is_tried_first_or_asked_for(
    bisect: ToyBisect, capsys: pytest.CaptureFixture[str]
) -> None:
    bisect.verdicts["0.27.0"] = "FIXED"
    bisect.run()
    asked = "None of the releases that were tried is wrong: --first names the one that the case was seen with"
    assert asked in capsys.readouterr().out
    bisect.run("--first", "0.27.1")
    assert bisect.tried[0] == "0.27.1"


def test_the_report_of_the_case_gets_the_line(bisect: ToyBisect, capsys: pytest.CaptureFixture[str]) -> None:
    bisect.run()
    assert not (bisect.case.parent / FILE).exists()
    (bisect.case.parent / "report.md").write_text("# x\n\n## Run it again\n\nso\n", encoding="utf-8")
    bisect.run()
    assert "**wrong since 0.26.0, right since 0.28.0**" in (bisect.case.parent / "report.md").read_text()
    assert (bisect.case.parent / "report.html").is_file()
    assert f"report: {bisect.case.parent / 'report.md'}" in capsys.readouterr().out


def interrupted_at(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """Ctrl-C while this one is tried."""
    on_release = Replays.on_release

    def tried(self: Replays, name: str) -> TriedRelease:
        if name == release:
            raise KeyboardInterrupt
        return on_release(self, name)

    monkeypatch.setattr(Replays, "on_release", tried)


def test_results_before_an_interruption_are_told_and_kept(
    bisect: ToyBisect, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (bisect.case.parent / "report.md").write_text("# x\n\n## Run it again\n\nso\n", encoding="utf-8")
    interrupted_at(monkeypatch, "0.28.0")
    assert bisect.run() == INCOMPLETE
    output = capsys.readouterr().out
    assert "It was interrupted: 3 of 5 releases were not tried." in output
    assert "\nwrong since 0.27.0 at the latest (no verdict on 0.26.0)\n" in output
    assert "It was interrupted: 3 of 5 releases" in (bisect.case.parent / "report.md").read_text()


REFUSED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "releases": (("--releases", "latest"), "--vllm = 'latest', but should be the version of a release"),
    "odd releases": (("--releases", "1.x.2"), "releases = '1.x.2', but should be versions such as"),
    "subject": (
        ("--subject", "impl"),
        "subject = 'impl', but should be vllm or sglang or .*, which have releases",
    ),
    "device": (("--device", "tpu"), "device = 'tpu', but should be"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_options_are_refused_before_a_release_is_set_up(
    bisect: ToyBisect, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bisect.run(*arguments)
    assert bisect.tried == []


def test_the_case_s_own_subject_is_the_default(bisect: ToyBisect, tmp_path: Path) -> None:
    ours = replace(Case.load(bisect.case), subject="impl").save(tmp_path / "ours.json")
    with pytest.raises(ValueError, match="subject = 'impl'"):
        bisect.run(case=ours)
    assert bisect.run("--subject", "vllm", case=ours) == CLEAN


def test_releases_of_another_project_are_tried_in_their_own_environments(
    bisect: ToyBisect, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = replace(Case.load(bisect.case), subject="sglang").save(tmp_path / "sglang.json")
    bisect.verdicts = {"0.5.16": "FIXED", "0.5.18": "FAILED", "0.5.23": "FAILED"}
    assert bisect.run("--releases", ",".join(bisect.verdicts), case=case) == FALSIFIED
    assert bisect.tried == ["0.5.16", "0.5.23", "0.5.18"]
    assert capsys.readouterr().out.splitlines()[-1] == "wrong since 0.5.18 at the latest"


def test_a_replay_writes_its_verdict_down(tmp_path: Path, device: str) -> None:
    case = a_case(subject="impl", steps=(call("cdiv", x=4, y=2),)).save(tmp_path / "case.json")
    path = tmp_path / "verdict.json"
    main(["replay", str(case), "--device", device, "--verdict", str(path)])
    assert json.loads(path.read_text()) == {
        "verdict": "FIXED",
        "message": "impl now answers toys/divide by the rules",
    }
