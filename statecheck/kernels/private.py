"""Everything of Triton that is not its documented interface, in one place: what stands here may move with any release."""

from __future__ import annotations

from triton._C.libtriton import interpreter as native_interpreter
from triton._C.libtriton import ir as native_ir
from triton._C.libtriton import passes
from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import ASTSource, CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction, KernelInterface

__all__ = [
    "MADE_FOR",
    "ASTSource",
    "Autotuner",
    "Backend",
    "CUDABackend",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "DriverBase",
    "GPUTarget",
    "JITFunction",
    "KernelInterface",
    "OutOfResources",
    "PTXASError",
    "backends",
    "driver",
    "get_cache_manager",
    "native_interpreter",
    "native_ir",
    "passes",
]

MADE_FOR = ("3.6", "3.9")
"""The oldest and the newest version that this was made for, and is tested with."""
