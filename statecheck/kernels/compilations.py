"""Counts what Triton compiles in this process: how many variants of each kernel, and how often it compiled at all.

A variant is a kernel with the types of its arguments and the values of its compile-time constants. More compilations
than variants come of what Triton guesses from the values of arguments, such as that a number divides by 16: a server
that compiles when only data changes stands still meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Variant = tuple[str, str]
"""Signature and compile-time constants."""


@dataclass(frozen=True)
class Compilation:
    """What was compiled of one kernel."""

    variants: frozenset[Variant] = frozenset()
    compilations: int = 0

    def __add__(self, other: Compilation) -> Compilation:
        return Compilation(self.variants | other.variants, self.compilations + other.compilations)


Kernels = Mapping[str, Compilation]
"""By the kernels' names."""

_compiled: dict[str, Compilation] = {}


def count() -> None:
    """Count from now on; calling it again changes nothing. Other hooks on Triton's compilations stay."""
    from triton import knobs

    before = knobs.runtime.jit_post_compile_hook
    if isinstance(before, _Hook):
        return
    knobs.runtime.jit_post_compile_hook = _Hook(before)


class _Hook:
    """What Triton calls after each compilation."""

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(self, **event: Any) -> Any:
        compiled, name = event["compile"], event["fn"].name.rpartition(".")[2]
        variant = (_text(compiled["signature"]), _text(compiled["constants"] or {}))
        _compiled[name] = _compiled.get(name, Compilation()) + Compilation(frozenset({variant}), 1)
        return self.before(**event) if self.before is not None else None


def _text(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in mapping.items())


def take() -> dict[str, Compilation]:
    """What was compiled since the last time that this was asked."""
    taken = dict(_compiled)
    _compiled.clear()
    return taken


def added(first: Kernels, second: Kernels) -> dict[str, Compilation]:
    """Both counts in one, as those of two processes."""
    names = sorted({*first, *second})
    return {name: first.get(name, Compilation()) + second.get(name, Compilation()) for name in names}
