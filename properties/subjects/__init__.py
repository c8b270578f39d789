"""Subjects: what is being verified.

A subject is a module, or a package, that offers the documents' names. `impl` is the default one; any importable
module can be named in its place, and the properties of functions that it lacks are skipped and counted. To declare
known deviations a module makes a `Subject` of itself and calls it SUBJECT.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

LAYOUT_VARIABLE = "VLLM_SSM_CONV_STATE_LAYOUT"
BUILT_IN = {"impl": "properties.subjects.impl"}


@dataclass(frozen=True)
class KnownDeviation:
    """A defect that the subject is known to have: `property` may fail, for the upstream reason at `link`.

    `condition` narrows it to the failing cases for which it returns True.
    """

    property: str
    link: str
    condition: Callable[[Any], bool] = field(default=lambda case: True)


class Subject:
    """Looks the documents' names up in one module.

    Args:
        name: how users select it; importable, so that `repro.py` can import it on its own.
        module: the module with the documents' names, dotted paths such as `MambaStateShapeCalculator.mamba1_state_shape`
            included.
        known_deviations: failures that are expected.
    """

    def __init__(
        self, name: str, module: ModuleType, known_deviations: tuple[KnownDeviation, ...] = ()
    ) -> None:
        self.name = name
        self.module = module
        self.known_deviations = known_deviations
        self._environment: dict[str, str] | None = None
        self.resolve = lru_cache(maxsize=None)(self._resolve)

    def has(self, function: str) -> bool:
        try:
            self.resolve(function)
        except AttributeError:
            return False
        return True

    def _resolve(self, function: str) -> Any:
        found: Any = self.module
        for part in function.split("."):
            found = getattr(found, part)
        return found

    def construct(self, type_: str, fields: dict[str, Any]) -> Any:
        """An object of the subject's class of that name, or a plain namespace where it has no such class."""
        # Names come from case files, so that nothing but a class of the subject's own may be called.
        found = getattr(self.module, type_, None)
        return found(**fields) if isinstance(found, type) else SimpleNamespace(**fields)

    @contextmanager
    def environment(self, variables: dict[str, str]) -> Iterator[None]:
        """Run with exactly these layout variables set; cached readings are forgotten when they change."""
        wanted = {LAYOUT_VARIABLE: variables[LAYOUT_VARIABLE]} if LAYOUT_VARIABLE in variables else {}
        # Whoever else runs in this process, such as another subject, may have changed it since.
        changed_by_others = os.environ.get(LAYOUT_VARIABLE) != wanted.get(LAYOUT_VARIABLE)
        if wanted != self._environment or changed_by_others:
            os.environ.pop(LAYOUT_VARIABLE, None)
            os.environ.update(wanted)
            self.forget_environment()
            self._environment = wanted
        yield

    def forget_environment(self) -> None:
        """Drop what the subject remembers of the environment."""
        if self.has("get_conv_state_layout"):
            clear = getattr(self.resolve("get_conv_state_layout"), "cache_clear", None)
            if clear is not None:
                clear()


def load(name: str) -> Subject:
    """The subject called `name`: a built-in adapter, or any importable module.

    A module may offer a `Subject` of its own as SUBJECT, to declare known deviations with it.

    Raises:
        ValueError: nothing of that name can be imported.
    """
    rule = f"{', '.join(BUILT_IN)} or an importable module"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]")
    try:
        module = importlib.import_module(BUILT_IN.get(name, name))
    except ImportError as error:
        raise ValueError(f"subject = {name!r}, but should be {rule} [load]: {error}") from error
    own = getattr(module, "SUBJECT", None)
    return own if isinstance(own, Subject) else Subject(name, module)
