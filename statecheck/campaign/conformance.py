"""Conformance: profiles, which are named sets of properties with a fixed number of examples of each, and the expected failures of a project.

`profiles.toml` has the profiles. A profile's version changes with its properties, their examples, or what an example is drawn from. A project's
own file declares expected failures besides the known defects that the subject's adapter declares.
"""

from __future__ import annotations

import copy
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from statecheck.campaign.plan import Plan
from statecheck.execution.registry import Property
from statecheck.execution.selection import require_property
from statecheck.subject import Subject
from statecheck.subject.known import covers, unsupported_in
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
    """A profile as the file has it; `title` says in a sentence what it verifies, `device` where it runs unless a user names another device."""

    title: str
    version: int
    sets: list[ExampleSet]
    device: str = "auto"

    def examples(self, subject: Subject) -> Mapping[str, int]:
        """The number of examples of each property, by the property's id."""
        cheap = subject.sequences is not None and not subject.sequences.isolated
        return {
            name: (cheap and property_set.in_process) or property_set.examples
            for property_set in self.sets
            for name in property_set.properties
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


def with_xfails(plan: Plan, subject: Subject) -> Subject:
    """The subject with what the plan's file declares, too; without any declared defect where all failures count as new.

    Raises:
        ValueError: the file is not as `statecheck/subject/known.py` says, or declares a defect that the subject declares.
    """
    if not plan.as_new and not plan.xfails:
        return subject
    changed = copy.copy(subject)
    changed.known_deviations = ()
    if not plan.as_new:
        path, own = Path(plan.xfails), {defect.id for defect in subject.known_deviations}
        changed.known_deviations = (*subject.known_deviations, *subject.declared_in(path))
        for defect in changed.known_deviations[len(subject.known_deviations) :]:
            if defect.id in own:
                rule = "should not be that of a defect that the subject declares"
                raise ValueError(f"id = {defect.id!r}, but {rule} [{path}]")
    return changed


def unsupported(plan: Plan, tested: Mapping[str, Property], model: str = "") -> dict[str, str]:
    """By property, why it is not applicable according to the plan's file.

    Args:
        model: of a library of sequences: why it is not applicable to this model; "": why to none.

    Raises:
        ValueError: as `with_xfails`; or a name in an entry matches no property.
    """
    reasons: dict[str, str] = {}
    for entry in unsupported_in(Path(plan.xfails)) if plan.xfails else ():
        for name in entry.properties:
            require_property(name, tested, plan.xfails)
        if not covers(entry.models, model) if entry.models else bool(model):
            continue
        matched = [id_ for id_ in tested if covers(entry.properties, id_)]
        reasons |= dict.fromkeys(matched, f"declared as unsupported: {entry.why}")
    return reasons
