"""Environments of releases, made from an index of tiny wheels, with pip and with uv."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from statecheck.releases import bisect, environment
from statecheck.releases.environment import Release, enter, is_ready
from statecheck.subject.loading import PROJECTS, Project

slow = pytest.mark.slow
TORCH = "from importlib.util import find_spec; from pathlib import Path; print(Path(find_spec('torch').origin).resolve())"


PROJECT = replace(PROJECTS["vllm"], undeclared=())


@dataclass
class World:
    """An index that is a folder, and environments of its releases."""

    folder: Path
    project: Project = PROJECT

    @property
    def release(self) -> Release:
        return Release(self.project, "0.99.0")

    def offer(self, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()) -> None:
        """Put a wheel into the index."""
        about = f"{name}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        wheel = "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        whole = {
            **files,
            f"{about}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {need}" for need in requires), ""]),
            f"{about}/WHEEL": wheel,
        }
        whole[f"{about}/RECORD"] = "".join(f"{member},,\n" for member in (*whole, f"{about}/RECORD"))
        with zipfile.ZipFile(self.folder / "wheels" / f"{name}-{version}-py3-none-any.whl", "w") as file:
            for path, text in whole.items():
                file.writestr(path, text)

    def offer_release(self, source: str = "", requires: Sequence[str] = ()) -> None:
        files = {"vllm/__init__.py": source, "vllm/_C.abi3.so": "binary"}
        self.offer("vllm", self.release.version, files, requires)

    def checkout(self, source: str, **files: str) -> Release:
        tree = self.folder / "tree"
        for name, text in {"vllm/__init__.py": source, **files}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text, encoding="utf-8")
        return Release(self.project, environment.version_of(tree, self.project), tree)


@pytest.fixture(params=["pip", "uv"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    if request.param == "pip":
        if find_spec("pip") is None:
            pytest.skip("pip is not installed")
        monkeypatch.setattr("shutil.which", lambda name: None)
    elif shutil.which("uv") is None:
        pytest.skip("uv is not installed")
    for name in [variable for variable in os.environ if variable.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "UV_NO_CONFIG": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(tmp_path / "wheels"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setattr(Project, "root", tmp_path / "environments")
    monkeypatch.setattr(Project, "adapter", "vllm")
    return World(tmp_path)


def printed(python: Path, source: str, variables: Mapping[str, str] | None = None) -> str:
    """The output of a program in an environment."""
    environ = {**os.environ, **(variables or {})}
    return subprocess.run(
        [str(python), "-c", source], capture_output=True, text=True, check=True, env=environ
    ).stdout.strip()


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@slow
def test_a_release_is_set_up_once_with_its_requirements_and_borrows_torch(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requires = ["msgspec>=0", "msgspec<2", "aiohttp; python_version < '3'", "torch==1.0", "torchvision==1.0"]
    world.offer_release("import msgspec", requires)
    world.offer("msgspec", "1.0", {"msgspec.py": ""}, ["torch"])
    world.offer("torch", "9.0", {"torch/__init__.py": ""})
    world.offer("msgspec", "2.0", {"msgspec.py": ""})
    unfinished = world.release.folder / "lib" / "left.txt"
    unfinished.parent.mkdir(parents=True)
    unfinished.touch()
    python = enter(world.release)
    assert not unfinished.exists()
    version = (
        "import vllm; from importlib.metadata import version; print(version('vllm'), version('msgspec'))"
    )
    assert printed(python, version) == "0.99.0 1.0"
    assert printed(python, TORCH) == printed(Path(sys.executable), TORCH)
    assert not list(world.release.packages.glob("torch*"))
    before = contents(world.release.folder)
    assert (enter(world.release), contents(world.release.folder)) == (python, before)
    assert capsys.readouterr().out.count("setting up") == 1
    # An environment that borrows from elsewhere is another one.
    monkeypatch.setattr(sys, "path", [*sys.path, "/elsewhere/site-packages"])
    assert not is_ready(world.release)


@slow
def test_an_adapter_that_misses_a_name_of_the_release_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.offer("vllm", "0.99.0", {"vllm/__init__.py": "", "vllm/adapter.py": "from vllm import renamed"})
    monkeypatch.setattr(Project, "adapter", "vllm.adapter")
    with pytest.raises(ValueError, match=r"can be imported, but statecheck's adapter .* name 'renamed'"):
        enter(world.release)


@slow
def test_a_release_that_lacks_a_requirement_is_refused_with_the_place_that_lists_it(world: World) -> None:
    world.offer_release("import rarely_needed", ["rarely-needed>=3"])
    with pytest.raises(ValueError, match=r"No module named 'rarely_needed' \(subjects/projects\.toml"):
        enter(world.release)
    assert not is_ready(world.release)


@slow
def test_a_release_that_the_index_lacks_is_refused_with_the_words_of_the_installer(world: World) -> None:
    with pytest.raises(ValueError, match=r"vLLM 0\.99\.0 cannot be set up(.|\n)*vllm"):
        enter(world.release)


@slow
@pytest.mark.parametrize(("pin", "kept"), [("torch==2.13.0+cpu", False), ("torch==2.13.0+cu130", True)])
def test_libraries_are_kept_where_torch_may_have_a_gpu(
    pin: str, kept: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "installed_version", lambda name: pin.partition("==")[2])
    world.offer_release()
    enter(world.release)
    assert (world.release.packages / "vllm" / "_C.abi3.so").exists() == kept


@slow
def test_a_second_run_waits_for_the_run_that_makes_the_same_environment(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.offer_release()
    with ThreadPoolExecutor(2) as threads:
        first, second = (threads.submit(enter, world.release) for _ in range(2))
        assert first.result() == second.result()
    output = capsys.readouterr().out
    assert (output.count("setting up"), output.count("waiting for another process")) == (1, 1)


@slow
def test_a_checkout_is_imported_from_where_it_lies_and_left_alone(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.offer("msgspec", "1.0", {"msgspec.py": ""})
    world.offer("msgspec", "2.0", {"msgspec.py": ""})
    files = {
        "vllm/_version.py": "__version__ = version = '0.31.1.dev3'\n",
        "requirements/common.txt": "--index-url x\nmsgspec<2 # fast\n",
    }
    release = world.checkout("import msgspec", **files)
    before = contents(world.folder / "tree")
    source = "import vllm; from importlib.metadata import version; print(version('vllm'), version('msgspec'), vllm.__file__)"
    output = printed(enter(release), source, release.variables)
    assert output == f"0.31.1.dev3 1.0 {release.checkout}/vllm/__init__.py"
    assert contents(world.folder / "tree") == before
    # The checkout may have gone on since.
    python = enter(replace(release, version="0.40.0"))
    assert printed(python, "from importlib.metadata import version; print(version('vllm'))") == "0.40.0"
    assert capsys.readouterr().out.count("setting up") == 1
    (world.folder / "tree" / "requirements" / "common.txt").write_text("msgspec>=2")
    assert not is_ready(release)


@slow
def test_a_checkout_needs_no_index_where_everything_is_installed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_install", lambda *_: pytest.fail("installed"))
    release = world.checkout("import json")
    assert (
        printed(enter(release), "import vllm; print(vllm.__file__)") == f"{release.checkout}/vllm/__init__.py"
    )


def test_an_environment_that_was_not_finished_is_not_ready(world: World) -> None:
    world.release.folder.mkdir(parents=True)
    assert not is_ready(world.release)
    (world.release.folder / "complete.json").write_text(json.dumps(environment._ingredients(world.release)))
    assert is_ready(world.release)


@slow
def test_the_releases_of_the_index_are_listed_oldest_first_without_previews(world: World) -> None:
    for version in ("0.30.0", "0.3.0", "0.32.0rc1", "0.29.1.post1"):
        world.offer("vllm", version, {"vllm/__init__.py": ""})
    assert bisect.releases_of(world.project) == ["0.29.1.post1", "0.30.0"]
    with pytest.raises(ValueError, match="releases = none in the index"):
        bisect.releases_of(replace(world.project, distribution="nothing_of_that_name"))
