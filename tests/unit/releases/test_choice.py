"""Which release options name, and going on in its environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecheck.releases import start
from statecheck.releases.environment import Release
from statecheck.releases.start import ChosenRelease, chosen_release, go_on_in_release, run_on
from statecheck.subject.loading import PROJECTS
from statecheck.util.command_lines import CHOSEN

VLLM, SGLANG, LLAMACPP = PROJECTS["vllm"], PROJECTS["sglang"], PROJECTS["llamacpp"]


@pytest.fixture(autouse=True)
def no_release(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CHOSEN, start.LIBRARY):
        monkeypatch.setenv(name, "")


def checkout_in(folder: Path, name: str, text: str = "") -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text, encoding="utf-8")
    return folder.resolve()


def test_options_name_a_release_of_their_project() -> None:
    chosen = chosen_release({"vllm": "0.33.0", "vllm_path": None, "sglang": None, "sglang_path": ""})
    assert chosen == ChosenRelease(VLLM, "0.33.0")
    assert chosen.release == Release(VLLM, "0.33.0")
    assert chosen.words == ["--vllm", "0.33.0"]
    assert chosen_release({"vllm": None, "sglang": ""}) is None


def test_a_version_beside_a_checkout_says_which_release_it_counts_as(tmp_path: Path) -> None:
    folder = checkout_in(tmp_path, "vllm")
    (folder / "vllm" / "_version.py").write_text("__version__ = version = '0.31.1.dev3'\n")
    assert ChosenRelease(VLLM, path=str(tmp_path)).release == Release(VLLM, "0.31.1.dev3", folder)
    chosen = ChosenRelease(VLLM, "0.34.0", str(tmp_path))
    assert chosen.release == Release(VLLM, "0.34.0", folder)
    assert chosen.words == ["--vllm", "0.34.0", "--vllm-path", str(folder)]


def test_a_checkout_that_does_not_say_its_version_is_newer_than_all(tmp_path: Path) -> None:
    release = ChosenRelease(SGLANG, path=str(checkout_in(tmp_path, "sglang"))).release
    assert release is not None
    assert release.version == "999"


@pytest.mark.parametrize("beside", ["", "2026.10.11549"])
def test_a_library_stands_in_for_that_of_a_release(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "is_here", lambda release: True)
    library = tmp_path / "libllama.so"
    library.touch()
    options = {"llamacpp": beside, "llamacpp_path": str(library)} if beside else {"llamacpp": str(library)}
    chosen = chosen_release(options)
    assert chosen is not None
    assert chosen.release == (Release(LLAMACPP, beside) if beside else None)
    go_on_in_release("llamacpp", chosen, ["statecheck", "fuzz"])
    assert os.environ[start.LIBRARY] == str(library)


@pytest.mark.parametrize("version", ["latest", "--pre", "../0.25"])
def test_a_version_that_cannot_be_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"--vllm = '{version}', but should be the version of a release"):
        _ = ChosenRelease(VLLM, version).release


@dataclass
class Replaced(Exception):
    """The command that this process would have been replaced with."""

    python: str
    command: list[str]
    variables: dict[str, str]


def test_a_command_goes_on_in_the_environment_of_the_release_with_its_own_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def become(python: str, command: list[str], variables: dict[str, str]) -> None:
        raise Replaced(python, command, variables)

    monkeypatch.setattr("os.execve", become)
    monkeypatch.setattr(start, "enter", lambda release: Path(f"/environments/{release.version}/python"))
    command = ["statecheck", "fuzz", "--vllm", "0.99.0"]
    with pytest.raises(Replaced) as replaced:
        go_on_in_release("vllm", ChosenRelease(VLLM, "0.99.0"), command)
    python = "/environments/0.99.0/python"
    assert (replaced.value.python, replaced.value.command) == (python, [python, "-m", *command])
    assert replaced.value.variables[CHOSEN] == "--vllm 0.99.0"
    assert capsys.readouterr().out == f"statecheck: vLLM 0.99.0, with {python}\n"


def test_a_command_stays_here_for_other_subjects_and_installed_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.execve", lambda *_: pytest.fail("left"))
    go_on_in_release("impl", None, [])
    monkeypatch.setattr(start, "find_spec", lambda name: type("Spec", (), {"origin": "/vllm/__init__.py"}))
    monkeypatch.setattr(start, "installed_version", lambda package: "0.99.0+cpu")
    go_on_in_release("vllm", ChosenRelease(VLLM, "0.99.0"), [])
    go_on_in_release("vllm", None, [])
    assert CHOSEN not in os.environ


def test_a_missing_project_is_refused_with_the_option_that_names_a_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"vllm should be importable, or --vllm 0\.33\.0 \(a release\) or"):
        go_on_in_release("vllm", None, [])


def test_a_command_on_a_release_leaves_its_output_in_a_file(tmp_path: Path) -> None:
    program = (start.PROGRAM[0], "-c", "import sys; print(sys.argv[1:]); sys.exit(3)")
    assert run_on(Release(VLLM, "0.33.0"), ["replay", "1"], tmp_path / "log", program) == 3
    assert start.last_line(tmp_path / "log") == "['replay', '1', '--vllm', '0.33.0']"
