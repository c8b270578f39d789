"""The packages of a wheel: `statecheck`, with the other rooms of the repository in its folder `_installed`."""

from pathlib import Path

from setuptools import setup

ROOMS = ("impl", "oracle", "properties", "subjects")
DATA = ("corpus",)


def packages_in(room: str) -> list[str]:
    """The room and every package in it, as folders."""
    sources = [*Path(room).rglob("*.py"), *Path(room).rglob("*.j2")]
    return sorted({room, *(path.parent.as_posix() for path in sources)})


FOLDERS = [*(folder for room in ROOMS for folder in packages_in(room)), *DATA]
PLACES = {"statecheck._installed." + folder.replace("/", "."): folder for folder in FOLDERS}
OWN = [folder.replace("/", ".") for folder in packages_in("statecheck")]

setup(packages=[*OWN, *PLACES], package_dir={"statecheck": "statecheck", **PLACES})
