"""Private interfaces of other tools: one module each, made for versions that it names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from statecheck.execution.private import hypothesis as private_hypothesis
from statecheck.execution.private import pytest as private_pytest
from statecheck.kernels import private as private_triton

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("tool", "made_for"),
    [
        ("triton", private_triton.MADE_FOR),
        ("hypothesis", private_hypothesis.MADE_FOR),
        ("pytest", private_pytest.MADE_FOR),
    ],
)
def test_the_versions_that_it_was_made_for_are_the_bound_and_the_pin(
    tool: str, made_for: tuple[str, str]
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = next(one for one in map(Requirement, project["dependencies"]) if one.name == tool)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = map(Requirement, re.findall(r"^[\w-]+==\S+", constraints, re.MULTILINE))
    pin = next(pinned for pinned in pins if pinned.name == tool)
    oldest, newest = (minor(next(iter(each.specifier)).version) for each in (wanted, pin))
    assert (oldest, newest) == tuple(map(minor, made_for))


def minor(text: str) -> tuple[int, int]:
    found = Version(text)
    return found.major, found.minor
