"""Launches by Triton's interpreter in place of the executor: what a script does that stands on its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from properties.harness.kernels import interpreted
from properties.harness.kernels import launch as launching


@contextlib.contextmanager
def launches_interpreted() -> Iterator[None]:
    """Launches in this context are left to the interpreter, those too that could be executed."""
    plain = launching._Kernel.run

    def run(self: Any, x: int, y: int, z: int, *rest: Any) -> None:
        interpreted.launch(self._function, (x, y, z), rest[6:])

    launching._Kernel.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        launching._Kernel.run = plain  # type: ignore[method-assign]
