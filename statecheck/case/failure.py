"""What went wrong in an example: the first place where an outcome differs from what the rules expect, in words, whether a property can read a result
at all, and the failure as data: bucket, known defects and reports read its fields, and its sentence is made of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, isinf, prod
from typing import Literal, get_args

from statecheck.case.values import (
    CANARY,
    ITEM_SIZES,
    LARGEST,
    Address,
    Attribute,
    Bounded,
    BufferMaker,
    Call,
    Device,
    DType,
    Expected,
    Fake,
    Function,
    KernelAccess,
    Name,
    NumPy,
    Outcome,
    Raised,
    Record,
    Refusal,
    Returned,
    Returns,
    Rows,
    SameAs,
    Tensor,
    Value,
    View,
    floats_of,
)

NOTHING_WRONG = "nothing"  # of a law that holds; otherwise a sentence stands there that says what breaks it


@dataclass(frozen=True)
class Difference:
    """`place` was observed to be `observed`, but should be `expected`; `tensors` are (expected, observed) if it is one.

    `sentence`: what was observed, where it says itself what is wrong. `tensor`: the place of the tensor in which an element is wrong, at `index`, or
    whose surrounding memory was written to, at byte `guard`: 1 is the first behind it, and -1 the last before it.
    """

    place: str
    observed: str
    expected: str
    tensors: tuple[Tensor, Tensor] | None = None
    sentence: str = ""
    tensor: str = ""
    index: tuple[int, ...] | None = None
    guard: int | None = None

    @property
    def seen(self) -> str:
        return self.sentence or f"{self.place} = {self.observed}"

    @property
    def wanted(self) -> str:
        return "" if self.sentence else f"should be {self.expected}"

    def __str__(self) -> str:
        return f"{self.seen}, but {self.wanted}" if self.wanted else self.seen


def outcome_difference(
    expected: Expected, actual: Outcome, *, places: bool, part: str = ""
) -> Difference | None:
    """Compare an outcome with the expected one: the first difference, or the one in `part`, see `Failure.part`, if that has one.

    Args:
        places: whether host and device memory are compared, too.
    """
    first = None
    for found in outcome_differences(expected, actual, places=places):
        if part in ("", without_indices(found.place)):
            return found
        first = first or found
    return first


def outcome_differences(expected: Expected, actual: Outcome, *, places: bool) -> Iterator[Difference]:
    """The first difference of the result, and of each other thing that is observed; of a call that wrote elsewhere that alone."""
    if actual.changed:
        yield Difference(", ".join(actual.changed), "written to", "left as it was, memory around it included")
        return
    if isinstance(expected, Refusal):
        differs = _refusal_difference(expected, actual)
    elif isinstance(actual, Raised):
        right = (
            " in which nothing is wrong"
            if _nothing_is_wrong(expected.value)
            else f", {brief(expected.value)}"
        )
        differs = Difference("the call", brief_raised(actual), f"a result{right}")
    else:
        differs = difference(expected.value, actual.value, "result", places=places)
    if differs is not None:
        yield differs
        if isinstance(actual, Raised) != isinstance(expected, Refusal):
            # The call ended in another way: what it leaves is no second failure.
            return
    known = dict(expected.after)
    for name, seen in actual.after:
        differs = difference(known[name], seen, name, places=places) if name in known else None
        if differs is not None:
            yield differs


def _nothing_is_wrong(value: Value) -> bool:
    if isinstance(value, Record):
        return all(_nothing_is_wrong(item) for _, item in value.fields)
    return value == NOTHING_WRONG


def _refusal_difference(expected: Refusal, actual: Outcome) -> Difference | None:
    wanted = f"{expected.exception} that names {expected.argument}"
    if not isinstance(actual, Raised):
        return Difference("result", brief(actual.value), wanted)
    named = re.search(rf"(?<!\w){re.escape(expected.argument)}(?!\w)", actual.message)
    if actual.exception != expected.exception or (expected.argument and not named):
        return Difference("the call", brief_raised(actual), wanted)
    return None


def difference(expected: Value, actual: Value, place: str, *, places: bool) -> Difference | None:
    """Depth-first comparison of two values; bool and int are different types here, as are list and tuple."""
    if isinstance(actual, Record) and actual.type == "Damaged":
        return damage(actual, place)
    if isinstance(expected, Bounded):
        return _bounded_difference(expected, actual, place)
    if type(expected) is not type(actual):
        return Difference(place, brief(actual), brief(expected))
    if isinstance(expected, Tensor):
        return _tensor_difference(expected, actual, place, places=places)
    if isinstance(expected, Record):
        return _record_difference(expected, actual, place, places=places)
    if isinstance(expected, dict):
        if [(type(key), key) for key in expected] != [(type(key), key) for key in actual]:
            return Difference(f"{place} keys", repr(list(actual)), repr(list(expected)))
        pairs = ((f"{place}[{key!r}]", item, actual[key]) for key, item in expected.items())
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            return Difference(f"len({place})", str(len(actual)), str(len(expected)))
        pairs = ((f"{place}[{i}]", item, actual[i]) for i, item in enumerate(expected))
    else:
        if expected == actual:
            return None
        sentence = str(actual) if expected == NOTHING_WRONG else ""
        return Difference(place, brief(actual), brief(expected), sentence=sentence)
    return _first(pairs, places)


def _first(pairs, places: bool) -> Difference | None:  # type: ignore[no-untyped-def]
    differences = (difference(item, other, place, places=places) for place, item, other in pairs)
    return next(filter(None, differences), None)


def _record_difference(expected: Record, actual: Record, place: str, *, places: bool) -> Difference | None:
    if expected.type != actual.type:
        return Difference(f"type({place})", actual.type, expected.type)
    observed = dict(actual.fields)
    for field, item in expected.fields:
        if field not in observed:
            return Difference(f"{place}.{field}", "missing", brief(item))
        differs = difference(item, observed[field], f"{place}.{field}", places=places)
        if differs is not None:
            return differs
    return None


def _tensor_difference(expected: Tensor, actual: Tensor, place: str, *, places: bool) -> Difference | None:
    for name in ("dtype", "shape"):
        if getattr(expected, name) != getattr(actual, name):
            values = str(getattr(actual, name)), str(getattr(expected, name))
            return Difference(f"{place}.{name}", *values, (expected, actual))
    if places and expected.on != actual.on:
        return Difference(f"{place}.device", actual.on, expected.on)
    if expected.is_dense and actual.is_dense and expected.elements == actual.elements:
        return None
    want, got = expected.values(), actual.values()
    write = hexadecimal if isinstance(expected.elements, bytes) else str
    indices = itertools.product(*map(range, expected.shape))
    for index, wanted, seen in zip(indices, want, got, strict=True):
        if wanted != seen:
            where = f"{place}[{', '.join(map(str, index))}]"
            tensors = (expected, actual)
            return Difference(where, write(seen), write(wanted), tensors, tensor=place, index=index)
    return None


def _bounded_form(expected: Bounded, actual: Value, place: str) -> Difference | None:
    """Whether the value is a tensor of the expected type and shape; of memory that is observed as bytes, whether there are as many."""
    if not isinstance(actual, Tensor):
        return Difference(place, brief(actual), brief(expected))
    if isinstance(actual.elements, bytes):
        pairs = [(f"len({place})", len(actual.elements), len(expected.raw))]
    else:
        pairs = [
            (f"{place}.{name}", getattr(actual, name), getattr(expected, name)) for name in ("dtype", "shape")
        ]
    return next(
        (Difference(where, str(seen), str(want)) for where, seen, want in pairs if seen != want), None
    )


def _bounded_difference(expected: Bounded, actual: Value, place: str) -> Difference | None:
    """The first element that is not within its bound, or not the expected bytes."""
    if (difference := _bounded_form(expected, actual, place)) is not None:
        return difference
    size, raw = ITEM_SIZES[expected.dtype], expected.raw
    seen: Sequence[float] = actual.values()
    if isinstance(actual.elements, bytes):
        raw = actual.elements
        seen = floats_of(raw, expected.dtype)
    near = {at: (value, bound) for at, value, bound in expected.near}
    for at, found in enumerate(seen):
        own, other = (one[at * size : (at + 1) * size] for one in (raw, expected.raw))
        if at in near:
            value, bound = near[at]
            is_right, wanted = (
                _is_within(found, value, bound, expected.dtype),
                f"within {bound:.3g} of {value:.9g}",
            )
        else:
            is_right, wanted = own == other, f"{floats_of(other, expected.dtype)[0]!r} to the bit"
        if not is_right:
            where = f"{place}[{', '.join(map(str, expected.index(at)))}]"
            # Memory is observed as bytes.
            index = (at * size,) if isinstance(actual.elements, bytes) else expected.index(at)
            return Difference(where, f"{found:.9g}", wanted, tensor=place, index=index)
    return None


def _is_within(found: float, value: float, bound: float, dtype: str) -> bool:
    """Whether a number of this type is one within a bound; an infinity stands for all numbers that the type cannot hold."""
    if isinf(found) and found * value > 0:
        return abs(value) + bound > LARGEST[dtype]
    return bound == inf or abs(found - value) <= bound


def damage(actual: Record, place: str) -> Difference:
    """The guard byte nearest to the tensor at `place` that is not what it was."""
    before, after = actual["before"][::-1], actual["after"]
    at, side = min(
        (at, side)
        for side, guard in (("before", before), ("behind", after))
        for at, byte in enumerate(guard)
        if byte != CANARY
    )
    seen = (before if side == "before" else after)[at]
    where = f"byte {at + 1} {side} {place}"
    guard = -at - 1 if side == "before" else at + 1
    return Difference(where, hexadecimal(seen), hexadecimal(CANARY), tensor=place, guard=guard)


def hexadecimal(byte: int) -> str:
    return f"0x{byte:02x}"


def brief_outcome(outcome: Outcome | Refusal) -> str:
    """The outcome of a call, or the expected outcome, in a line."""
    if isinstance(outcome, Returned):
        return brief(outcome.value)
    if isinstance(outcome, Raised):
        return brief_raised(outcome)
    return f"{outcome.exception}{f' that names {outcome.argument}' if outcome.argument else ''}"


def brief_raised(raised: Raised) -> str:
    """Type and message of the exception, and the line of the subject that it came from."""
    message = f"{raised.exception}: {raised.message}"
    return f"{message} ({raised.at})" if raised.at is not None else message


def call_text(call: Call, name: str = "") -> str:
    """The call as Python writes it: a method with its receiver before it; `name`: of the function, where it is not the documents'."""
    given = call.named
    function = name or call.function
    if not name and isinstance(given.get("self"), Name):
        function = f"{brief(given.pop('self'))}.{call.function.rpartition('.')[2]}"
    return f"{function}({', '.join(f'{name}={brief(value)}' for name, value in given.items())})"


