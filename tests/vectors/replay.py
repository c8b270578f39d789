"""Compares a subject on the CPU with vectors; those of copies and of the preprocess kernel are checked by the ports in JavaScript."""

from __future__ import annotations

import re
from typing import Any

from statecheck.case.values import (
    Call,
    Device,
    DType,
    Let,
    Name,
    Raised,
    Record,
    Returned,
    Returns,
    Tensor,
    Value,
)
from statecheck.execution.port import InProcess
from statecheck.vectors.record import RecordedCall
from statecheck.vectors.topics import FUNCTIONS, parts_of
from statecheck.vectors.values import Blob
from tests.vectors.load import Vector


def difference(port: InProcess, vector: Vector) -> str:
    """What a subject does otherwise, in words; empty where it does as expected."""
    port.begin()
    call = _call(vector)
    outcome = port.execute(_named(port, call))
    assert outcome is not None, "a call has an outcome"
    if outcome.changed:
        return f"{outcome.changed} were written to"
    return _outcome_difference(vector["expected"], call, outcome)


def _outcome_difference(expected: dict[str, Any], call: Call, outcome: Returned | Raised) -> str:
    refused = expected.get("refused")
    if refused is None:
        found = (
            outcome
            if isinstance(outcome, Raised)
            else _plain_data(parts_of(RecordedCall(call, {}, {}, outcome, frozenset()))[1])
        )
        return "" if found == expected else f"{found}, but should be {expected}"
    if not isinstance(outcome, Raised):
        return f"{outcome.value}, but should be refused: {refused}"
    named = re.search(rf"(?<!\w){re.escape(refused['argument'])}(?!\w)", outcome.message)
    right = outcome.exception == refused["exception"] and (named or not refused["argument"])
    return "" if right else f"{outcome}, but should be refused: {refused}"


def _plain_data(data: Any) -> Any:
    """JSON data with the elements in the place of blobs, as a corpus is loaded."""
    if isinstance(data, dict):
        return {name: _plain_data(item) for name, item in data.items()}
    if isinstance(data, list):
        return [_plain_data(item) for item in data]
    if not isinstance(data, Blob):
        return data
    pieces = (data.raw[at : at + data.itemsize] for at in range(0, len(data.raw), data.itemsize))
    numbers = [int.from_bytes(piece, "little", signed=True) for piece in pieces]
    return {"dtype": data.dtype, "shape": list(data.shape), "data": numbers}


def _call(vector: Vector) -> Call:
    """The call of a vector, `self` first and everything else by keyword."""
    name = _known(vector["function"])
    named = {argument: _value(value, argument) for argument, value in vector["arguments"].items()}
    own = {argument: named.pop(argument) for argument in ("self",) if argument in named}
    environment = tuple(vector["environment"].items())
    return Call(name, tuple(own.items()), tuple(named.items()), environment, by_content="self" in own)


def _known(function: str) -> str:
    """The function's own name: a property is read by its getter."""
    return function if function in FUNCTIONS else f"{function}.fget"


def _named(port: InProcess, call: Call) -> Call:
    """The call with names for everything that it may change, or that has to be constructed first."""
    found = dict(call.keywords)
    if "mamba_state_idx" in found:
        port.execute(Let("state_idx", found["mamba_state_idx"]))
        found["mamba_state_idx"] = Name("state_idx")
        return Call(call.function, (), tuple(found.items()), observes=("state_idx",))
    own = call.named.get("self")
    if not isinstance(own, Call):
        return call
    port.execute(own)
    arguments = (("self", Name(own.bind)), *call.arguments[1:])
    return Call(call.function, arguments, call.keywords, call.environment, by_content=True)


def _value(data: Any, name: str = "") -> Value:
    """The value that JSON data stands for, under the name of its argument or field."""
    if name == "device":
        return Device()
    if isinstance(data, list):
        return _list(data, name)
    if isinstance(data, str):
        return int(data) if re.fullmatch(r"-?\d{16,}", data) else data
    return _object(data) if isinstance(data, dict) else data


def _list(data: list[Any], name: str) -> Value:
    if name == "dtypes":
        return tuple(DType(item) for item in data)
    return tuple(map(tuple, data)) if name == "shapes" else [_value(item) for item in data]


def _object(data: dict[str, Any]) -> Value:
    if "shape" in data:
        strides = tuple(data["strides"]) if "strides" in data else None
        elements = tuple(map(_value, data["data"])) if "data" in data else None
        return Tensor(data["dtype"], tuple(data["shape"]), elements, strides)
    if "returns" in data:
        return Returns(_value(data["returns"]))
    fields = {name: _value(item, name) for name, item in data.items() if name not in ("type", "constructed")}
    if "type" in data:
        return Record(data["type"], tuple(fields.items()))
    if "constructed" in data:
        return Call(data["constructed"], (), tuple(fields.items()), bind="constructed")
    return fields
