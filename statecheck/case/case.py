"""A counterexample as data: what was called, what should have come out, what did."""

from __future__ import annotations

import hashlib
import json
import keyword
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import prod
from pathlib import Path
from typing import Any

from statecheck.case import failure, timeline, values
from statecheck.case.failure import Failure, WrongBytes
from statecheck.case.timeline import Timeline
from statecheck.case.values import (
    ITEM_SIZES,
    Address,
    Attribute,
    Call,
    DType,
    Expected,
    Fake,
    Function,
    Let,
    Name,
    Outcome,
    Overwrite,
    Raised,
    Record,
    SameAs,
    Step,
    Tensor,
    Value,
    View,
    outer_axes,
    parsed,
)
from statecheck.util.decode import Decoder, Misfit, format_value, require_once
from statecheck.util.files import load_json, parse_json, write_whole

TAGS: dict[str, type] = {
    name: kind
    for module in (values, timeline, failure)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.__name__
    # A comparison's own, of which a Failure has what is saved.
    if kind is not failure.Difference
}
"""The dataclasses that a case consists of, by the tag that they are saved with."""
DECODER = Decoder(TAGS)
_TAG_OF = {kind: tag for tag, kind in TAGS.items()}
SAVED_FIELDS = {kind: tuple(field.name for field in fields(kind) if field.repr) for kind in TAGS.values()}
"""What is saved of a value: all that its `repr` has; other fields belong to one run."""
_WIDTH = 120
_LONG = 64
_PLAIN_TYPES = frozenset({type(None), bool, int, str})


