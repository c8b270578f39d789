"""Triton's interpreter for launches that cannot be executed, in a process whose kernels were decorated to be compiled.

It runs the programs of a launch one after the other, in row-major order. Nothing watches what they do.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

from statecheck.kernels.private import InterpretedFunction, JITFunction, interpreter

_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)


_known: dict[int, tuple[Any, Any]] = {}


def _of(function: JITFunction[Any]) -> Any:
    # By id: a kernel's hash is that of its source and of all that it refers to, which the interpreter replaces meanwhile.
    # The entry keeps the kernel alive, so that no other one gets its id.
    if id(function) not in _known:
        _known[id(function)] = (function, InterpretedFunction(function.fn))
    return _known[id(function)][1]


def launch(function: Any, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
    """Run one launch in the interpreter: all arguments of the kernel, constexprs among them."""
    token = _INSIDE.set(True)
    try:
        with _language_restored():
            _of(function).run(*arguments, grid=grid, warmup=False)
    finally:
        _INSIDE.reset(token)


@contextlib.contextmanager
def _language_restored() -> Iterator[None]:
    """The interpreter replaces Triton's language by its own, and puts back a part of it, or nothing before 3.7."""
    before = [(owner, dict(vars(owner))) for owner in _owners()]
    try:
        yield
    finally:
        for owner, members in before:
            _restore(owner, members)


@cache
def _owners() -> tuple[Any, ...]:
    import triton.language as tl

    classes = (
        member
        for member in vars(tl.core).values()
        if inspect.isclass(member) and member.__module__ == tl.core.__name__
    )
    return (tl, tl.core, tl.math, *dict.fromkeys(classes))


def _restore(owner: Any, members: dict[str, Any]) -> None:
    now = dict(vars(owner))
    for name, member in now.items():
        if name not in members:
            delattr(owner, name)
        elif members[name] is not member:
            setattr(owner, name, members[name])


def install() -> None:
    """Let interpreted kernels call functions that were decorated to be compiled."""
    plain_call, plain_patch = JITFunction.__call__, interpreter._patch_lang

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not _INSIDE.get():
            return plain_call(self, *arguments, **keywords)
        return _of(self)(*arguments, **keywords)

    def patch(function: Any) -> Any:
        import triton.language as tl

        scope = plain_patch(function)
        # Triton 3.6 holds a scalar as an array of one dimension, of which NumPy 2.4 makes no int.
        tl.tensor.__index__ = lambda scalar: int(scalar.handle.data.item())
        return scope

    JITFunction.__call__, interpreter._patch_lang = call, patch