def brief(value: Value, limit: int = 24) -> str:
    """`value` in a line: tensors as `int32[0, 5]`, long ones cut in the middle."""
    if isinstance(value, Tensor):
        return _brief_tensor(value, limit)
    if isinstance(value, Bounded):
        return f"{value.dtype}{list(value.shape)} within bounds"
    if isinstance(value, bytes):
        return _cut_bytes(value, limit)
    if isinstance(value, Record):
        return f"{value.type}({', '.join(f'{name}={brief(item, limit)}' for name, item in value.fields)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {brief(item, limit)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(brief(item, limit) for item in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return _brief_reference(value, limit)


def _brief_reference(value: Value, limit: int) -> str:
    """A line for a function, a name, or a part of another value; a plain value as it is."""
    match value:
        case Call():
            return f"<{value.bind or value.updates or value.function}>"
        case DType():
            return f"torch.{value.name}"
        case Name() | Function():
            return value.name
        case Returns():
            return f"lambda: {brief(value.value, limit)}"
        case Device():
            return "device"
        case BufferMaker():
            return "make_buffer"
        case View():
            return f"<{value.dtype}{list(value.shape)} in {value.of}>"
        case Fake():
            return f"<{value.dtype}{list(value.shape)} at {value.address:#x}>"
        case Rows() | NumPy():
            return f"<{type(value).__name__.lower()} of {brief(value.of, limit)}>"
        case Attribute():
            return f"{brief(value.of, limit)}.{value.path}"
        case SameAs():
            return f"{value.path} itself"
        case Address():
            return f"the address of {value.argument} + {value.offset} bytes"
        case _:
            return repr(value)


