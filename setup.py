"""The packages of a wheel: `statecheck`, with the rooms of the repository in its folder `rooms`."""

from pathlib import Path

from setuptools import setup

ROOMS = ("impl", "oracle", "properties")
DATA = ("corpus", "vectors")
# Tests of the harness are tests of this repository.
LEFT_OUT = ("tests",)


def packages_in(room: str) -> list[str]:
    """The room and every package in it, as folders."""
    found = sorted(path.parent.as_posix() for path in Path(room).rglob("*.py"))
    folders = dict.fromkeys([room, *found, *(path.parent.as_posix() for path in Path(room).rglob("*.j2"))])
    return [one for one in folders if not any(f"{one}/".startswith(f"{left}/") for left in LEFT_OUT)]


FOLDERS = [*(folder for room in ROOMS for folder in packages_in(room)), *DATA]
PLACES = {"statecheck.rooms." + folder.replace("/", "."): folder for folder in FOLDERS}

setup(packages=["statecheck", *PLACES], package_dir={"statecheck": "statecheck", **PLACES})
