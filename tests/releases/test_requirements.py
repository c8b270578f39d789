"""What a release or a checkout requires, and what names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from statecheck.releases import requirements, start
from statecheck.releases.checkout import requirements_of, version_of
from statecheck.releases.environment import Wanted


def checkout_in(folder: Path, files: Mapping[str, str]) -> Wanted:
    """A working tree with a package vllm."""
    for name, text in {"vllm/__init__.py": "import msgspec\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Wanted(version_of(folder), folder.resolve())


def test_requirements_of_a_checkout_follow_files_that_they_refer_to(tmp_path: Path) -> None:
    checkout_in(
        tmp_path, {"requirements.txt": "-r more.txt\n--index-url x\nregex\n", "more.txt": "tqdm>=1 # why\n"}
    )
    assert {name: str(one) for name, one in requirements_of(tmp_path).items()} == {
        "tqdm": "tqdm>=1",
        "regex": "regex",
    }


def test_what_is_heavy_is_never_installed() -> None:
    required = requirements.needed(["PyYAML>=6", "lark", "torch==2", "nvidia-cudnn", "flashinfer-python"])
    assert requirements.all_but_heavy(required) == ["pyyaml>=6", "lark"]


def test_requirements_of_one_name_hold_together() -> None:
    required = requirements.needed(["tqdm>=1", "tqdm<3; python_version > '3'", "tqdm==9; extra == 'all'"])
    assert requirements.light(required)[0] == "tqdm<3,>=1"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"VLLM": "latest"}, "VLLM = 'latest', but should be the version of a release"),
        ({"VLLM": "--pre"}, "VLLM = '--pre'"),
        ({"VLLM": "../0.25"}, "VLLM = "),
        ({"VLLM_PATH": "/nowhere"}, "VLLM_PATH = '/nowhere', but should be a folder with vllm/__init__.py"),
    ],
)
def test_variables_that_cannot_be_are_refused(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start.wanted_by(variables)


def test_a_version_beside_a_path_is_that_of_the_checkout(tmp_path: Path) -> None:
    checkout_in(tmp_path, {"vllm/_version.py": "__version__ = '1.0'\n"})
    assert start.wanted_by({"VLLM_PATH": str(tmp_path)}) == Wanted("1.0", tmp_path.resolve())
    assert start.wanted_by({"VLLM_PATH": str(tmp_path), "VLLM": "2.0"}) == Wanted("2.0", tmp_path.resolve())
    assert start.wanted_by({"VLLM": " ", "VLLM_PATH": ""}) is None
