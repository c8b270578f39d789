"""Subjects by name: the one place of the harness that knows an adapter."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import cast

from statecheck.case.raised import error_text, from_outside, message_of
from statecheck.subject.process_state import restored
from statecheck.subject.project import PROJECTS
from statecheck.subject.subject import Subject, offers, safe_getattr

BUILT_IN = {"impl": "subjects.impl"} | {name: project.adapter for name, project in PROJECTS.items()}
"""By name, the modules of this implementation and of the projects in `subjects/projects.toml`."""
_PLAIN, _SEQUENCES = "subjects.plain", "subjects.sequences"
"""What adapts functions on plain values, and a library of sequences; imported by name, as an adapter is: they import this room."""


def load(name: str) -> Subject:
    """The subject called `name`: a built-in adapter, or any importable module.

    A module may offer a `Subject` of its own as SUBJECT, to declare known deviations with it. `engine+port` is the engine of the one
    with the functions of the other inside, by the function `with_inside` of the first.

    Raises:
        ValueError: nothing of that name can be imported, or nothing can stand inside of it.
    """
    engine, plus, inside = name.partition("+")
    if plus:
        with_inside = safe_getattr(load(engine).module, "with_inside", None)
        if with_inside is None:
            raise ValueError(
                f"subject = {name!r}, but should be ENGINE+{inside}: {engine} is no engine [load]"
            )
        return cast(Subject, with_inside(inside, load(inside).module))
    rule = f"{', '.join(BUILT_IN)} or an importable module"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]")
    try:
        with restored():
            module = importlib.import_module(BUILT_IN.get(name, name))
    except ImportError as error:
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {message_of(error)}") from error
    except BaseException as error:
        if from_outside(error):
            raise
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {error_text(error)}") from error
    return adapted(module, name)


def needs_tensors(name: str) -> bool:
    """Whether the subject of that name takes torch and Triton: not a library of sequences. Imports nothing of the subject."""
    try:
        spec = find_spec(BUILT_IN.get(name, name)) if name else None
        source = Path(spec.origin or "").read_text(encoding="utf-8") if spec is not None else ""
    except (ImportError, OSError, ValueError):
        return True
    return re.search(r"^STATECHECK_SEQUENCES *=", source, re.MULTILINE) is None


def preload() -> None:
    """Import what adapts functions of a module, which takes most of the time that it takes to load them."""
    importlib.import_module(_PLAIN)


def adapted(module: ModuleType, name: str = "") -> Subject:
    """A module as a subject.

    Raises:
        ValueError: it offers plain functions in another way than PROTOCOL.md says.
    """
    own = safe_getattr(module, "SUBJECT", None)
    if issubclass(type(own), Subject):
        return cast(Subject, own)
    if offers(module, "STATECHECK_SEQUENCES"):
        return cast(Subject, importlib.import_module(_SEQUENCES).adapted(module, name))
    plain = importlib.import_module(_PLAIN)
    if offers(module, "STATECHECK_PROTOCOL"):
        return cast(Subject, plain.adapted(module))
    plain.require_declared(module)
    return Subject(name or module.__name__, module)
