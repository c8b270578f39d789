"""A counterexample as data: what was called, what should have come out, what did."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statecheck.case.codec import DECODER, encode, spread
from statecheck.case.failure import Failure, WrongBytes
from statecheck.case.rules import check_cost, check_names
from statecheck.case.timeline import Timeline
from statecheck.case.values import Call, Expected, Outcome, Raised, Step
from statecheck.util.decode import format_value
from statecheck.util.files import write_whole
from statecheck.util.json_files import load, parse

SCHEMA = 13
EARLIER_CALLS, CHANCE = "earlier calls", "chance"
DEPENDENCIES = ("", EARLIER_CALLS, CHANCE)
_RULE = f"a case of schema {SCHEMA}"


@dataclass(frozen=True)
class Case:
    """One example of one property: its calls, and what went wrong if something did.

    `expected` and `actual` hold an entry for each `Call` among `steps`, in order; `failure` says how the subject broke the
    property, None where nothing is known to be wrong. No part of the case's identity: `seed` and `device` say how it was
    found, `timeline` is what block tables show, `wrong_bytes` which bytes are wrong, `finding` who wrote them, in a sentence or two,
    `own_calls` for each call how a port's own functions were called
    for it, a line each; `first_seen` the "date" and the "commit" of the first campaign that met it, and the "source" of the subject, see `source_of`; and `property_id` the
    property's id, "" where it has none. `depends_on` says what the failure takes beside the example itself, "" for nothing:
    `EARLIER_CALLS`, or `CHANCE`; of the former, the first `history` calls are those that it takes, 0 where these are not known.
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
    wrong_bytes: WrongBytes | None = None
    finding: str = ""
    own_calls: tuple[str, ...] = ()
    first_seen: dict[str, str] = field(default_factory=dict, hash=False)
    property_id: str = ""
    history: int = 0
    depends_on: str = ""

    @property
    def is_decisive(self) -> bool:
        """Whether the steps hold all that the failure depends on, so that a run without it says that the defect is gone."""
        return not self.depends_on or self.history > 0

    @property
    def message(self) -> str:
        """What went wrong in a line."""
        return self.failure.message if self.failure is not None else "nothing is known to be wrong"

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def model(self) -> str:
        """The model of a library of sequences that it is about, "" for none; earlier examples come first, and may have others."""
        made = next((call.named for call in reversed(self.calls) if call.function == "Sequences"), {})
        return str(made.get("model", ""))

    @property
    def sanitized(self) -> bool:
        """Whether it was the sanitizer that found it."""
        return any(
            isinstance(outcome, Raised) and outcome.kind in ("memory", "race") for outcome in self.actual
        )

    @property
    def fault(self) -> Raised | None:
        """The first fault or hang, which ended the process; None where there was none."""
        raised = (outcome for outcome in self.actual if isinstance(outcome, Raised))
        return next((outcome for outcome in raised if outcome.kind in ("fault", "hang")), None)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify property, subject and input."""
        identity = json.dumps([self.property_name, self.subject, encode(self.steps)])
        return hashlib.sha256(identity.encode()).hexdigest()[:8]

    def to_json(self) -> str:
        return spread(self.to_data()) + "\n"

    def to_data(self) -> dict[str, Any]:
        """What `to_json` spells, as part of other files."""
        names = self.__dataclass_fields__
        return {"schema": SCHEMA} | {name: encode(getattr(self, name)) for name in names}

    @classmethod
    def from_json(cls, text: str) -> Case:
        """The case in `text`; executes nothing.

        Raises:
            ValueError: not JSON, another schema, or fields that a case does not have.
        """
        return cls.from_data(parse(text, _RULE))

    @classmethod
    def from_data(cls, data: Any) -> Case:
        """As `from_json`, of parsed JSON; `data` is not changed."""
        content = dict(data) if isinstance(data, dict) else {}
        schema = content.pop("schema", None)
        if type(schema) is not int or schema != SCHEMA:
            known = type(schema) is int
            why = f": {'a newer' if schema > SCHEMA else 'an older'} version has written it" if known else ""
            raise ValueError(f"schema = {format_value(schema)}, but should be {SCHEMA} [Case.from_json]{why}")
        try:
            case: Case = DECODER.build(cls, content)
            case._check()
        except ValueError as error:
            raise ValueError(f"{error} [Case.from_json]") from error
        return case

    def _check(self) -> None:
        """Refuse what has all the fields of a case and is none."""
        asked = len(self.calls)
        lengths = (asked, len(self.expected), len(self.actual))
        if len(set(lengths)) > 1:
            raise ValueError(
                f"steps with an outcome, expected, actual = {lengths}, but should be as many each"
            )
        if self.failure is not None:
            numbers = {"call": (self.failure.call or 0,), "about": self.failure.about}
            for name, calls in numbers.items():
                if not all(0 <= number < max(1, asked) for number in calls):
                    rule = f"the number of one of {asked} calls"
                    raise ValueError(f"failure.{name} = {getattr(self.failure, name)}, but should be {rule}")
        if self.depends_on not in DEPENDENCIES:
            raise ValueError(
                f"depends_on = {format_value(self.depends_on)}, but should be one of {DEPENDENCIES}"
            )
        if not 0 <= self.history <= max(0, asked - 1):
            raise ValueError(f"history = {self.history}, but should be less than {max(1, asked)} calls")
        check_names(self)
        check_cost(self)

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
        """The case in a file; executes nothing.

        Raises:
            OSError: there is no such file, or it cannot be read.
            ValueError: no regular file, too large, or no case; names the file.
        """
        try:
            return cls.from_data(load(path, _RULE))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