def encode(value: Value) -> Any:
    """`value` as JSON data. Scalars and lists stand for themselves; everything else is tagged with its type."""
    kind = type(value)
    if kind in _PLAIN_TYPES:
        return value
    if kind in _TAG_OF:
        return {_TAG_OF[kind]: {name: encode(getattr(value, name)) for name in SAVED_FIELDS[kind]}}
    if isinstance(value, float):
        # JSON has no number for infinity and NaN, whatever Python makes of them.
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (int, str)):
        return value
    if isinstance(value, list):
        return _each(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return _padded(value) or {"tuple": _each(value)}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    raise ValueError(f"value = {value!r}, but should be plain data [encode]")


def _each(items: Sequence[Value]) -> list[Any]:
    # A tensor has many elements.
    return list(items) if set(map(type, items)) <= _PLAIN_TYPES else [encode(item) for item in items]


def _padded(value: tuple[Value, ...]) -> dict[str, list[Any]] | None:
    """A tuple that ends in one int many times, as tables with room do: what comes before, the int, how many times."""
    if len(value) < _LONG or type(value[-1]) is not int:
        return None
    other = (
        at for at in range(len(value) - 1, -1, -1) if value[at] != value[-1] or type(value[at]) is not int
    )
    kept = next(other, -1) + 1
    if len(value) - kept < _LONG:
        return None
    return {"padded": [_each(value[:kept]), value[-1], len(value) - kept]}


def decode(data: Any) -> Value:
    """The value that `encode` wrote.

    Raises:
        ValueError: the data have a tag or a field that no value has, or lack one.
    """
    return DECODER.decode(data, Any, "data")


def spread(data: Any, indent: int = 0) -> str:
    """JSON over several lines, as few as are still to be read: what fits on one stands on it, as do scalars of one list."""
    if isinstance(data, dict):
        if len(data) == 1:
            ((key, item),) = data.items()
            return f"{{{json.dumps(key)}: {spread(item, indent)}}}"
        ends = "{}"
        items = [f"{json.dumps(key)}: {spread(item, indent + 1)}" for key, item in data.items()]
    elif isinstance(data, list):
        ends = "[]"
        items = [spread(item, indent + 1) for item in data]
    else:
        return json.dumps(data)
    line = ", ".join(items)
    flat = isinstance(data, list) and not any(isinstance(item, (dict, list)) for item in data)
    if flat or (len(line) < _WIDTH - indent and "\n" not in line):
        return f"{ends[0]}{line}{ends[1]}"
    margin = "\n" + " " * (indent + 1)
    return f"{ends[0]}{margin}{f',{margin}'.join(items)}{margin[:-1]}{ends[1]}"


SCHEMA = 14
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
    for it, a line each; `first_seen` the "date" and the "commit" of the first campaign that met it, and the "source" of the subject, see `source_of`. `depends_on` says what the failure takes beside the example itself, "" for nothing:
    `EARLIER_CALLS`, or `CHANCE`; of the former, the first `history` calls are those that it takes, 0 where these are not known.
    """

    property_id: str
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

    def failing_part(self, call: int) -> str:
        """The part of this call's outcome that is wrong, see `Failure.part`; "" where the failure is of another call."""
        return self.failure.part if self.failure is not None and self.failure.call == call else ""

    @property
    def model(self) -> str:
        """The model of a library of sequences that it is about, "" for none; earlier examples come first, and may have others."""
        made = next((call.named for call in reversed(self.calls) if call.function == "Sequences"), {})
        return str(made.get("model", ""))

    @property
    def sanitized(self) -> bool:
        """Whether it was the sanitizer that found it."""
        return any(isinstance(outcome, Raised) and outcome.is_finding for outcome in self.actual)

    @property
    def fault(self) -> Raised | None:
        """The first fault or hang, which ended the process; None where there was none."""
        raised = (outcome for outcome in self.actual if isinstance(outcome, Raised))
        return next((outcome for outcome in raised if outcome.kind in ("fault", "hang")), None)

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify property, subject and input."""
        identity = json.dumps([self.property_id, self.subject, encode(self.steps)])
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
        return cls.from_data(parse_json(text, _RULE))

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
            return cls.from_data(load_json(path, _RULE))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def named(cls, path: Path, command: str) -> Case:
        """The case in a file that a person named; see `load`.

        Raises:
            ValueError: as `load`, or the file cannot be read; names the command.
        """
        try:
            return cls.load(path)
        except OSError as error:
            raise ValueError(
                f"case = {str(path)!r}, but should be a readable file [{command}]: {error}"
            ) from error


# What a case from elsewhere may name, and how much memory it may ask for. Names of a case are looked up in a subject, are written into
# scripts as they are, and become names of files: they are names and nothing else. Everything else that a case says is text, and is
# formatted or escaped wherever it is shown.

VARIABLES = frozenset({"VLLM_SSM_CONV_STATE_LAYOUT"})
"""What a call may have in its environment: any other variable could name code."""
MOST_BYTES = 64 * 2**30
"""Memory of all tensors of a case, written to or not. What the strategies draw comes to 10 GiB, nearly all of it untouched."""
MOST_RUNS = 1 << 26
"""Pieces of memory of one view. The strategies draw 2**25 blocks with a gap behind each; where pieces are listed, `values` allows fewer."""
_MOST_WRITTEN = 1 << 24
_MOST_AXES = 64
"""As many as torch has. Each axis takes part in products, of which thousands take minutes."""
_INT_BITS, _MOST_BITS = 64, 2048
"""Bits that all ints beyond 64 bits may have together. A result is described up to 14,000 bits, so that a formula's product of them is described, too."""
_LONGEST_NAME = 200
_ID = re.compile(r"[a-z0-9-]+/[a-z0-9-]+")
_INDEX = r"\[(?:\d{1,9}|'[A-Za-z0-9_. ]{1,200}')\]"
_PATH = re.compile(rf"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|{_INDEX})*", re.ASCII)
_NAME_RULE = "a name: ASCII letters, digits and _, not a word of Python's, without __ in front"
_DEVICES = ("cpu", "cuda")


def check_names(case: Case) -> None:
    """Refuse a case whose names are no names.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    require_property_id(case.property_id, "property_id")
    require_subject(case.subject, "subject")
    if case.device not in _DEVICES:
        raise Misfit("device", case.device, f"one of {', '.join(_DEVICES)}")
    for place, value in (*values_inside(case.steps, "steps"), *values_inside(case.expected, "expected")):
        _check(value, place)
    for place, value in values_inside(case.actual, "actual"):
        # What a subject returned may be of any type, and its attributes of any name.
        if isinstance(value, Tensor):
            _check_elements(value, place, (int, float))


def require_subject(name: str, place: str) -> None:
    """Refuse what is neither a module nor an engine, a plus sign, and the module whose functions stand in it.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    for part in name.split("+", 1):
        require_path(part, place, indices=False)


def require_property_id(id_: str, place: str) -> None:
    """Refuse an id that cannot be typed where ids are looked up.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    if len(id_) > _LONGEST_NAME or not _ID.fullmatch(id_):
        raise Misfit(place, id_, "<topic>/<word>, each of a-z, 0-9 and '-'")


def check_cost(case: Case) -> None:
    """Refuse a case that asks for more memory than any case needs.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    whole = 0
    for place, value in values_inside((*case.steps, *case.expected), "steps"):
        if isinstance(value, (Tensor, View, Fake)):
            # Each axis takes long, and may be a filling that takes no room in the file.
            for name, numbers in (("shape", value.shape), ("strides", value.strides or ())):
                if len(numbers) > _MOST_AXES:
                    raise Misfit(f"{place}.{name}", numbers, f"of at most {_MOST_AXES} axes")
        if isinstance(value, (Tensor, View)):
            whole += _storage_bytes(value, place)
    if whole > MOST_BYTES:
        rule = f"at most {MOST_BYTES}"
        raise Misfit("bytes of all tensors", whole, f"{rule}, or replaying the case would use up the machine")
    bits = _large_bits(case.steps)
    if bits > _MOST_BITS:
        rule = f"at most {_MOST_BITS}, or no result of them could be written down"
        raise Misfit(f"bits of all ints beyond {_INT_BITS} bits", bits, rule)


def _large_bits(value: Any) -> int:
    """The bits of all ints in a value that an int64 or a uint64 cannot hold."""
    if type(value) is int:
        return value.bit_length() if value.bit_length() > _INT_BITS else 0
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        # Of elements of tensors there may be millions.
        if kinds <= {int} and (not value or (max(value) >> _INT_BITS) | (min(value) >> _INT_BITS) in (0, -1)):
            return 0
        return sum(map(_large_bits, value)) if kinds - {str, float, bool} else 0
    if isinstance(value, dict):
        return sum(_large_bits(key) + _large_bits(item) for key, item in value.items())
    if is_dataclass(value):
        return sum(_large_bits(getattr(value, field.name)) for field in fields(value))
    return 0


def _storage_bytes(value: Tensor | View, place: str) -> int:
    """The bytes of the storage of a tensor whose form is checked; 0 for a view, whose storage is another's."""
    strides = value.strides or ()
    if value.strides is not None and len(strides) != len(value.shape):
        raise Misfit(f"{place}.strides", strides, f"as many as shape = {value.shape} has")
    for name, numbers in (("shape", value.shape), ("strides", strides), ("offset", (value.offset,))):
        if any(number < 0 for number in numbers):
            raise Misfit(f"{place}.{name}", numbers, "without negative numbers")
    size = ITEM_SIZES[value.dtype]
    if prod(value.shape) * size > MOST_BYTES:
        raise Misfit(f"{place}.shape", value.shape, f"of at most {MOST_BYTES} bytes")
    # Axes in the order in which they lie in memory: a transposed view may be in one piece.
    by_stride = sorted(zip(strides, value.shape, strict=False), reverse=True)
    outer, _ = outer_axes(tuple(count for _, count in by_stride), tuple(stride for stride, _ in by_stride))
    if prod(count for count, _ in outer) > MOST_RUNS:
        raise Misfit(f"{place}.shape", value.shape, f"in at most {MOST_RUNS} pieces of memory")
    if isinstance(value, View):
        return 0
    if value.elements is not None and prod(value.shape) > _MOST_WRITTEN:
        raise Misfit(f"{place}.shape", value.shape, f"of at most {_MOST_WRITTEN} elements")
    return value.storage_size * size


def values_inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The dataclasses in a value, each with its place."""
    if isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            if not isinstance(item, (int, str)):
                yield from values_inside(item, f"{place}[{at}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from values_inside(key, f"a key of {place}")
            yield from values_inside(item, f"{place}[{format_value(key)}]")
    elif is_dataclass(value):
        yield place, value
        for field in fields(value):
            yield from values_inside(getattr(value, field.name), f"{place}.{field.name}")


_NAMES: dict[type, str] = {Name: "name", Let: "name", Overwrite: "name", Record: "type", View: "of"}
_PATHS: dict[type, str] = {Function: "name", Attribute: "path", SameAs: "path", Address: "argument"}
_WITH_INDICES = (SameAs, Address)
_DTYPES: dict[type, str] = {Tensor: "dtype", View: "dtype", Fake: "dtype", DType: "name"}
"""The fields that hold names, dotted names and types of elements."""


def _check(value: Any, place: str) -> None:
    """The names that the value itself has."""
    kind = type(value)
    if kind in _DTYPES and getattr(value, _DTYPES[kind]) not in ITEM_SIZES:
        rule = f"one of {', '.join(ITEM_SIZES)}"
        raise Misfit(f"{place}.{_DTYPES[kind]}", getattr(value, _DTYPES[kind]), rule)
    if kind in _NAMES:
        _require_name(getattr(value, _NAMES[kind]), f"{place}.{_NAMES[kind]}")
    if kind in _PATHS:
        path, indices = getattr(value, _PATHS[kind]), kind in _WITH_INDICES
        require_path(path, f"{place}.{_PATHS[kind]}", indices=indices)
    if isinstance(value, Tensor):
        _check_elements(value, place, (int,))
        if isinstance(value.elements, bytes) and value.dtype != "uint8":
            raise Misfit(
                f"{place}.elements",
                value.elements,
                f"ints, since only uint8 has bytes, and not {value.dtype}",
            )
    if isinstance(value, Record):
        _require_names((name for name, _ in value.fields), f"{place}.fields")
    if isinstance(value, Call):
        _check_call(value, place)


def _check_elements(tensor: Tensor, place: str, kinds: tuple[type, ...]) -> None:
    elements = tensor.elements if isinstance(tensor.elements, tuple) else ()
    if not set(map(type, elements)) <= set(kinds):
        wrong = next(element for element in elements if type(element) not in kinds)
        raise Misfit(f"{place}.elements", wrong, " or ".join(kind.__name__ for kind in kinds))


def _check_call(call: Call, place: str) -> None:
    require_path(call.function, f"{place}.function", indices=False)
    _require_names((name for name, _ in (*call.arguments, *call.keywords)), f"{place}.arguments")
    # Or else the port would raise it in the call, as if the subject had.
    parsed(call.schedule)
    for name in ("bind", "updates"):
        if getattr(call, name):
            _require_name(getattr(call, name), f"{place}.{name}")
    for name in call.observes:
        require_path(name, f"{place}.observes", indices=False)
    for name, text in call.environment:
        if name not in VARIABLES:
            raise Misfit(f"{place}.environment", name, f"one of {', '.join(sorted(VARIABLES))}")
        if not text.isascii() or "\0" in text:
            raise Misfit(
                f"{place}.environment[{name!r}]", text, "text that an environment can have: ASCII without NUL"
            )


def _require_names(names: Iterable[str], place: str) -> None:
    named = list(names)
    for name in named:
        _require_name(name, place)
    require_once(named, place)


def _require_name(name: str, place: str) -> None:
    if not _is_name(name):
        raise Misfit(place, name, _NAME_RULE)


def _is_name(name: str) -> bool:
    plain = name.isascii() and name.isidentifier() and len(name) <= _LONGEST_NAME
    return plain and not name.startswith("__") and not keyword.iskeyword(name)


def require_path(path: str, place: str, *, indices: bool = True) -> None:
    """Refuse what is no dotted name; with `indices` also numbers or plain text in brackets, as in a place in a result.

    Raises:
        ValueError: names the place, the value and the rule.
    """
    parts = re.sub(_INDEX, "", path).split(".") if indices else path.split(".")
    if not (_PATH.fullmatch(path) and all(map(_is_name, parts))):
        raise Misfit(place, path, f"{_NAME_RULE}; several with dots between them")
