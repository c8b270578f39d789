"""The environment in a report: the facts that maintainers ask for, and none that is private."""

from __future__ import annotations

import getpass
import socket
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from statecheck.report import environment
from statecheck.report.environment import environment_table
from statecheck.subject import Subject
from tests.helpers.cases import a_case


def rows(name: str = "toy", release: str = "") -> dict[str, str]:
    subject = Subject(name, ModuleType(name), release=release)
    lines = environment_table(a_case(subject=name), subject).splitlines()[2:]
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
    return {first: rest[0] for first, *rest in cells}


def test_versions_platform_and_device_are_there_and_the_subject_s_release_first() -> None:
    assert next(iter(rows("vllm", "0.25.1").items())) == ("vllm", "0.25.1")
    found = rows()
    assert found["torch"] == version("torch")
    assert {"device", "python", "platform", "triton", "numpy", "hypothesis", "revision"} <= found.keys()
    assert "toy" not in found


def test_nothing_private_is_there() -> None:
    text = " ".join(f"{name} {value}" for name, value in rows("vllm", "0.25.1").items())
    home = str(Path.home())
    private = {getpass.getuser(), socket.gethostname(), str(Path.cwd()), home if home != "/" else "/home"}
    # A user may be called as a system is.
    usual = {"root", "localhost", "linux"}
    assert [word for word in private - usual if word in text] == []
    assert "/" not in text.replace("GNU/Linux", "")


def test_a_checkout_s_commit_stands_behind_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "toy_committed_engine"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x"), ("tag", "-am", "x", "v3")):
        subprocess.run([*git, *command], check=True)
    assert rows("toy_committed_engine", "3.0")["toy_committed_engine"] == "3.0 (commit v3)"


@dataclass
class DriverOutput:
    stdout: str
    returncode: int = 0


@pytest.mark.parametrize(
    ("message", "device"),
    [
        (DriverOutput("0, NVIDIA H100, 550.54.15\n"), "cuda (NVIDIA H100, driver 550.54.15)"),
        (DriverOutput("no driver", 9), "cuda"),
    ],
)
def test_a_gpu_is_named_with_its_driver(
    message: DriverOutput, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.gpus_here.cache_clear()
    done = cast("subprocess.CompletedProcess[str]", message)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert environment._device_name("cuda") == device
    environment.gpus_here.cache_clear()
