"""What a release or a checkout requires, and what names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from statecheck.releases import requirements, start
from statecheck.releases.checkout import requirements_of, version_of
from statecheck.releases.environment import Wanted
from statecheck.releases.project import PROJECTS, VLLM, Project


def checkout_in(folder: Path, files: Mapping[str, str], project: Project = VLLM) -> Wanted:
    """A working tree with the project's package."""
    for name, text in {f"{project.package}/__init__.py": "import msgspec\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Wanted(version_of(folder, project), folder.resolve(), project)


def test_requirements_of_a_checkout_follow_files_that_they_refer_to(tmp_path: Path) -> None:
    checkout_in(
        tmp_path, {"requirements.txt": "-r more.txt\n--index-url x\nregex\n", "more.txt": "tqdm>=1 # why\n"}
    )
    assert {name: str(one) for name, one in requirements_of(tmp_path, VLLM).items()} == {
        "tqdm": "tqdm>=1",
        "regex": "regex",
    }


def test_what_is_heavy_is_never_installed() -> None:
    required = requirements.needed(["PyYAML>=6", "lark", "torch==2", "nvidia-cudnn", "flashinfer-python"])
    assert requirements.all_but_heavy(required) == ["pyyaml>=6", "lark"]


def test_requirements_of_one_name_hold_together() -> None:
    required = requirements.needed(["tqdm>=1", "tqdm<3; python_version > '3'", "tqdm==9; extra == 'all'"])
    assert requirements.light(required, VLLM)[0] == "tqdm<3,>=1"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"VLLM": "latest"}, "VLLM = 'latest', but should be the version of a release"),
        ({"VLLM": "--pre"}, "VLLM = '--pre'"),
        ({"VLLM": "../0.25"}, "VLLM = "),
        ({"VLLM_PATH": "/nowhere"}, "VLLM_PATH = '/nowhere', but should be a folder with vllm/__init__.py"),
        ({"SGLANG": "latest"}, "SGLANG = 'latest', but should be the version of a release, such as 0.5.23"),
        (
            {"SGLANG_PATH": "/nowhere"},
            "SGLANG_PATH = '/nowhere', but should be a folder with sglang/__init__",
        ),
    ],
)
def test_variables_that_cannot_be_are_refused(variables: dict[str, str], message: str) -> None:
    project = next(one for one in PROJECTS.values() if next(iter(variables)).startswith(one.variable))
    with pytest.raises(ValueError, match=message):
        start.wanted_by(variables, project)


def test_a_release_is_chosen_by_the_variables_of_its_own_project(tmp_path: Path) -> None:
    sglang = PROJECTS["sglang"]
    variables = {"SGLANG": "0.5.23", "VLLM": "0.33.0"}
    assert str(start.wanted_by(variables, sglang)) == "SGLang 0.5.23"
    assert str(start.wanted_by(variables, VLLM)) == "vLLM 0.33.0"
    files = {"sglang/__init__.py": "", "pyproject.toml": '[project]\ndependencies = ["orjson>=3"]\n'}
    wanted = checkout_in(tmp_path, files, sglang)
    assert start.wanted_by({"SGLANG_PATH": str(tmp_path)}, sglang) == wanted
    assert requirements.light(requirements_of(tmp_path, sglang), sglang) == ["orjson>=3", "dill"]


def test_a_version_beside_a_path_is_that_of_the_checkout(tmp_path: Path) -> None:
    checkout_in(tmp_path, {"vllm/_version.py": "__version__ = '1.0'\n"})
    assert start.wanted_by({"VLLM_PATH": str(tmp_path)}) == Wanted("1.0", tmp_path.resolve())
    assert start.wanted_by({"VLLM_PATH": str(tmp_path), "VLLM": "2.0"}) == Wanted("2.0", tmp_path.resolve())
    assert start.wanted_by({"VLLM": " ", "VLLM_PATH": ""}) is None
