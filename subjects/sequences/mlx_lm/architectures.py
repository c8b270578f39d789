"""Architectures of the installed mlx-lm that have recurrent state, as the sources of its models say."""

import contextlib
import importlib
import io
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

import mlx_lm.models

_STATE = re.compile(r"\b(ArraysCache|MambaCache)\b")
"""The caches of mlx-lm that hold states of a fixed size."""
_BASE = re.compile(r"^from \.(\w+) import [^\n]*\bModel\b|^from \. import (\w+)$", re.MULTILINE)


@cache
def architectures() -> tuple[str, ...]:
    """Modules of models that make such a cache, or that extend another module's model that does."""
    sources = {module.name: _source(module.name) for module in pkgutil.iter_modules(mlx_lm.models.__path__)}
    models = {
        name: source
        for name, source in sources.items()
        if re.search(r"^class ModelArgs\b", source, re.MULTILINE)
    }
    direct = {name for name, source in models.items() if _STATE.search(source)}
    return tuple(sorted(direct | {name for name, source in models.items() if _bases(source) & direct}))


def bases(architecture: str) -> set[str]:
    """Modules of models that a module extends."""
    return _bases(_source(architecture)) & set(architectures())


def module(architecture: str) -> Any:
    """The module of an architecture. What it prints when imported is dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module(f"mlx_lm.models.{architecture}")


def source(architecture: str) -> str:
    """The text of its module."""
    return _source(architecture)


def _source(name: str) -> str:
    path = Path(next(iter(mlx_lm.models.__path__)), f"{name}.py")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _bases(source: str) -> set[str]:
    return {name for match in _BASE.finditer(source) for name in match.groups() if name}
