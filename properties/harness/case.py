"""A counterexample as data: what was called, what should have come out, what did."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from properties.harness.codec import decode, encode
from properties.harness.timeline import Timeline
from properties.harness.values import Call, Expected, Outcome, Step

SCHEMA = 3
_READABLE = (3, 2, 1)
_SINCE = {3: {"timeline": None}}
"""Fields that cases of earlier schemas lack, with what stands for their absence. Values have defaults of their own."""


@dataclass(frozen=True)
class Case:
    """One example of one property that a subject falsified.

    `expected` and `actual` hold an entry for each `Call` among `steps`, in order; `message` is the difference in one
    line. `seed` and `device` say how it was found, `timeline` is what a picture shows: no part of the case's identity.
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

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))

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
        if not isinstance(self.timeline, Timeline | None):
            raise ValueError(
                f"timeline = {self.timeline!r}, but should be a Timeline or null [Case.from_json]"
            )
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
