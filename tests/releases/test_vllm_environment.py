"""Environments of releases, made from an index of tiny wheels."""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from statecheck.releases import start
from statecheck.releases.environment import Maker, Wanted, this_base
from statecheck.releases.pip import releases_of
from statecheck.releases.project import PROJECTS, VLLM, Project
from tests.releases.test_requirements import checkout_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pip") is None, reason="environments are made with pip"),
]
RELEASE = Wanted("0.99.0", project=replace(VLLM, unsaid=()))


@dataclass
class World:
    """An index that is a folder, and a maker of environments that has no other."""

    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def maker(self) -> Maker:
        root = self.folder / "environments"
        return Maker(this_base(root), root, "vllm", self.said.append)

    def offer(self, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()) -> None:
        """Put a wheel into the index."""
        about = f"{name}-{version}.dist-info"
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        wheel = "Wheel-Version: 1.0\nGenerator: here\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        whole = {
            **files,
            f"{about}/METADATA": "\n".join([*lines, *(f"Requires-Dist: {one}" for one in requires), ""]),
            f"{about}/WHEEL": wheel,
        }
        whole[f"{about}/RECORD"] = "".join(f"{one},,\n" for one in (*whole, f"{about}/RECORD"))
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as file:
            for path, text in whole.items():
                file.writestr(path, text)

    def offer_release(self, source: str = "", requires: Sequence[str] = ()) -> None:
        self.offer(
            "vllm", RELEASE.version, {"vllm/__init__.py": source, "vllm/_C.abi3.so": "binary"}, requires
        )

    def enter(self, wanted: Wanted = RELEASE) -> Path:
        """The environment's interpreter."""
        environment = self.maker.enter(wanted)
        environment.leave()
        return environment.python

    def packages(self, wanted: Wanted = RELEASE) -> Path:
        return next((self.maker.root / wanted.key / "lib").glob("python*/site-packages"))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in [one for one in os.environ if one.startswith(("PIP_", "VLLM"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    monkeypatch.setitem(PROJECTS, "vllm", RELEASE.project)
    return World(tmp_path)


def says(python: Path, source: str, variables: Mapping[str, str] | None = None) -> str:
    """What a program prints in an environment."""
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(
        [str(python), "-c", source], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def content(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_release_is_set_up_once_with_its_requirements_and_the_torch_of_the_base(
    world: World,
) -> None:
    world.offer_release(
        "import msgspec", ["msgspec<2", "aiohttp; python_version < '3'", "torch==1.0", "torchvision==1.0"]
    )
    world.offer("msgspec", "1.0", {"msgspec.py": ""})
    world.offer("msgspec", "2.0", {"msgspec.py": ""})
    half_made = world.maker.root / RELEASE.key / "lib" / "left.txt"
    half_made.parent.mkdir(parents=True)
    half_made.touch()
    python = world.enter()
    assert not half_made.exists()
    versions = (
        "import vllm; from importlib.metadata import version; print(version('vllm'), version('msgspec'))"
    )
    assert says(python, versions) == "0.99.0 1.0"
    torch = "from importlib.util import find_spec; print(find_spec('torch').origin)"
    assert says(python, torch) == says(Path(sys.executable), torch)
    assert not list(world.packages().glob("torch*"))
    # A ready environment is used as it is; one of another base is not.
    before = content(world.maker.root)
    assert (world.enter(), content(world.maker.root)) == (python, before)
    assert len(world.said) == 1
    numpy = f"numpy=={importlib.metadata.version('numpy')}"
    assert not replace(world.maker, base=replace(world.maker.base, pins=(numpy,))).is_ready(RELEASE)


def test_where_what_is_light_is_not_enough_everything_that_is_required_is_installed(world: World) -> None:
    world.offer_release("import rarely_needed", ["rarely-needed>=3", "torchvision==1.0"])
    world.offer("rarely_needed", "4.0", {"rarely_needed.py": "import ijson"}, ["ijson"])
    world.offer("ijson", "1.0", {"ijson.py": ""})
    world.enter()
    missing = "ModuleNotFoundError: No module named 'rarely_needed'"
    assert f"statecheck: vLLM 0.99.0 needs all that it requires: {missing}" in world.said


HEAVY = {
    "torch": r"base = torch==(?s:.*)msgspec 1.0 depends on torch==1.0",
    "nvidia-nccl-cu13": r"nvidia.nccl.cu13 = '1.0', but should be the base environment's",
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_requirement_that_brings_another_torch_or_something_heavy_is_refused(
    world: World, name: str
) -> None:
    world.offer_release(requires=["msgspec"])
    world.offer("msgspec", "1.0", {"msgspec.py": ""}, [f"{name}==1.0"])
    world.offer(name.replace("-", "_"), "1.0", {"heavy.py": ""})
    with pytest.raises(ValueError, match=HEAVY[name]):
        world.enter()
    assert not world.maker.is_ready(RELEASE)
    assert not list(world.packages().glob("heavy*"))


@pytest.mark.parametrize(("torch", "kept"), [("torch==2.13.0+cpu", False), ("torch==2.13.0+cu130", True)])
def test_libraries_are_kept_where_a_gpu_may_be(world: World, torch: str, kept: bool) -> None:
    library = world.folder / "package" / "_C.so"
    library.parent.mkdir()
    library.touch()
    maker = replace(world.maker, base=replace(world.maker.base, pins=(torch,)))
    maker._drop_libraries(library.parent)
    assert library.exists() == kept


def test_an_environment_in_use_is_not_made_anew(world: World) -> None:
    world.offer_release()
    used = world.maker.enter(RELEASE)
    other = replace(world.maker, base=replace(world.maker.base, pins=()))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(other.enter, RELEASE)
        while not any("waiting for another process" in line for line in world.said):
            assert not waiting.done()
        assert world.maker.is_ready(RELEASE)
        used.leave()
        waiting.result().leave()
    assert other.is_ready(RELEASE)


def test_an_index_that_cannot_be_reached_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ValueError, match=r"the package index .* cannot be reached"):
        world.enter()


def test_the_releases_of_the_index_are_listed_oldest_first_without_previews(world: World) -> None:
    for version in ("0.10.0", "0.9.2", "0.11.0rc1", "0.8.5.post1"):
        world.offer("vllm", version, {"vllm/__init__.py": ""})
    assert releases_of(Path(sys.executable), "vllm") == ["0.8.5.post1", "0.9.2", "0.10.0"]
    with pytest.raises(ValueError, match=r"releases of nothing_of_that_name cannot be listed"):
        releases_of(Path(sys.executable), "nothing_of_that_name")
    with pytest.raises(
        ValueError, match=r"VLLM = '0.99.0', but should be a release that the package index has"
    ):
        world.enter()


def test_a_checkout_is_imported_from_where_it_lies_and_left_alone(world: World) -> None:
    world.offer("msgspec", "1.0", {"msgspec.py": ""})
    files = {
        "vllm/_version.py": "__version__ = version = '0.31.1.dev3'\n",
        "requirements/common.txt": "msgspec # fast\n",
    }
    wanted = checkout_in(world.folder / "tree", files, RELEASE.project)
    before = content(world.folder / "tree")
    message = "import vllm; from importlib.metadata import version; print(version('vllm'), vllm.__file__)"
    python = world.enter(wanted)
    assert (
        says(python, message, world.maker.variables(wanted))
        == f"0.31.1.dev3 {wanted.checkout}/vllm/__init__.py"
    )
    assert content(world.folder / "tree") == before
    # The checkout may have gone on since.
    python = world.enter(replace(wanted, version="0.40.0"))
    assert says(python, "from importlib.metadata import version; print(version('vllm'))") == "0.40.0"
    assert len(world.said) == 1


def test_a_checkout_that_everything_is_there_for_needs_no_index(world: World) -> None:
    wanted = checkout_in(world.folder / "tree", {"vllm/__init__.py": "import json"}, RELEASE.project)
    assert (
        says(world.enter(wanted), "import vllm; print(vllm.__file__)")
        == f"{wanted.checkout}/vllm/__init__.py"
    )


@dataclass
class Replaced(Exception):
    """What this process would have been replaced with."""

    python: str
    command: list[str]
    variables: dict[str, str]


@pytest.fixture
def begin(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Start a command on a subject, in a process that does not become another one."""

    def become(python: str, command: list[str], variables: dict[str, str]) -> None:
        raise Replaced(python, command, variables)

    monkeypatch.setattr(Project, "root", world.maker.root)
    monkeypatch.setattr(Project, "adapter", "vllm")
    monkeypatch.setattr("os.execve", become)
    return lambda subject: start.go_on_in_release(
        argparse.Namespace(subject=subject), ["fuzz", "--seed", "1"]
    )


def test_a_command_goes_on_in_the_environment(
    world: World,
    begin: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    world.offer_release()
    monkeypatch.setenv("VLLM", RELEASE.version)
    with pytest.raises(Replaced) as replaced:
        begin("vllm")
    assert replaced.value.python == str(world.maker.python(RELEASE))
    assert replaced.value.command[1:] == ["-m", "statecheck", "fuzz", "--seed", "1"]
    assert capfd.readouterr().out.splitlines()[-1] == f"statecheck: vLLM 0.99.0, with {replaced.value.python}"


def test_a_command_stays_where_it_is_for_other_subjects_and_installed_releases(
    begin: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM", RELEASE.version)
    begin("impl")
    monkeypatch.setattr(start, "find_spec", lambda name: find_spec("json"))
    monkeypatch.setattr(start, "_installed", lambda package: f"{RELEASE.version}+cpu")
    begin("vllm")
    monkeypatch.delenv("VLLM")
    begin("vllm")
    monkeypatch.setattr(start, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"or VLLM=0.33.0 \(a release\) or VLLM_PATH=<checkout> be set"):
        begin("vllm")
