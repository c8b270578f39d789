"""Every documented symbol and its three rooms: the table in docs/symbols.md, and the check that nothing lacks one."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lab.sources import ROOT
from statecheck.execution.registry import Property
from statecheck.subject import Subject, is_documented
from statecheck.util import markdown

Properties = Mapping[str, Property]


@dataclass(frozen=True)
class Symbol:
    """A documented symbol and where its rooms are.

    Args:
        document: a document's number, the contract's section, or "own" for what neither of them has.
        name: as users look it up, dotted for methods.
        impl: the topic whose module defines it.
        oracle: topic and name of its rule, the topic alone where all of it is the rule, or "" for plain fields and
            aliases, which have no rule.
        exercised_by: for types and constants, which no property calls: the functions whose properties use them, and
            tests as `path::name`.
    """

    document: str
    name: str
    impl: str
    oracle: str = ""
    exercised_by: tuple[str, ...] = ()

    @property
    def functions(self) -> set[str]:
        return {self.name, *(name for name in self.exercised_by if "::" not in name)}

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Path and name of each test."""
        split = (name.partition("::") for name in self.exercised_by if "::" in name)
        return [(path, test) for path, _, test in split]


def _read() -> tuple[Symbol, ...]:
    rows: list[dict[str, Any]] = tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    )["symbols"]
    return tuple(Symbol(**row | {"exercised_by": tuple(row.get("exercised_by", ()))}) for row in rows)


MANIFEST = _read()


def table(tested: Properties) -> str:
    """The table, a row for each symbol."""
    rows = []
    for symbol in MANIFEST:
        topic, _, rule = symbol.oracle.partition(".")
        oracle = f"`oracle/{topic}.py{f': {rule}' if rule else ''}`" if topic else "no rule: plain data"
        checks = ", ".join(f"`{path}` {count}" for path, count in sorted(_checks(symbol, tested).items()))
        rows.append((symbol.document, f"`{symbol.name}`", f"`impl/{symbol.impl}.py`", oracle, checks))
    return "\n".join(markdown.table(("document", "symbol", "impl", "oracle", "properties"), rows))


def complaints(subject: Subject, tested: Properties) -> list[str]:
    """What is missing, a line each: rooms of the manifest's symbols, and symbols that the manifest does not have."""
    rooms = [line for symbol in MANIFEST for line in _empty_rooms(symbol, subject, tested)]
    return rooms + [
        f"{name}: {user}, but has no row in MANIFEST" for name, user in _unlisted(subject, tested)
    ]


def _empty_rooms(symbol: Symbol, subject: Subject, tested: Properties) -> Iterator[str]:
    if not _defined(symbol, subject):
        yield f"{symbol.name}: no impl, but should be defined in impl/{symbol.impl}.py and exported"
    if not _has_rule(symbol, subject):
        where = f"oracle/{symbol.oracle.replace('.', '.py: ', 1)}" if symbol.oracle else "named"
        yield f"{symbol.name}: no oracle, but its rule should be {where}"
    if not _checks(symbol, tested):
        yield f"{symbol.name}: no properties, but one should name it"
    for path, name in symbol.tests:
        if name not in _test_names(ROOT / path):
            yield f"{symbol.name}: no properties, but the test {name} should be in {path}"


def _defined(symbol: Symbol, subject: Subject) -> bool:
    """Whether users find it, unless it is private, and the topic's module is where it comes from."""
    try:
        module = symbol.impl.replace("/", ".")
        own = subject.resolve(f"{module}.{symbol.name}")
        public = own if symbol.name.startswith("_") else subject.resolve(symbol.name)
    except AttributeError:
        return False
    return public == own and _comes_from(own, f"{subject.module.__name__}.{module}")


def _has_rule(symbol: Symbol, subject: Subject) -> bool:
    topic, _, rule = symbol.oracle.partition(".")
    if not topic:
        return subject.has(symbol.name) and _is_plain(subject.resolve(symbol.name))
    try:
        module = importlib.import_module(f"oracle.{topic.replace('/', '.')}")
    except ModuleNotFoundError:
        return False
    return not rule or (hasattr(module, rule) and _comes_from(getattr(module, rule), module.__name__))


def _comes_from(defined: Any, module: str) -> bool:
    """Constants and aliases do not know where they were made; they are taken at their word."""
    return not (inspect.isroutine(defined) or inspect.isclass(defined)) or defined.__module__ == module


def _is_plain(defined: Any) -> bool:
    """Whether there is nothing to have a rule about: an alias, or a class with fields only."""
    members = vars(defined) if inspect.isclass(defined) else {}
    return not any(
        callable(member) or isinstance(member, property) for name, member in members.items() if name[0] != "_"
    )


def _checks(symbol: Symbol, tested: Properties) -> Counter[str]:
    """How many properties and named tests each file has."""
    about = (
        checked for checked in tested.values() if symbol.functions & set(map(_plain_name, checked.functions))
    )
    files = [f"{checked.module.replace('.', '/')}.py" for checked in about]
    return Counter(files + [path for path, _ in symbol.tests])


def _plain_name(function: str) -> str:
    """A property of a class is called through its getter."""
    return function.removesuffix(".fget")


@lru_cache
def _test_names(path: Path) -> frozenset[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))


def _unlisted(subject: Subject, tested: Properties) -> Iterator[tuple[str, str]]:
    listed = {symbol.name for symbol in MANIFEST}
    for name in subject.module.__all__:
        if name not in listed:
            yield name, f"is public in {subject.name}"
    for checked in tested.values():
        for name in checked.functions:
            if not is_documented(name):
                continue
            # An inherited method has its row with the class that defines it.
            if not {_plain_name(name), name.partition(".")[0]} & listed:
                yield name, f"is named by the property {checked.id}"
