"""vLLM as a subject: the documents' names, as the installed release has them.

Each module adapts one topic, and each difference between releases stands there in a place of its own. The
modules below this one need vLLM, torch and the standard library only.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from statecheck.subject.known import known_in
from statecheck.subject.loading import PROJECTS
from statecheck.subject.subject import NotOffered
from subjects import Subject, load
from subjects.vllm.engine import core
from subjects.vllm.engine.inside import PORTED
from subjects.vllm.outside import outside_of, profile_of
from subjects.vllm.release import RELEASE, RELEASE_NAME, optional
from subjects.vllm_conditions import CONDITIONS

PROJECTS["vllm"].require_supported(RELEASE_NAME)


def _offered() -> Iterator[tuple[str, Any]]:
    """The documents' names with what the release, or the adapter of it, has; None for what it has not."""
    unchanged = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
    for module, names in unchanged.items():
        yield from ((name, optional(f"{module}:{name}")) for name in names)
    for topic in ("functions", "builders", "align", "recurrences", "engine.core", "transfers"):
        adapter = importlib.import_module(f"{__name__}.{topic}")
        yield from ((name, getattr(adapter, name)) for name in adapter.__all__)


globals().update({name: value for name, value in _offered() if value is not None})

KNOWN = Path(__file__).parents[1] / "vllm_known.toml"

IN_WHAT_IS_REPLACED = frozenset(
    {
        "checkpoint-before-the-last-chunk",
        "decode-without-drafts-after-accepted-ones",
        "first-token-in-a-real-engine",
    }
)
"""Defects of real engines that lie in builders and copies. With a port's in their place nothing excuses them."""
_ENGINES = ("real-engine/v1", "real-engine/v2", "real-engine/connector-v1", "real-engine/connector-v2")


class _Release(Subject):
    """The release, in whose engine stands what its name says."""

    def construct(self, type_: str, fields: dict[str, Any]) -> Any:
        """As a subject does; a case that names another module to be imported than the subject is not tried."""
        inside = fields.get("inside", "") if type_ == "LiveSettings" else self.inside
        if inside != self.inside:
            raise NotOffered(f"an engine with {inside or 'nothing'} inside, but is {self.name}")
        return super().construct(type_, fields)

    def forget_environment(self) -> None:
        """As a subject does, and what the module inside remembers."""
        super().forget_environment()
        if self.inside:
            SUBJECT.forget_environment()
            load(self.inside).forget_environment()


def _release(name: str, module: ModuleType, known: Any, inside: str = "") -> Subject:
    return _Release(
        name,
        module,
        known,
        profile=profile_of(RELEASE),
        outside=outside_of(RELEASE),
        refuses=False,
        release=RELEASE_NAME,
        is_adapter=True,
        inside=inside,
    )


def with_inside(name: str, port: ModuleType) -> Subject:
    """The release's engine with what a port offers of `PORTED` in the place of its own functions.

    Args:
        name: by which `port` is imported.

    Raises:
        ValueError: it offers none of them.
    """
    if not any(hasattr(port, function) for function in PORTED):
        raise ValueError(f"inside = {name!r}, but should offer one of {', '.join(PORTED)} [with_inside]")
    # Only the engine: what else the adapter has is the release's alone, and tested as such.
    engine = ModuleType(__name__)
    names = (*core.__all__, "__file__", "__path__")
    vars(engine).update({exported: globals()[exported] for exported in names} | {"__inside__": port})
    known = (
        deviation
        for deviation in SUBJECT.known_deviations
        if deviation.id not in IN_WHAT_IS_REPLACED and any(deviation.covers(id_) for id_ in _ENGINES)
    )
    return _release(f"vllm+{name}", engine, tuple(known), inside=name)


SUBJECT = _release("vllm", sys.modules[__name__], known_in(KNOWN, RELEASE_NAME, CONDITIONS))
