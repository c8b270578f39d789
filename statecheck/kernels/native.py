"""Native code of kernels, for launches that nothing watches: C from the IR, compiled by the machine's C compiler.

A launch then takes microseconds, where generated Python takes a third of a millisecond. Compiling takes a tenth of a second, so that
a kernel is compiled after a few launches, once on a machine: Triton's cache folder keeps what was compiled. Where there is no C
compiler, launches go on in Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from statecheck.kernels.private import get_cache_manager

_OPTIONS = ("-O1", "-fwrapv", "-fno-strict-aliasing", "-shared", "-fPIC", "-w")
_WORTHWHILE = 100
"""Launches of a kernel before it is compiled: about as long in Python as the compiler takes."""
_SECONDS = 20.0
_NAME = "statecheck.so"


class Native:
    """Runs launches of one variant of a kernel, as soon as they are worth compiling.

    Args:
        source: its C, "" for none.
    """

    def __init__(self, source: str) -> None:
        self._source, self._launches = source, 0
        self._function: Any = None

    def run(self, grid: tuple[int, int, int], values: Sequence[int]) -> bool:
        """Run a launch; False where Python has to."""
        if self._function is None and not self._loaded():
            return False
        self._function((ctypes.c_int64 * len(values))(*values), *grid)
        return True

    def _loaded(self) -> bool:
        if not self._source:
            return False
        self._launches += 1
        if self._launches not in (1, _WORTHWHILE):
            return False
        try:
            path = _built(self._source, compiled=self._launches == _WORTHWHILE)
            library = None if path is None else ctypes.CDLL(path)
        except (OSError, subprocess.SubprocessError):
            self._source, library = "", None
        if library is None:
            return False
        self._function = library.run
        self._function.restype = None
        self._function.argtypes = (ctypes.c_void_p, *3 * (ctypes.c_int64,))
        return True


@cache
def compiler() -> str | None:
    """The C compiler: that of the variable CC, as Triton takes it, or one that is installed."""
    return next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "gcc", "clang", "cc"))), None)


def _built(source: str, *, compiled: bool) -> str | None:
    """A library in Triton's cache folder; None where it is not there.

    Args:
        compiled: compile it, where it is not there.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be compiled.
    """
    text = f"{source}{_OPTIONS}{platform.machine()}"
    manager = get_cache_manager(hashlib.sha256(text.encode()).hexdigest())
    path: str | None = manager.get_file(_NAME)
    if path is not None or not compiled or compiler() is None:
        return path
    with tempfile.TemporaryDirectory() as folder:
        code, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        code.write_text(source)
        command = [compiler() or "", *_OPTIONS, "-o", str(library), str(code)]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        return str(manager.put(library.read_bytes(), _NAME, binary=True))