def _brief_tensor(tensor: Tensor, limit: int) -> str:
    if tensor.elements is None:
        return f"{tensor.dtype}{list(tensor.shape)} with any contents"
    if isinstance(tensor.elements, bytes) and tensor.is_dense:
        return f"{tensor.dtype}{list(tensor.shape)} {_cut_bytes(tensor.elements, limit)}"
    if len(tensor.shape) == 1:
        return f"{tensor.dtype}{_cut(tensor.values(), limit)}"
    if len(tensor.shape) == 2:
        rows = ", ".join(_cut(row, limit) for row in tensor.rows())
        return f"{tensor.dtype}[{rows}]"
    return f"{tensor.dtype}{list(tensor.shape)} {_cut(tensor.values(), limit)}"


def _cut_bytes(raw: bytes, limit: int) -> str:
    if len(raw) <= limit:
        return raw.hex(" ")
    return f"{raw[: limit - 2].hex(' ')} ... {raw[-2:].hex(' ')}"


def _cut(elements: Sequence[int], limit: int) -> str:
    if len(elements) <= limit:
        return "[" + ", ".join(map(str, elements)) + "]"
    head, tail = elements[: limit // 2], elements[-2:]
    return f"[{', '.join(map(str, head))}, ... {len(elements)} in all ..., {', '.join(map(str, tail))}]"


def form_difference(expected: Value, actual: Value, place: str) -> Difference | None:
    """The first part of `actual` that a property cannot read as the rules' value of that part; its numbers are not compared.

    Types, lengths of containers and dimensions, as far as the rules know them. Lengths of tensors are not part of the form: properties have
    sentences of their own about them. A field that is missing is only wrong where a property reads it.
    """
    parts: Iterable[tuple[Value, Value, str]] = ()
    if isinstance(actual, Record) and actual.type == "Damaged":
        return damage(actual, place)
    if isinstance(expected, SameAs) or expected is None:
        return None
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return Difference(f"len({place})", str(len(actual)), str(len(expected)))
        pairs = zip(expected, actual, strict=True)
        parts = ((wanted, seen, f"{place}[{at}]") for at, (wanted, seen) in enumerate(pairs))
    elif isinstance(expected, Bounded):
        return _bounded_form(expected, actual, place)
    elif type(expected) is not type(actual):
        return Difference(place, brief(actual), brief(expected))
    elif isinstance(expected, Tensor):
        is_real = [tensor.dtype.startswith(("float", "bfloat", "complex")) for tensor in (expected, actual)]
        if len(expected.shape) != len(actual.shape):
            shapes = str(actual.shape), str(expected.shape)
            return Difference(f"{place}.shape", *shapes, (expected, actual))
        if is_real[0] != is_real[1]:
            return Difference(f"{place}.dtype", actual.dtype, expected.dtype, (expected, actual))
    elif isinstance(expected, Record):
        if expected.type != actual.type:
            return Difference(f"type({place})", actual.type, expected.type)
        known = dict(expected.fields)
        parts = (
            (known[name], item, f"{place}.{name}")
            for name, item in actual.fields
            if name in known and item is not None
        )
    elif isinstance(expected, dict):
        if not set(expected) <= set(actual):
            return Difference(f"{place} keys", repr(list(actual)), repr(list(expected)))
        parts = ((item, actual[key], f"{place}[{key!r}]") for key, item in expected.items())
    return next(filter(None, (form_difference(*part) for part in parts)), None)


_HAVE_PARTS = frozenset({Tensor, Bounded, Record, dict, list, tuple, bytes})


def parts_compared(expected: Expected, actual: Outcome) -> int:
    """How many rows, fields and bytes of an outcome `outcome_difference` compares, where it finds nothing wrong.

    An element of a tensor is one, as is a refusal; a result that is None has none.
    """
    known = dict(expected.after) if actual.after else {}
    after = sum(_parts(known[name]) for name, _ in actual.after if name in known)
    if isinstance(expected, Refusal) or isinstance(actual, Raised):
        return 1 + after
    return _parts(expected.value) + after


def parts_of(outcome: Outcome) -> int:
    """How many rows, fields and bytes an outcome has that a property could look at."""
    result = 1 if isinstance(outcome, Raised) else _parts(outcome.value)
    return result + sum(_parts(seen) for _, seen in outcome.after)


def _parts(value: Value) -> int:
    if isinstance(value, Tensor | Bounded):
        return prod(value.shape)
    if isinstance(value, (list, tuple)):
        items: Iterable[Value] = value
    elif isinstance(value, dict):
        items = value.values()
    elif isinstance(value, Record):
        items = [item for _, item in value.fields]
    elif isinstance(value, bytes):
        return len(value)
    else:
        return int(value is not None)
    return sum(_parts(item) if type(item) in _HAVE_PARTS else 1 for item in items)


Kind = Literal["value", "refusal", "memory", "race", "fault", "hang"]
KINDS: frozenset[str] = frozenset(get_args(Kind))


@dataclass(frozen=True)
class Failure:
    """How an example broke its property.

    Args:
        kind: "value" (a result, or something observed, is wrong), "refusal" (a call raised that should return, or the other way
            round, or did not name the argument), "memory" (memory was touched that a call must not touch), "race", "fault" or "hang".
        observed: what was seen, such as "result[0] = 4".
        expected: what the property says instead, such as "should be 3"; "" where `observed` says it all.
        function: the function that was called, "" where no single call shows it.
        call: the number of that call among the case's, from 0.
        place: where in the result or in memory, such as "result[0]" or "pool0[3]"; the tensor, for a finding of the sanitizer.
        exception: the name of the exception that the call raised, among them the sanitizer's findings; of a fault of the device
            its kind.
        rule: what was broken, in words that hold for every input: no number, name or value of one is in it.
        shown: the call as one would write it down, with the name that its author gave it; several, of a condition on several.
        about: the numbers of the calls that a condition is about, where each of their outcomes alone is what the rules expect.
        access: of a finding of the sanitizer, the kernel, the tensor and the element.
    """

    kind: Kind
    observed: str
    expected: str = ""
    function: str = ""
    call: int | None = None
    place: str = ""
    exception: str = ""
    rule: str = ""
    shown: str = ""
    about: tuple[int, ...] = ()
    access: KernelAccess | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}, but should be one of {sorted(KINDS)} [Failure]")

    @property
    def sentence(self) -> str:
        """The observed and the expected, as a sentence."""
        return f"{self.observed}, but {self.expected}" if self.expected else self.observed

    @property
    def message(self) -> str:
        """The sentence, and the call that shows it."""
        return f"{self.sentence} [{self.shown}]" if self.shown else self.sentence

    @property
    def part(self) -> str:
        """The place without what belongs to one input: "result" for "result[3]", "pool" for "pool0[3]"."""
        return without_indices(self.place)

    @property
    def fault(self) -> str:
        """The kind of the fault, or the name of the sanitizer's finding; "" for a wrong answer."""
        return self.exception if self.kind != "refusal" else ""


