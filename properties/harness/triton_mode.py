"""Whether Triton interprets the subject's kernels in this process or compiles them, and with how many warps.

Triton asks for TRITON_INTERPRET when a kernel is decorated, its own library's kernels when it is imported. A process
that has done either is settled: interpreted and compiled kernels must not meet in one launch.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from properties.harness import compilations
from properties.harness.interpreter import replace_language_once

INTERPRET = "TRITON_INTERPRET"
NUM_WARPS = "STATECHECK_NUM_WARPS"


def prepare(device: str) -> None:
    """Interpret kernels where the device is "cpu", compile them elsewhere. Call it before a subject is imported.

    Where kernels are compiled, compilations are counted from now on, and STATECHECK_NUM_WARPS is the number of warps of
    every launch.

    Raises:
        ValueError: Triton has been imported for the other mode, or a variable says what cannot be.
    """
    interpret = device == "cpu"
    if "triton" in sys.modules and _interprets() is not interpret:
        mode = "interpreted" if interpret else "compiled"
        raise ValueError(
            f"device = {device!r}, but should be the other one in a process in which Triton is imported already: "
            f"kernels would have to be {mode} [prepare]"
        )
    if interpret:
        os.environ[INTERPRET] = "1"
        replace_language_once()
        return
    if os.environ.get(INTERPRET, "0").lower() not in ("", "0", "false", "off", "no", "n"):
        raise ValueError(
            f"{INTERPRET} = {os.environ[INTERPRET]!r}, but should be unset on {device} [prepare]"
        )
    compilations.count()
    if NUM_WARPS in os.environ:
        _launch_with(_warps(os.environ[NUM_WARPS]))


def interprets() -> bool:
    """Whether this process's kernels are interpreted; False where nothing has asked Triton yet."""
    return "triton" in sys.modules and _interprets()


def _interprets() -> bool:
    import triton.language

    return type(triton.language.cdiv).__name__ == "InterpretedFunction"


def _warps(text: str) -> int:
    if text not in ("1", "2", "4", "8", "16", "32"):
        raise ValueError(f"{NUM_WARPS} = {text!r}, but should be a power of two of at most 32 [prepare]")
    return int(text)


@cache
def _launch_with(num_warps: int) -> None:
    from triton.runtime.jit import JITFunction

    plain = JITFunction.run

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return plain(self, *arguments, **keywords | {"num_warps": num_warps})

    JITFunction.run = run
