"""`statecheck workflow` prints a required check, with the address from which this statecheck can be installed."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck import rooms
from statecheck.cli.main import main
from statecheck.cli.workflow import CALLABLE, workflow_text
from tests.helpers.modules import ROOT

ADDRESS = "git+https://example.org/statecheck@v0.1.0"
FILE = ROOT / ".github/workflows/conform.yml"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
needs_yaml = pytest.mark.skipif(find_spec("yaml") is None, reason="PyYAML is not installed")


def parsed(text: str) -> Any:
    return import_module("yaml").safe_load(text)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["workflow", "--statecheck", ADDRESS, *arguments]) == 0
    return capsys.readouterr().out


def test_the_workflow_that_others_call_has_the_same_steps() -> None:
    assert FILE.read_text(encoding="utf-8") == workflow_text("github", CALLABLE, is_callable=True)


@needs_yaml
def test_each_step_is_a_command_of_the_shell_without_text_that_others_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = parsed(printed(capsys, "--subject", "my_port", "--xfails", "xfails.toml"))["jobs"]["conform"]
    assert job["env"] | {"STATECHECK": ADDRESS, "SUBJECT": "my_port", "XFAILS": "xfails.toml"} == job["env"]
    commands = [one["run"] for one in job["steps"] if "run" in one]
    for command in commands:
        assert "${{" not in command
        subprocess.run(["bash", "-n", "-c", command], check=True)
    (pinned,) = re.findall(r"^torch==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert f"pip install {pinned} --index-url" in commands[0]
    whole = parsed(FILE.read_text(encoding="utf-8"))["jobs"]["conform"]
    assert [one.get("run") for one in whole["steps"]] == [one.get("run") for one in job["steps"]]


@needs_yaml
def test_a_step_of_buildkite_has_the_same_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--subject", "vllm", "--release", "VLLM_PATH=.", "--system", "buildkite")
    (step,) = parsed(text)["steps"]
    assert step["env"] | {"RELEASE": "VLLM_PATH=.", "SUBJECT": "vllm"} == step["env"]
    command = step["command"].replace("$$", "$")
    subprocess.run(["bash", "-n", "-c", command], check=True)
    assert 'statecheck conform --subject "$SUBJECT" --profile "$PROFILE"' in command


def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    out = tmp_path / ".github/workflows/statecheck.yml"
    assert main(["workflow", "--statecheck", ADDRESS, "--subject", "my_port", "--out", str(out)]) == 0
    assert ADDRESS in out.read_text(encoding="utf-8")


def test_an_address_that_nothing_says_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("statecheck.cli.workflow.origin", lambda: "")
    assert main(["workflow", "--subject", "my_port"]) == 3
    assert "--statecheck ADDRESS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "address"),
    [
        (
            {"url": "https://example.org/s.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"git+https://example.org/s.git@{COMMIT}",
        ),
        ({"url": "https://example.org/s.whl", "archive_info": {}}, "https://example.org/s.whl"),
        ({"url": "file:///elsewhere/s.whl", "archive_info": {}}, ""),
        ({"url": "file://HERE/wheels/s%20a.whl", "archive_info": {}}, "./wheels/s a.whl"),
        ({"url": "file:///elsewhere", "dir_info": {}}, ""),
        ({}, ""),
    ],
)
def test_the_address_is_where_pip_took_the_package_from(
    data: dict[str, Any], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rooms, "is_checkout", lambda: False)
    found = data | ({"url": data["url"].replace("HERE", str(tmp_path))} if data else {})
    monkeypatch.setattr(rooms, "_direct_url", lambda: found)
    assert rooms.origin() == address