@dataclass(frozen=True)
class WrongBytes:
    """Bytes that are not what they should be at the end of a case.

    Args:
        name: what a `Let` bound; `first` and `nbytes` count bytes of its storage.
        belongs: which request or block they belong to and why, such as "block 5 belongs to r1, because ...".
        steps: for each call of the case, the step of an engine that it was part of; empty without an engine.
    """

    name: str
    first: int
    nbytes: int = 1
    belongs: str = ""
    steps: tuple[int, ...] = ()


def failure_of(
    difference: Difference,
    expected: Expected,
    actual: Outcome,
    *,
    function: str,
    call: int,
    shown: str,
) -> Failure:
    """The failure of a call whose outcome differs from the expected one."""
    if isinstance(actual, Raised) and actual.kind != "refusal":
        rule = _raised_rule(actual)
    elif actual.changed:
        rule = ", ".join(dict.fromkeys(map(without_indices, actual.changed))) + " written to"
    elif isinstance(expected, Refusal) and difference.place in ("result", "the call"):
        done = f"raises {actual.exception}" if isinstance(actual, Raised) else "returns"
        rule = (
            f"{done}, but should raise {expected.exception} that names {without_indices(expected.argument)}"
        )
    elif isinstance(actual, Raised) and difference.place == "the call":
        rule = _raised_rule(actual)
    else:
        rule = without_indices(difference.place)
    kind: Kind = "value"
    if actual.changed or difference.guard is not None:
        kind = "memory"
    elif isinstance(expected, Refusal) and difference.place == "result":
        kind = "refusal"
    failure = Failure(
        kind=kind,
        observed=difference.seen,
        expected=difference.wanted,
        function=function,
        call=call,
        place=difference.place,
        rule=f"{function}: {rule}",
        shown=shown,
    )
    return (
        _of_raised(failure, actual)
        if isinstance(actual, Raised) and difference.place == "the call"
        else failure
    )


