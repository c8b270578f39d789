"""How a test ends where nothing can be said about the defect: what a file for pytest has in place of `ending`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import pytest

__all__ = ["before_triton"]


def cannot_try(why: str) -> NoReturn:
    """Skip the test, or the whole file while it is imported."""
    pytest.skip(why, allow_module_level=True)


def before_triton(device: str) -> str:
    """The device; on a CPU, Triton has to learn that it interprets kernels before anything imports it."""
    if device == "cpu" and "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        cannot_try("Triton was imported without TRITON_INTERPRET=1: set it, or run this file alone")
    return device
