"""Ports that offer plain functions as subjects: the documents' names, in terms of the protocol that PROTOCOL.md describes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from statecheck.subject.known import KnownDeviation, known_in, with_documented_names
from statecheck.subject.profile import DOCUMENTS, Profile
from statecheck.subject.subject import NoteCall, Subject, offers, safe_getattr
from statecheck.util.text import meant_by
from subjects.plain.outside import outside_of
from subjects.plain.port import calls_so_far, use_port
from subjects.plain.protocol import (
    ENGINES,
    EVERY,
    FUNCTIONS,
    NEEDS,
    RECURRENCES,
    SUPPLIED,
    TAKE_STARTS,
    VERSION,
    Plain,
)

TOPICS = ("functions", "align", "recurrences", "slots")


def _documented_names() -> dict[str, Any]:
    modules = [importlib.import_module(f"{__name__}.{topic}") for topic in TOPICS]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


class PlainSubject(Subject):
    """The documents' names in terms of a port's plain functions.

    `supplied` are the names behind which there is none of these: they only hold what plain functions are handed.
    """

    def __init__(self, port: ModuleType, name: str = "") -> None:
        profile = _profile_of(port)
        super().__init__(
            name or port.__name__,
            port,
            _known_of(port),
            profile=profile,
            outside=outside_of(port),
            refuses=bool(safe_getattr(port, "REFUSES", False)),
            release=str(safe_getattr(port, "RELEASE", "")),
        )
        self.supplied = frozenset(SUPPLIED)
        # A port of kernels is not asked about builders, nor the other way round.
        groups = [
            group
            for group in (FUNCTIONS, RECURRENCES, ENGINES)
            if any(offers(port, plain.name) for plain in group)
        ]
        self.functions = tuple(plain.name for group in groups for plain in group)
        self._names = SimpleNamespace(**_documented_names())

    def has(self, function: str) -> bool:
        if function in SUPPLIED:
            return any(map(self._offers, SUPPLIED[function]))
        return function in NEEDS and all(map(self._offers, NEEDS[function]))

    def _offers(self, plain: str) -> bool:
        return offers(self.module, plain)

    def own_name(self, function: str) -> str:
        return NEEDS[function][0] if function in NEEDS else function

    def documented_names(self, function: str) -> tuple[str, ...]:
        return _documented_names_of(function)

    def own_calls(self) -> int:
        return calls_so_far()

    def provides(self, name: str) -> bool:
        return offers(self.module, name)

    def _resolve(self, function: str) -> Any:
        found: Any = self._names
        for part in function.split("."):
            found = getattr(found, part)
        return found

    def construct(self, type_: str, fields: dict[str, Any]) -> Any:
        found = getattr(self._names, type_, None)
        return found(**fields) if isinstance(found, type) else SimpleNamespace(**fields)

    def noting_calls(self, note: NoteCall) -> PlainSubject:
        """The same subject, which notes the calls of the port's functions."""
        found = copy(self)
        found.module = _NotedPort(self.module, note)
        return found

    @contextmanager
    def environment(self, variables: dict[str, str]) -> Iterator[None]:
        """As any subject's, with this port as the one that is asked."""
        use_port(self.module)
        with super().environment(variables):
            yield


class _NotedPort(ModuleType):
    """Stands in for a port, and notes each call of its functions before it is made."""

    def __init__(self, port: ModuleType, note: NoteCall) -> None:
        super().__init__(port.__name__)
        self._port, self._note = port, note
        self._functions = {plain.name: plain for plain in EVERY}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return partial(self._called, self._functions[name], found) if name in self._functions else found

    def _called(self, plain: Plain, function: Callable[..., Any], **arguments: Any) -> Any:
        self._note(plain.name, {name: arguments[name] for name in plain.arguments if name in arguments})
        return function(**arguments)


def adapted(port: ModuleType, name: str = "") -> PlainSubject:
    """The port as a subject, by the name of its module or another one.

    Raises:
        ValueError: the module does not follow the protocol of its version.
    """
    version = getattr(port, "STATECHECK_PROTOCOL", None)
    if version != VERSION:
        _refuse("STATECHECK_PROTOCOL", repr(version), str(VERSION), port)
    offered = [plain for plain in EVERY if offers(port, plain.name)]
    if not offered:
        _refuse("functions", "none", f"at least one of those in PROTOCOL.md{_meant(port)}", port)
    for plain in offered:
        if not _takes(getattr(port, plain.name), plain.arguments):
            _refuse(plain.name, _signature(getattr(port, plain.name)), plain.signature, port)
    for function in safe_getattr(port, "TENSORS", ()):
        if function not in TAKE_STARTS:
            _refuse("TENSORS", repr(function), f"names of {', '.join(TAKE_STARTS)}", port)
    return PlainSubject(port, name)


def _meant(port: ModuleType) -> str:
    """Which functions of the protocol some of its names may have been meant to be."""
    names = [plain.name for plain in EVERY]
    near = {name: meant_by(name, names) for name in dir(port)}
    return "".join(f"; did you mean {near[name]} by {name}?" for name in near if near[name])


def require_declared(module: ModuleType) -> None:
    """Refuse a module that offers plain functions, and nothing of the documents, and does not say so.

    Raises:
        ValueError: it does.
    """
    documented = {symbol.partition(".")[0] for symbol in NEEDS}
    plain = [function.name for function in EVERY if offers(module, function.name)]
    if not plain or any(offers(module, name) for name in documented):
        return
    meant = [name for name in dir(module) if name.startswith("STATECHECK_")]
    near = f"; did you mean it by {meant[0]}?" if meant else ""
    _refuse(
        "STATECHECK_PROTOCOL",
        "missing",
        f"{VERSION} in a module that offers {', '.join(plain)}{near}",
        module,
    )


def _takes(function: Any, arguments: tuple[str, ...]) -> bool:
    """Whether it can be called with these keywords, as far as it says what it takes."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(**dict.fromkeys(arguments))
    except TypeError:
        return False
    return True


def _signature(function: Any) -> str:
    return str(inspect.signature(function)) if callable(function) else repr(function)


def _refuse(name: str, value: str, rule: str, port: ModuleType) -> None:
    raise ValueError(f"{name} = {value}, but should be {rule} [{port.__name__}]")


def _profile_of(port: ModuleType) -> Profile:
    fields = safe_getattr(port, "PROFILE", {})
    unknown = sorted(set(fields) - set(vars(DOCUMENTS)))
    if unknown:
        _refuse(
            f"PROFILE[{unknown[0]!r}]",
            repr(fields[unknown[0]]),
            "a field of statecheck.subject.profile.Profile",
            port,
        )
    return Profile(**fields)


def _known_of(port: ModuleType) -> tuple[KnownDeviation, ...]:
    path = safe_getattr(port, "KNOWN", None)
    if path is None:
        return ()
    if not isinstance(path, (str, Path)):
        _refuse("KNOWN", repr(path), "the path of a file", port)
    folder = Path(port.__file__ or "").parent
    declared = known_in(folder / path, str(safe_getattr(port, "RELEASE", "0")))
    return tuple(with_documented_names(deviation, _documented_names_of) for deviation in declared)


def _documented_names_of(function: str) -> tuple[str, ...]:
    """The documented symbols that a function of the protocol answers for; the name itself for any other function."""
    return next((plain.answers_for for plain in EVERY if function == plain.name), (function,))