def raised_instead(raised: Raised, *, function: str, call: int, shown: str) -> Failure:
    """The failure of a call that raised where a property wants its result."""
    failure = Failure(
        kind=raised.kind,
        observed=f"the call = {brief_raised(raised)}",
        expected="should return a result",
        function=function,
        call=call,
        rule=f"{function}: {_raised_rule(raised)}",
        shown=shown,
    )
    return _of_raised(failure, raised)


def _of_raised(failure: Failure, raised: Raised) -> Failure:
    """The failure with the fields of what the call raised."""
    tensor = raised.access.tensor if raised.access is not None else ""
    return replace(
        failure,
        kind=raised.kind,
        place=tensor or "the call",
        exception=raised.exception,
        access=raised.access,
    )


def stated(
    observed: str,
    expected: str = "",
    *,
    place: str = "",
    function: str = "",
    call: int | None = None,
    shown: str = "",
    about: tuple[int, ...] = (),
    rule: str = "",
) -> Failure:
    """The failure of a condition that a property states itself; `rule`: what is broken, where the place does not say it."""
    rule = rule or without_indices(place)
    return Failure("value", observed, expected, function, call, place, "", rule, shown, about)


def fatal_among(actual: Sequence[Outcome]) -> int | None:
    """The number of the first call that ended in a fault, a hang or a finding of the sanitizer."""
    kinds = (outcome.kind if isinstance(outcome, Raised) else "refusal" for outcome in actual)
    return next((number for number, kind in enumerate(kinds) if kind != "refusal"), None)


