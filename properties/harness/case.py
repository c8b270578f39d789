"""A counterexample as data: what was called, what should have come out, what did."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from properties.harness.codec import decode, encode
from properties.harness.sanitizer.findings import FINDINGS
from properties.harness.suspect import Suspect
from properties.harness.timeline import Timeline
from properties.harness.values import Call, Expected, Outcome, Raised, Step

SCHEMA = 4
_READABLE = (4, 3, 2, 1)
_SINCE: dict[int, dict[str, object]] = {
    4: {"suspect": None, "finding": "", "order": None},
    3: {"timeline": None},
}
"""Fields that cases of earlier schemas lack, with what stands for their absence. Values have defaults of their own."""


@dataclass(frozen=True)
class Case:
    """One example of one property that a subject falsified.

    `expected` and `actual` hold an entry for each `Call` among `steps`, in order; `message` is the difference in one
    line. No part of the case's identity: `seed` and `device` say how it was found, `timeline` is what a picture shows,
    `suspect` which bytes are wrong, `finding` who wrote them, in a sentence or two, and `order` in which order of programs
    (see `schedules`) a case shows that the sanitizer has found, if there is one.
    """

    property_name: str
    sentence: str
    subject: str
    steps: tuple[Step, ...]
    expected: tuple[Expected, ...]
    actual: tuple[Outcome, ...]
    message: str
    device: str = "cpu"
    seed: int | None = None
    timeline: Timeline | None = None
    suspect: Suspect | None = None
    finding: str = ""
    order: str | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))

    def in_order(self, order: str) -> Case:
        """The same, with the programs of every launch in that order, where a call does not name another one."""
        steps = (
            replace(step, schedule=step.schedule or order) if isinstance(step, Call) else step
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))

    @property
    def sanitized(self) -> bool:
        """Whether it was the sanitizer that found it."""
        return any(isinstance(one, Raised) and one.exception in FINDINGS for one in self.actual)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify property, subject and input."""
        identity = json.dumps([self.property_name, self.subject, encode(self.steps)])
        return hashlib.sha256(identity.encode()).hexdigest()[:8]

    def to_json(self) -> str:
        content = {name: encode(getattr(self, name)) for name in self.__dataclass_fields__}
        return json.dumps({"schema": SCHEMA, **content}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case in `text`; executes nothing.

        Raises:
            ValueError: not JSON, an unknown schema version, or fields that a case does not have.
        """
        content = json.loads(text)
        schema = content.pop("schema", None) if isinstance(content, dict) else None
        if schema not in _READABLE:
            readable = " or ".join(map(str, _READABLE))
            raise ValueError(f"schema = {schema}, but should be {readable} [Case.from_json]")
        for since, absent in _SINCE.items():
            content = (absent if schema < since else {}) | content
        unknown = set(content) ^ set(cls.__dataclass_fields__)
        if unknown:
            raise ValueError(
                f"case fields = {sorted(unknown)}, but should be exactly a case's [Case.from_json]"
            )
        case = cls(**{name: decode(item) for name, item in content.items()})
        case._check_steps()
        return case

    def _check_steps(self) -> None:
        """Refuse what has all the fields of a case and is none."""
        kinds = {"steps": Step, "expected": Expected, "actual": Outcome}
        for name, kind in kinds.items():
            items = getattr(self, name)
            if not isinstance(items, tuple) or not all(isinstance(item, kind) for item in items):
                raise ValueError(f"{name} = {items!r}, but should be a tuple of {kind} [Case.from_json]")
        told = {
            "timeline": Timeline | None,
            "suspect": Suspect | None,
            "finding": str,
            "order": str | None,
        }
        for name, form in told.items():
            if not isinstance(getattr(self, name), form):
                raise ValueError(f"{name} = {getattr(self, name)!r}, but should be a {form} [Case.from_json]")
        asked = len(self.calls)
        lengths = (asked, len(self.expected), len(self.actual))
        if len(set(lengths)) > 1:
            raise ValueError(
                f"steps with an outcome, expected, actual = {lengths}, but should be as many each [Case.from_json]"
            )

    def save(self, path: Path, *, durable: bool = True) -> Path:
        """Write the case so that at every moment `path` holds a whole case or the one before.

        Args:
            durable: survive a power failure too, for some milliseconds. The end of the process is always survived.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self.to_json())
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
        return path

    @classmethod
    def load(cls, path: Path) -> Case:
        return cls.from_json(path.read_text(encoding="utf-8"))
