"""A counterexample as data: what was called, what should have come out, what did."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from properties.harness.case.codec import decode, encode, spread
from properties.harness.case.earlier import failure_in
from properties.harness.case.failure import Failure
from properties.harness.files import write_whole
from properties.harness.sanitizer.findings import FINDINGS
from properties.harness.suspect import Suspect
from properties.harness.timeline import Timeline
from properties.harness.values import Call, Expected, Outcome, Raised, Step

SCHEMA = 8
_READABLE = (8, 7, 6, 5, 4, 3, 2, 1)
_SINCE: dict[int, dict[str, object]] = {
    8: {"own_calls": {"tuple": []}},
    7: {"interleaving": ""},
    5: {"first_seen": {"dict": []}},
    4: {"suspect": None, "finding": "", "order": None},
    3: {"timeline": None},
}
"""Fields that cases of earlier schemas lack, with what stands for their absence. Values have defaults of their own."""
_STRUCTURED = 6
"""Before that a sentence, `message`, said what went wrong."""
_VERSIONS = " or ".join(map(str, _READABLE))


@dataclass(frozen=True)
class Case:
    """One example of one property: its calls, and what went wrong if something did.

    `expected` and `actual` hold an entry for each `Call` among `steps`, in order; `failure` says how the subject broke the
    property, None where nothing is known to be wrong. No part of the case's identity: `seed` and `device` say how it was
    found, `timeline` is what a picture shows, `suspect` which bytes are wrong, `finding` who wrote them, in a sentence or two,
    `interleaving` what its programs did side by side, in Markdown, `order` in which order of programs (see `schedules`) Triton's
    interpreter shows it in a script: a case that the sanitizer has found, or one with switches between operations;
    `own_calls` for each call how a port's own functions were called for it, a line each; and `first_seen` the "date" and the
    "commit" of the first campaign that met it.
    """

    property_name: str
    sentence: str
    subject: str
    steps: tuple[Step, ...]
    expected: tuple[Expected, ...]
    actual: tuple[Outcome, ...]
    failure: Failure | None
    device: str = "cpu"
    seed: int | None = None
    timeline: Timeline | None = None
    suspect: Suspect | None = None
    finding: str = ""
    interleaving: str = ""
    order: str | None = None
    own_calls: tuple[str, ...] = ()
    first_seen: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def message(self) -> str:
        """What went wrong in a line."""
        return self.failure.message if self.failure is not None else "nothing is known to be wrong"

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

    def reordered(self, order: str) -> Case:
        """The same, with the programs in that order where a call names one."""
        steps = (
            replace(step, schedule=order) if isinstance(step, Call) and step.schedule else step
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
        return spread(self.to_data()) + "\n"

    def to_data(self) -> dict[str, Any]:
        """What `to_json` spells, as part of other files."""
        content = {name: encode(getattr(self, name)) for name in self.__dataclass_fields__}
        return {"schema": SCHEMA, **content}

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case in `text`; executes nothing.

        Raises:
            ValueError: not JSON, an unknown schema version, or fields that a case does not have.
        """
        return cls.from_data(_parsed(text))

    @classmethod
    def from_data(cls, data: Any) -> Case:
        """As `from_json`, of what JSON stands for; `data` stays as it is."""
        content = dict(data) if isinstance(data, dict) else {}
        schema = content.pop("schema", None)
        if schema not in _READABLE:
            newer = isinstance(schema, int) and schema > SCHEMA
            why = ": a newer version has written it" if newer else ""
            raise ValueError(f"schema = {schema}, but should be {_VERSIONS} [Case.from_json]{why}")
        for since, absent in _SINCE.items():
            content = (absent if schema < since else {}) | content
        said = "message" if schema < _STRUCTURED else "failure"
        unknown = set(content) ^ (set(cls.__dataclass_fields__) - {"failure"} | {said})
        if unknown:
            raise ValueError(
                f"case fields = {sorted(unknown)}, but should be exactly a case's [Case.from_json]"
            )
        message = content.pop("message", None)
        case = cls(**{"failure": None} | {name: decode(item) for name, item in content.items()})
        case._check_steps()
        return case._as_told(message) if said == "message" else case

    def _as_told(self, message: Any) -> Case:
        """The case with the failure that its sentence tells of, as earlier schemas have it."""
        if not isinstance(message, str):
            raise ValueError(f"message = {message!r}, but should be text [Case.from_json]")
        found = failure_in(message, self.calls, self.expected, self.actual, self.device)
        return replace(self, failure=found)

    def _check_steps(self) -> None:
        """Refuse what has all the fields of a case and is none."""
        kinds = {"steps": Step, "expected": Expected, "actual": Outcome}
        for name, kind in kinds.items():
            items = getattr(self, name)
            if not isinstance(items, tuple) or not all(isinstance(item, kind) for item in items):
                raise ValueError(f"{name} = {items!r}, but should be a tuple of {kind} [Case.from_json]")
        told = {
            **dict.fromkeys(("property_name", "sentence", "subject", "device"), str),
            "failure": Failure | None,
            "seed": int | None,
            "timeline": Timeline | None,
            "suspect": Suspect | None,
            "finding": str,
            "interleaving": str,
            "order": str | None,
            "own_calls": tuple,
            "first_seen": dict,
        }
        for name, form in told.items():
            if not isinstance(getattr(self, name), form):
                raise ValueError(f"{name} = {getattr(self, name)!r}, but should be a {form} [Case.from_json]")
        if not all(isinstance(one, str) for pair in self.first_seen.items() for one in pair):
            raise ValueError(f"first_seen = {self.first_seen}, but should be of text [Case.from_json]")
        if not all(isinstance(one, str) for one in self.own_calls):
            raise ValueError(f"own_calls = {self.own_calls!r}, but should be of text [Case.from_json]")
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
        write_whole(path, self.to_json(), durable=durable)
        return path

    @classmethod
    def load(cls, path: Path) -> Case:
        return cls.from_json(path.read_text(encoding="utf-8"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"case = no JSON ({error}), but should be a case of schema {_VERSIONS} [Case.from_json]"
        ) from error
