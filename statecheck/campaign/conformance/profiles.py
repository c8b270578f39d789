"""Conformance profiles: named sets of properties, with a fixed number of examples of each.

`profiles.toml` has them. A profile's version changes with its properties, their examples, or what an example is drawn from.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from statecheck.subject import Subject
from statecheck.util.decode import Decoder
from statecheck.util.files import read_text

FILE = Path(__file__).with_name("profiles.toml")
_LARGEST = 1 << 20


@dataclass(frozen=True)
class ExampleSet:
    """Properties, by their ids, that get the same number of examples.

    Args:
        in_process: the number for a port of sequences that needs no processes of its own, whose examples take milliseconds; 0 for `examples`.
    """

    examples: int
    properties: list[str]
    in_process: int = 0


@dataclass(frozen=True)
class ConformanceProfile:
    """A profile as the file has it; `title` says in a sentence what it verifies."""

    title: str
    version: int
    sets: list[ExampleSet]

    def examples(self, subject: Subject) -> Mapping[str, int]:
        """The number of examples of each property, by the property's id."""
        cheap = subject.sequences is not None and not subject.sequences.isolated
        return {
            name: (cheap and one.in_process) or one.examples for one in self.sets for name in one.properties
        }


@cache
def profiles() -> dict[str, ConformanceProfile]:
    """All profiles by their names."""
    found: dict[str, ConformanceProfile] = Decoder().decode(
        tomllib.loads(read_text(FILE, _LARGEST)), dict[str, ConformanceProfile]
    )
    return found


def profile_of(name: str) -> ConformanceProfile:
    """The profile of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in profiles():
        raise ValueError(f"profile = {name!r}, but should be one of {', '.join(profiles())} [conform]")
    return profiles()[name]


def seed_of_profile(name: str) -> int:
    """The seed of all examples of a profile: 32 bits that depend on its name and version alone."""
    text = f"{name} {profile_of(name).version}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
