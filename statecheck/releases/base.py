"""The base environment: the interpreter that runs this, which lends torch, Triton and the harness's own needs."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path

PINNED = ("torch", "triton")


@dataclass(frozen=True)
class Base:
    """Where an environment finds what it borrows.

    Args:
        python: the interpreter, links resolved.
        folders: those that its packages lie in.
        pins: what must not be replaced, as `torch==2.13.0+cpu`.
    """

    python: str
    folders: tuple[str, ...]
    pins: tuple[str, ...]

    @property
    def for_cpu(self) -> bool:
        """Whether its torch cannot use a GPU, as far as the version says."""
        return any(pin.startswith("torch==") and pin.endswith("+cpu") for pin in self.pins)


def this_base(without: Path) -> Base:
    """That of this process; packages below `without`, where the environments are, are not lent on."""
    # The same from within an environment that was made with it.
    python = str(Path(sys.executable).resolve())
    return Base(python, tuple(_lent(without)), tuple(filter(None, map(_pin, PINNED))))


def _lent(without: Path) -> list[str]:
    named = [Path(one) for one in sys.path if Path(one).name in ("site-packages", "dist-packages")]
    return [str(one) for one in named if without.resolve() not in one.resolve().parents]


def _pin(name: str) -> str:
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return ""
