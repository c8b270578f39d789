"""What the Python source of a kernel refers to: the places where it touches memory, its branches, its constants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from statecheck.kernels.source.ir import SourcePlace, Type, size_of, stored_dtype


@dataclass(frozen=True)
class Site:
    """Where a kernel touches memory."""

    number: int
    kind: str
    """ "load", "store" or "atomic"."""
    place: SourcePlace
    element: str = ""
    operation: str = ""
    """Of an atomic: and, or, xor, add, fadd, max, min, umax, umin, exch; cas, load, store, poll."""
    sem: str = ""

    @cached_property
    def nbytes(self) -> int:
        return size_of(self.element)

    @cached_property
    def stored(self) -> np.dtype[Any]:
        """Of an element in memory."""
        return stored_dtype(self.element)

    @cached_property
    def line(self) -> tuple[str, int]:
        """File and line of the kernel's code."""
        return self.place.file, self.place.line


@dataclass(frozen=True)
class Arithmetic:
    """Stands for a function of `arithmetic` among the constants."""

    name: str
    elements: tuple[str, ...]
    result: str
    attributes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KernelModule:
    """A module of kernels as Python source, and what that source refers to."""

    source: str
    entry: str
    parameters: tuple[Type, ...]
    """Of the entry, which a launch calls."""
    sites: tuple[Site, ...]
    branches: tuple[SourcePlace, ...]
    """Where control has a choice: the comments `# branch <number>` of the source stand there."""
    constants: dict[str, Any]


def python_name(name: str) -> str:
    return "f_" + re.sub(r"\W", "_", name.strip('"'))


class Module:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sites: list[Site] = []
        self.branches: list[SourcePlace] = []
        self.constants: dict[str, Any] = {}
        self._known: dict[Any, str] = {}

    def constant(self, value: Any, key: Any, prefix: str = "c") -> str:
        """A name for a value that the source refers to."""
        if key not in self._known:
            self._known[key] = f"{prefix}_{len(self._known)}"
            self.constants[self._known[key]] = value
        return self._known[key]

    def site(self, kind: str, place: SourcePlace, **rest: Any) -> Site:
        site = Site(len(self.sites), kind, place, **rest)
        self.sites.append(site)
        return site

    def branch(self, place: SourcePlace) -> int:
        """The number of a branch."""
        self.branches.append(place)
        return len(self.branches) - 1
