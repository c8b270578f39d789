"""Triton's interpreter for launches that cannot be executed, in a process whose kernels were decorated to be compiled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from properties.harness.sanitizer.hooks import listening

_inside = 0
WATCH: ContextVar[Any] = ContextVar("watch", default=None)
"""The sanitizer that interpreted launches are shown to."""


@cache
def _of(function: JITFunction[Any]) -> Any:
    return InterpretedFunction(function.fn)


def launch(function: Any, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
    """Run one launch in the interpreter: all arguments of the kernel, constexprs among them."""
    global _inside
    _inside += 1
    try:
        with contextlib.nullcontext() if WATCH.get() is None else listening(WATCH.get()):
            _of(function).run(*arguments, grid=grid, warmup=False)
    finally:
        _inside -= 1


def install() -> None:
    """Let interpreted kernels call functions that were decorated to be compiled."""
    plain = JITFunction.__call__

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not _inside:
            return plain(self, *arguments, **keywords)
        return _of(self)(*arguments, **keywords)

    JITFunction.__call__ = call
