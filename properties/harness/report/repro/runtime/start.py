"""Before torch is imported: arguments, and the device."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from properties.harness.report.repro.runtime.child import go_on_in_child, time_limit
from properties.harness.report.repro.runtime.ending import cannot_try

__all__ = ["begin", "checked_device", "import_torch"]


def begin(usage: str | None) -> None:
    """Print the usage where that is asked for; refuse arguments that are not known; go on in a child process."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print((usage or "").strip())
        sys.exit(0)
    if sys.argv[1:] not in ([], ["--bisect"], ["--here"]):
        cannot_try(f"arguments = {sys.argv[1:]}, but should be none, --bisect, --here or --help")
    try:
        time_limit()
    except ValueError:
        cannot_try(f"TIME_LIMIT = {os.environ['TIME_LIMIT']!r}, but should be a number of seconds")
    if sys.argv[1:] != ["--here"] and hasattr(os, "fork"):
        go_on_in_child()


def checked_device(device: str) -> str:
    if device not in ("cpu", "cuda"):
        cannot_try(f"DEVICE = {device!r}, but should be cpu or cuda")
    if device == "cpu":
        # Triton reads this when it is imported; with it, Triton runs kernels in Python and needs no GPU.
        os.environ["TRITON_INTERPRET"] = "1"
    return device


def import_torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        cannot_try(f"cannot import torch: {error}")
    if os.environ.get("TRITON_INTERPRET") == "1":
        mend_interpreter()
    return torch


def mend_interpreter() -> None:
    """Let kernels count up to a number that they have loaded, which Triton 3.6 cannot interpret beside NumPy 2.4 and later."""
    try:
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        language = importlib.import_module("triton.language")
    except ImportError:
        # What the subject says about it is told where it is imported.
        return
    plain = interpreter._patch_lang

    def patch_lang(function: Any) -> Any:
        scope = plain(function)
        # A scalar is an array of one dimension, of which NumPy makes no int.
        language.tensor.__index__ = lambda scalar: int(scalar.handle.data.item())
        return scope

    interpreter._patch_lang = patch_lang