def with_cause(failure: Failure, raised: Raised, *, function: str, call: int) -> Failure:
    """The failure, as that of the call that ended in a fault, a hang or a finding of the sanitizer."""
    if failure.call == call and failure.kind == raised.kind:
        return failure
    rule = f"{function}: {_raised_rule(raised)}"
    return _of_raised(replace(failure, function=function, call=call, rule=rule), raised)


def _raised_rule(raised: Raised) -> str:
    """The broken rule, without addresses, programs and elements."""
    access = raised.access
    if access is not None:
        # Which side of a race comes first depends on the input.
        verb = "races for" if raised.kind == "race" else access.verb
        return f"{access.kernel} {verb} {without_indices(access.tensor) or 'memory of no known tensor'}"
    # The message differs from input to input. `bucket.Bucket` tells exceptions of one type apart by the line that raised each.
    return f"raises {raised.exception}" if raised.kind == "refusal" else raised.kind


@lru_cache(4096)
def without_indices(place: str) -> str:
    """A place without indices, and without the numbers of things of a kind: `pool0[3]` is `pool`."""
    place = re.sub(r"^byte \d+ (before|behind) |\.shape$", "", place)
    place = re.sub(r"^len\((.*)\)$", r"\1", place)
    while (shorter := re.sub(r"\[[^][]*\]", "", place)) != place:
        place = shorter
    return re.sub(r"(?<=[A-Za-z])_?\d+(?=\W|$|_[a-z]+\d+)", "", place).replace("..", ".")


def unchecked(expected: Expected, actual: Outcome) -> list[str]:
    """Places that were observed and are not compared: names of which no content is expected, fields that the rules do not know."""
    known = dict(expected.after)
    places = [name for name, _ in actual.after if name not in known]
    if not isinstance(expected, Refusal) and not isinstance(actual, Raised):
        places += _unknown(expected.value, actual.value, "result")
    for name, seen in actual.after:
        if name in known:
            places += _unknown(known[name], seen, name)
    return list(dict.fromkeys(map(without_indices, places)))


def compared_part(expected: Expected, actual: Outcome) -> Outcome:
    """The outcome without the fields of its result that are not compared."""
    if not isinstance(expected, Returned) or not isinstance(actual, Returned):
        return actual
    value, wanted = actual.value, expected.value
    if not isinstance(value, Record) or not isinstance(wanted, Record) or not wanted.fields:
        return actual
    known = dict(wanted.fields)
    kept = tuple((name, item) for name, item in value.fields if name in known)
    return replace(actual, value=replace(value, fields=kept))


def _unknown(expected: Value, actual: Value, place: str) -> Iterator[str]:
    if isinstance(expected, Record) and isinstance(actual, Record):
        wanted = dict(expected.fields)
        for name, item in actual.fields:
            if name not in wanted:
                yield f"{place}.{name}"
            else:
                yield from _unknown(wanted[name], item, f"{place}.{name}")
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected.keys() & actual.keys():
            yield from _unknown(expected[key], actual[key], f"{place}[{key!r}]")
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        for at, (item, other) in enumerate(zip(expected, actual, strict=False)):
            if isinstance(item, (Record, dict, list, tuple)):
                yield from _unknown(item, other, f"{place}[{at}]")
