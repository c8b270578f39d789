"""Cases, records and files that another program may put where they are read, and that try to do harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from statecheck.case.values import (
    Address,
    Attribute,
    DType,
    Fake,
    Let,
    Name,
    Returned,
    SameAs,
    Tensor,
    View,
    call,
    record,
)
from statecheck.subject.subject import LAYOUT_VARIABLE
from tests.helpers.cases import a_case
from tests.unit.campaign.nightly_examples import a_bucket, a_record

MARKER = "harmed"
"""The file that a record tries to make in the working directory, or beside the folder of reports."""
CODE = f"open('{MARKER}', 'w')"
_SMALL = Tensor("int32", (1,), (1,))


@dataclass(frozen=True)
class Hostile:
    """The attack of a file of a case or record, its text, and a part of the sentence that refuses it."""

    tries: str
    text: str | bytes
    refused: str


def changed(content: dict[str, Any], **changes: Any) -> str:
    return json.dumps(content | changes)


def _case(**changes: Any) -> str:
    """A case with other JSON in some fields."""
    return changed(a_case().to_data(), **changes)


def _built(*steps: Any, **changes: Any) -> str:
    """A case with other values."""
    fields = {"steps": steps, "expected": (Returned(1),), "actual": (Returned(2),), "message": "it differs"}
    return a_case(**fields | changes).to_json()


def _given(**arguments: Any) -> str:
    return _built(call("divide", **arguments))


def _expecting(value: Any) -> str:
    return _built(call("divide", x=_SMALL, y=2), expected=(Returned(value),))


def _ordered(schedule: str) -> str:
    """A case whose programs ran in such an order."""
    return _built(replace(call("divide", x=5), schedule=schedule))


def _filled(content: object) -> str:
    """A case with a result that is filled up."""
    return _case(actual={"tuple": [{"Returned": {"value": {"padded": content}}}]})


def _padded(times: int, most: int = 1 << 24) -> dict[str, Any]:
    """A list of tuples that are long in memory and short in a file."""
    return {"tuple": [{"padded": [[], 7, most]}] * times}


def _steps(value: Any) -> Any:
    content = json.loads(_given(x=5))["steps"]
    content["tuple"][0]["Call"]["arguments"]["tuple"][0]["tuple"][1] = value
    return content


INJECTIONS = (
    Hostile(
        "code behind the docstring of repro.py",
        _case(property_id=f'x"""\n{CODE}\n"""'),
        "property_id = ",
    ),
    Hostile("code in a named escape", _case(property_id=r"\N{LATIN SMALL LETTER A}"), "property_id = "),
    Hostile("a report outside of the reports", _case(property_id=f"/../../{MARKER}/x"), "property_id = "),
    Hostile("code through the subject's name", _case(subject=f'toy")\n{CODE}\n("'), "subject = "),
    Hostile("code through the device", _case(device=f'cpu")\n{CODE}\n("'), "device = "),
    Hostile("code through a function's name", _built(call(f"divide or {CODE}", x=5)), "steps[0].function = "),
    Hostile("code through an argument's name", _given(**{f"x={CODE}, y": 5}), "steps[0].arguments = "),
    Hostile("code through a variable", _built(Let(f"x = {CODE}; y", 5), call("divide")), "steps[0].name = "),
    Hostile("code through a reference", _given(x=Name(CODE)), "].name = "),
    Hostile("code through the pool of a view", _given(x=View(CODE, "int32", (1,))), "].of = "),
    Hostile("code through a class", _given(x=record("T", **{f"x={CODE}, y": 5})), "].fields = "),
    Hostile("code through a path", _given(x=Attribute(Name("x"), f"y or {CODE}")), "].path = "),
    Hostile("the insides of Python", _given(x=Attribute(Name("x"), "__class__.__init__")), "].path = "),
    Hostile("code through a dtype", _given(x=Tensor(f"int32) or {CODE} or (1", (1,), (1,))), "].dtype = "),
    Hostile("a dtype of objects", _given(x=DType("object")), "].name = 'object'"),
    Hostile("code through a result", _expecting(SameAs(f"x or {CODE}")), "expected[0].value.path = "),
    Hostile("code through an address", _expecting(Address(f"({CODE})", 0)), "expected[0].value.argument = "),
    Hostile("code through a result's field", _expecting(record("T", **{f"x or {CODE}": 1})), "].value.fields = "),
    Hostile(
        "a library to load",
        _built(call("divide", environment={"LD_PRELOAD": "/tmp/x.so"}, x=5)),  # noqa: S108 - never made
        "steps[0].environment = 'LD_PRELOAD'",
    ),
)  # fmt: skip
"""Names of a case that were written into a script, or a path, as they are."""

GREEDY = (
    Hostile("a tensor of 2^50 bytes", _given(x=Tensor("int8", (2**50,), None)), "].shape = (11"),
    Hostile("a pool of 2^50 bytes by its strides", _given(x=Tensor("int8", (2, 1), None, (2**50, 1))), "bytes of all tensors"),
    Hostile("2^40 pieces of memory", _given(x=View("x", "int8", (2**40, 1), (0, 1))), "].shape = (10"),
    Hostile("two milliard elements in 2 kB", _case(steps=_steps(_padded(120))), "padded elements = "),
    Hostile("100,000 axes of ten thousand", _given(x=Tensor("int8", (10**4,) * 100_000, None)), "at most 64 axes"),
    Hostile("65 axes without memory", _given(x=Fake("int32", (1,) * 65, None, 0)), "at most 64 axes"),
    Hostile("an int of 1,000 digits", _given(x=10**1000), "bits"),
    Hostile("a filling of 10^12 elements", _filled([[], 0, 10**12]), "but should be"),
    Hostile("every 100,000,000th program first", _ordered("every:100000000"), "schedule = "),
    Hostile("lists in lists without end", _case(sentence=0).replace(": 0", ": " + "[" * 50_000 + "]" * 50_000), "text = no JSON"),
    Hostile("lists two hundred deep", _case(sentence=0).replace(": 0", ": " + "[" * 200 + "]" * 200), "lists in lists"),
    Hostile("an int of 100,000 digits", _case(seed=0).replace('"seed": 0', '"seed": ' + "9" * 100_000), "text = no JSON"),
)  # fmt: skip
"""Small cases that need much memory, or much time."""

MALFORMED = (
    Hostile("no text at all", "", "text = no JSON"),
    Hostile("no UTF-8", b"\xff\xfe{}", "UTF-8"),
    Hostile("a byte order mark", b"\xef\xbb\xbf" + a_case().to_json().encode(), "BOM"),
    Hostile("half a surrogate pair", _case(property_id="\ud800"), "property_id = '\\ud800'"),
    Hostile("NaN as JSON", _case(seed=float("nan")), "NaN is no number of JSON"),
    Hostile("the schema of the future", _case(schema=99), "a newer version has written it"),
    Hostile("a schema that is true", _case(schema=True), "schema = True"),
    Hostile("a pickle", _case(steps={"pickle": "gASVIAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOU"}), "tag = 'pickle'"),
    Hostile("a field twice", a_case().to_json().replace("{", '{"device": "cpu", ', 1), "'device' stands twice"),
    Hostile("text for a number", _case(seed="5"), "seed = '5'"),
    Hostile("a truth value for a number", _case(seed=True), "seed = True"),
    Hostile("a number for text", _case(sentence=5), "sentence = 5"),
    Hostile("a list for text", _case(finding=["x"]), "finding = ['x']"),
    Hostile("a filling of less than nothing", _filled([[], 0, -1]), "but should be"),
    Hostile("a filling up to text", _filled([[], "x", 5]), "but should be"),
    Hostile("a filling without a size", _filled([[], 0]), "but should be"),
    Hostile("a filling that is true", _filled([[], 0, True]), "but should be"),
    Hostile("a filling that is a number", _filled(5), "but should be"),
    Hostile("an order without a rule", _ordered("dpor"), "schedule = "),
    Hostile("an order that switches nowhere", _ordered("switches:5"), "schedule = "),
    Hostile("an order that takes a number", _ordered("reversed:1"), "schedule = "),
    Hostile("NUL in an environment", _built(call("divide", environment={LAYOUT_VARIABLE: "a\0b"}, x=5)), "an environment can have"),
    Hostile("half a pair in an environment", _built(call("divide", environment={LAYOUT_VARIABLE: "\ud800"}, x=5)), "an environment can have"),
    Hostile("bytes for ints", _given(x=Tensor("int32", (2,), b"abc")), "only uint8 has bytes"),
    Hostile("an id without a word", _case(property_id="toys"), "property_id = 'toys', but should be <topic>/<word>"),
    Hostile("an id with a space", _case(property_id="toys/di vide"), "property_id = 'toys/di vide'"),
    Hostile("an id of three parts", _case(property_id="a/b/c"), "property_id = 'a/b/c'"),
    Hostile("an id in marks of code", _case(property_id="`a`/b"), "property_id = '`a`/b'"),
    Hostile("a long id", _case(property_id="a/" + "b" * 200), "property_id = 'a/bbb"),
    Hostile("a schema of before", _case(schema=0), "schema = 0"),
    Hostile("a schema as text", _case(schema="1"), "schema = '1'"),
    Hostile("a list", "[]", "schema"),
    Hostile("an object without anything", "{}", "schema"),
    Hostile("null", "null", "schema"),
    Hostile("an unknown field", _case(hook="import os"), "hook"),
    Hostile("a negative size", _given(x=Tensor("int8", (-1,), None)), "].shape = (-1,)"),
    Hostile("text in a shape", _given(x=Tensor("int8", ("1",), None)), "].shape[0] = '1'"),  # type: ignore[arg-type]
    Hostile("a call that is none of the case's", _case(failure=a_case().to_data()["failure"] | {}).replace('"call": 0', '"call": 7'), "failure.call = 7"),
)  # fmt: skip
"""What is no case."""

CASES = INJECTIONS + GREEDY + MALFORMED


def _record(**changes: Any) -> str:
    return changed(json.loads(a_record(a_bucket()).to_json()), **changes)


def _planned(**changes: Any) -> str:
    """A record with other JSON in some fields of its plan."""
    content = json.loads(a_record(a_bucket()).to_json())
    return changed(content, plan=content["plan"] | changes)


def _with(kind: str, /, **changes: Any) -> str:
    """A record with other JSON in the first entry of a list."""
    content = json.loads(a_record(a_bucket()).to_json())
    content[kind][0] |= changes
    return json.dumps(content)


def _twice(name: str) -> str:
    content = json.loads(a_record(a_bucket()).to_json())
    return changed(content, **{name: content[name] * 2})


RECORDS = (
    Hostile("a folder outside of the reports", _planned(id=f"../../{MARKER}"), "id = '../../"),
    Hostile("an absolute folder", _planned(id=f"/tmp/{MARKER}"), "id = '/tmp/"),  # noqa: S108 - never made
    Hostile("the folder itself", _planned(id=".."), "id = '..'"),
    Hostile("no name", _planned(id=""), "id = ''"),
    Hostile("NUL in a name", _planned(id="a\0b"), "id = 'a\\x00b'"),
    Hostile("a shard that is a path", _planned(shard="0/../../x", shards=2), "shard = '0/../../x'"),
    Hostile("a shard of fewer", _planned(shard=2, shards=2), "shard = '2 of 2'"),
    Hostile("code in a subject", _planned(subject=f"toy; {CODE}"), "subject = "),
    Hostile("text for a count", _with("properties", counts={"examples": "many"}), "properties[0].counts.examples = 'many'"),
    Hostile("a negative count", _with("properties", counts={"compared": -5}), "properties[0].counts.compared = -5"),
    Hostile("text for seconds", _record(seconds="long"), "seconds = 'long'"),
    Hostile("a number past all floats", _record(seconds=0).replace('"seconds": 0', '"seconds": 1e999'), "seconds = inf"),
    Hostile("an int past all floats", _planned(examples=10**400), "plan.examples = 1000"),
    Hostile("a list for text", _with("properties", detail=["x"]), "properties[0].detail = ['x']"),
    Hostile("text for a list", _record(warnings="x"), "warnings = 'x'"),
    Hostile("text for an entry", _record(marks=["x"]), "marks[0] = 'x'"),
    Hostile("a number for a mark's name", _with("marks", name=5), "marks[0].name = 5"),
    Hostile("a time that is none", _record(began="yesterday"), "began = 'yesterday'"),
    Hostile("a bucket that is a path", _with("buckets", id="../../../x"), "buckets[0].id = '../../../x'"),
    Hostile("a bucket twice", _twice("buckets"), "buckets = '0000000000', but should be there once"),
    Hostile("a property twice", _twice("properties"), "but should be there once"),
    Hostile("a file of the corpus elsewhere", _with("corpus", file="../x.json"), "corpus[0].file = '../x.json'"),
    Hostile("the schema of the future", _record(schema=99), "a newer version has written it"),
    Hostile("lists in lists without end", _record(canary=0).replace('"canary": 0', '"canary": ' + "[" * 50_000 + "]" * 50_000), "text = no JSON"),
)  # fmt: skip
"""What is no record of a campaign."""


@dataclass(frozen=True)
class HostileFile:
    """Something that is called as a case or record is, and is no file of one."""

    tries: str
    make: Callable[[Path], object]
    refused: str


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)


def _link_out(path: Path) -> None:
    """Another user's case, to which a link in the folder leads."""
    secret = path.parent.parent / "elsewhere" / "secret.json"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text('{"token": "0123"}', encoding="utf-8")
    path.symlink_to(secret)


FILES = (
    HostileFile("a FIFO without a writer", os.mkfifo, "a FIFO, but should be a regular file"),
    HostileFile("a device without an end", lambda path: path.symlink_to("/dev/zero"), ""),
    HostileFile("a folder", Path.mkdir, "a folder, but should be a regular file"),
    HostileFile("1 GB of nothing", _sparse, "size = 1073741824 bytes"),
    HostileFile("a link to itself", lambda path: path.symlink_to(path), "cannot be read"),
    HostileFile("a link to nothing", lambda path: path.symlink_to("gone"), "a link to nothing"),
    HostileFile("a link to another's file", _link_out, "a link to elsewhere"),
)
"""What stands in a folder of cases."""
