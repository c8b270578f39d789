"""The subject: where it is imported from, and which of its functions and classes a case may use."""

from __future__ import annotations

import importlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from properties.harness.report.repro.runtime.calls import refused
from properties.harness.report.repro.runtime.ending import cannot_try
from properties.harness.report.repro.runtime.given import DEVICE, subject

__all__ = ["adapted", "build", "environment", "import_subject", "make_buffer", "require"]

_MISSING = object()


def import_subject(module: str, folder: str) -> Any:
    """The module that SUBJECT names, by default `module`.

    Args:
        module: its name.
        folder: where to import it from, relative to this file, unless SUBJECT_PATH names another folder; "" for where
            Python imports from.
    """
    name = os.environ.setdefault("SUBJECT", module)
    if os.environ.get("SUBJECT_PATH"):
        _import_from(Path(os.environ["SUBJECT_PATH"]))
    elif folder:
        _import_from(Path(__file__).parent / folder)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cannot_try(f"cannot import {name}: {type(error).__name__}: {error}")


def adapted(adapter: Callable[[], dict[str, Any]], folder: str = "") -> Any:
    """The names that an adapter finds, in the folder that SUBJECT_PATH names, or where Python imports from.

    Args:
        folder: where to look first if SUBJECT_PATH names none, relative to this file; "" for nowhere else.
    """
    if os.environ.get("SUBJECT_PATH"):
        _import_from(Path(os.environ["SUBJECT_PATH"]))
    elif folder:
        _import_from(Path(__file__).parent / folder)
    try:
        return types.SimpleNamespace(
            **{name: found for name, found in adapter().items() if found is not None}
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cannot_try(f"cannot import what the case needs: {type(error).__name__}: {error}")


def _import_from(folder: Path) -> None:
    sys.path.insert(0, os.path.normpath(folder.absolute()))


def require(functions: list[str]) -> None:
    """End without a verdict where a function that the case calls is missing, or the GPU that it runs on."""
    for name in functions:
        found = subject
        for part in name.split("."):
            found = getattr(found, part, _MISSING)
        if found is _MISSING:
            cannot_try(f"there is no {name}")
        if is_foreign(found):
            cannot_try(f"{name} is no function of the subject's own")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        cannot_try("no GPU here; DEVICE=cpu tries it without")


def is_foreign(found: object) -> bool:
    """Whether it is Python's or a library's: a subject may import that, and a case must not call it."""
    if not isinstance(found, (type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    package = (getattr(found, "__module__", None) or "builtins").partition(".")[0]
    return package in sys.stdlib_module_names or package in ("torch", "triton", "numpy")


def build(name: str, /, **fields: Any) -> Any:
    """An object of the subject's class of that name, or a plain object where the subject has no such class."""
    found: Any = getattr(subject, name, None)
    try:
        own = isinstance(found, type) and not is_foreign(found)
        return (found if own else types.SimpleNamespace)(**fields)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        refused.append(error)
        return None


def environment(variables: dict[str, str]) -> None:
    """Set the variables that the next call reads. A subject that remembers the layout reads it again."""
    os.environ.pop("VLLM_SSM_CONV_STATE_LAYOUT", None)
    os.environ.update(variables)
    clear = getattr(getattr(subject, "get_conv_state_layout", None), "cache_clear", None)
    if clear is not None:
        clear()


def make_buffer(*size: int, dtype: torch.dtype) -> Any:
    device = torch.device(DEVICE)
    return subject.CpuGpuBuffer(*size, dtype=dtype, device=device, pin_memory=DEVICE == "cuda")
