"""Triton's interpreter, without work that it does over and over.

For every call of a device function it replaces all of `triton.language` by interpreted versions, although the launch
that calls has done so already. That is most of the time of a small launch. And version 3.6 cannot count up to a
number that a kernel has loaded where NumPy is of 2.4 or later.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any


class _Patched:
    """What a launch has replaced so far."""

    def __init__(self) -> None:
        self.modules: set[int] = set()

    def restore(self) -> None:
        """What a call of a device function replaces is put back by the launch."""


@cache
def replace_language_once() -> None:
    """From now on, interpreted launches of this process replace the language once."""
    import triton.language as tl

    from properties.harness.kernels.private import interpreter

    plain, patched = interpreter._patch_lang, _Patched()

    def patch(function: Any) -> Any:
        names = function.__globals__.values()
        modules = {id(one) for one in names if inspect.ismodule(one) and one in (tl, tl.core)}
        if modules and modules <= patched.modules:
            return patched
        scope, outermost = plain(function), not patched.modules
        patched.modules |= modules
        # Every scalar is an array of one dimension, of which NumPy 2.4 makes no int.
        tl.tensor.__index__ = _index
        # Versions before 3.7 return no scope, and never put anything back.
        if outermost and scope is not None:
            scope.restore = _forgetting(scope.restore, patched)
        return scope

    interpreter._patch_lang = patch


def _index(scalar: Any) -> int:
    return int(scalar.handle.data.item())


def _forgetting(restore: Any, patched: _Patched) -> Any:
    def both() -> None:
        patched.modules.clear()
        restore()

    return both
