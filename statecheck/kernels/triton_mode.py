"""How the subject's kernels run in this process: executed from their IR on a CPU, or compiled.

Which of the two it is holds for the whole process: executed and compiled kernels must not meet in it.
"""

from __future__ import annotations

import os
import sys

INTERPRET = "TRITON_INTERPRET"
_OFF = ("", "0", "false", "off", "no", "n")


class _Settled:
    """For which device this process has been prepared."""

    compiles = ""


def prepare(device: str) -> None:
    """Execute kernels from their IR where the device is "cpu", and hide GPUs; compile them elsewhere. Call it before a subject is imported.

    Raises:
        ValueError: this process runs kernels in the other way, or TRITON_INTERPRET is set.
    """
    _refuse_other_settings(device)
    if device == "cpu":
        from statecheck.kernels.launch import install

        # An engine that sees a GPU takes modules that are for GPUs alone.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        install()
        return
    from statecheck.kernels.driver import settle_autotuners

    settle_autotuners()
    _Settled.compiles = device


def _refuse_other_settings(device: str) -> None:
    on_cpu = device == "cpu"
    if on_cpu and _Settled.compiles:
        raise ValueError(
            f"device = 'cpu', but should be {_Settled.compiles!r} in a process that compiles its kernels [prepare]"
        )
    if on_cpu:
        os.environ.pop(INTERPRET, None)
    elif os.environ.get(INTERPRET, "0").lower() not in _OFF:
        raise ValueError(
            f"{INTERPRET} = {os.environ[INTERPRET]!r}, but should be unset on {device} [prepare]"
        )
    if interprets():
        raise ValueError(
            f"{INTERPRET} was 1 when Triton was imported, but should be unset where kernels run on {device} [prepare]"
        )
    if not on_cpu and executes():
        raise ValueError(
            f"device = {device!r}, but should be 'cpu' in a process that executes kernels from their IR [prepare]"
        )


def executes() -> bool:
    """Whether this process's kernels are executed on the CPU; False where nothing has asked for it yet."""
    if "statecheck.kernels.launch" not in sys.modules:
        return False
    from statecheck.kernels.launch import installed

    return installed()


def interprets() -> bool:
    """Whether Triton was imported with TRITON_INTERPRET = 1, and runs all kernels of this process in its interpreter."""
    if "triton.language" not in sys.modules:
        return False
    import triton.language

    return type(triton.language.cdiv).__name__ == "InterpretedFunction"
