"""From a kernel and the arguments of a launch to the Python that is run: Triton's front end, then ours.

A launch goes through `JITFunction.run` as it is, so that what is run is the variant that a GPU would run: constexprs,
arguments that are None or 1, divisibility. Only the last step is another one.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import triton

from statecheck.kernels import arithmetic
from statecheck.kernels.arithmetic import operation as arithmetic_of
from statecheck.kernels.private import ASTSource, GPUTarget, get_cache_manager, passes
from statecheck.kernels.private import native_ir as native
from statecheck.kernels.source import tiles
from statecheck.kernels.source.block_pointers import block_pointers
from statecheck.kernels.source.generate import written
from statecheck.kernels.source.ir import SourcePlace, Type
from statecheck.kernels.source.parse import parsed
from statecheck.kernels.source.ptx import assembly
from statecheck.kernels.source.sites import Arithmetic, KernelModule, Site

TARGET = GPUTarget("cuda", 90, 32)
"""The IR depends on it a little; most users run this one."""
_CAPABILITY = 90


_lowering: ContextVar[bool] = ContextVar("lowering", default=False)


@dataclass(frozen=True)
class Compiled:
    """A variant of a kernel: what its parameters are, and the code of its programs."""

    parameters: tuple[Type, ...]
    sites: tuple[Site, ...]
    branches: tuple[SourcePlace, ...]
    program: Any
    """Makes the generator of one program: memory, program ids, grid, arguments."""
    source: str


def compiled(source: ASTSource, options: Any, backend: Any) -> Compiled:
    """The variant, from Triton's cache folder if it has been made before.

    Raises:
        NotUnderstoodError: the IR has something that the executor does not know.
        triton.CompilationError: the kernel is none.
    """
    key = _key(source, options)
    manager = get_cache_manager(key)
    name = f"{source.name}.statecheck"
    path = manager.get_file(name)
    if path is not None:
        return _loaded(pickle.loads(Path(path).read_bytes()))  # noqa: S301 - as much ours as the folder's other files
    stored = _made(ttir(source, options, backend))
    manager.put(pickle.dumps(stored), name, binary=True)
    return _loaded(stored)


def ttir(source: ASTSource, options: Any, backend: Any) -> str:
    """The IR of a variant behind the stage `ttir`, as text."""
    token = _lowering.set(True)
    try:
        return _lowered(source, options, backend)
    finally:
        _lowering.reset(token)


def lowering() -> bool:
    """Whether a kernel is being lowered at the moment."""
    return _lowering.get()


def _lowered(source: ASTSource, options: Any, backend: Any) -> str:
    context = native.context()
    native.load_dialects(context)
    backend.load_dialects(context)
    functions = backend.get_codegen_implementation(options)
    with block_pointers():
        module = source.make_ir(TARGET, options, functions, backend.get_module_map(), context)
    module = backend.make_ttir(module, {}, options, _CAPABILITY)
    text = str(module)
    if "tensordesc" not in text:
        return text
    _without_descriptors(module)
    return str(module)


def _without_descriptors(module: Any) -> None:
    """Descriptors become pointers, as they do on a GPU that has none."""
    manager = native.pass_manager(module.context)
    passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
    passes.common.add_canonicalizer(manager)
    passes.common.add_cse(manager)
    manager.run(module, "statecheck")


@cache
def _own_version() -> str:
    # Of the code that writes code: what an earlier version has left in the cache must not be run by a later one.
    digest = hashlib.sha256()
    for path in (Path(arithmetic.__file__), *sorted(Path(__file__).parent.glob("*.py"))):
        digest.update(path.read_bytes())
    return f"{digest.hexdigest()}-{triton.__version__}-{np.__version__}-{sys.version_info[:2]}"


def _key(source: ASTSource, options: Any) -> str:
    where = source.fn.fn.__code__.co_filename
    text = f"{_own_version()}-{where}-{source.hash()}-{options.hash()}"
    return hashlib.sha256(text.encode()).hexdigest()


def _made(text: str) -> KernelModule:
    return written(parsed(text))


def _loaded(stored: KernelModule) -> Compiled:
    scope = _scope() | {name: _realised(constant) for name, constant in stored.constants.items()}
    name = f"{GENERATED}{next(_NUMBERS)}>"
    exec(compile(stored.source, name, "exec"), scope)  # noqa: S102 - written by `generate`
    loaded = Compiled(stored.parameters, stored.sites, stored.branches, scope[stored.entry], stored.source)
    _LOADED[name] = loaded
    return loaded


GENERATED = "<kernel "
"""The names of generated modules in tracebacks start so."""
_NUMBERS = itertools.count(1)
_LOADED: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
_MARKED = re.compile(r"\s*(?:(yield) |# branch )(\d+)")


def kernel_line(name: str, line: int) -> tuple[str, int] | None:
    """The file and line of a kernel's code that a line of a generated module belongs to, or the last one before that is known."""
    loaded = _LOADED.get(name)
    if loaded is None:
        return None
    for text in loaded.source.splitlines()[:line][::-1]:
        match = _MARKED.match(text)
        if match is not None:
            number = int(match[2])
            place = loaded.sites[number].place if match[1] else loaded.branches[number]
            return place.file, place.line
    return None


def _realised(constant: Any) -> Any:
    if not isinstance(constant, Arithmetic):
        return constant
    if constant.name == "asm":
        text, constraints, results = (value for _, value in constant.attributes)
        return assembly(text, constraints, constant.elements, tuple(results.split(",")))
    return arithmetic_of(constant.name, constant.elements, constant.result, dict(constant.attributes))


_OF_NUMPY = "multiply minimum maximum where broadcast_to int8 int16 int32 int64 float16 float32 float64"
_OF_TILES = "full reduce total scan dot gather histogram split_tile join_tiles concatenate moved_origins select_origins asserted printed"


def _scope() -> dict[str, Any]:
    """What generated code calls."""
    functions = {name: getattr(np, name) for name in _OF_NUMPY.split()}
    return functions | {name: getattr(tiles, name) for name in _OF_TILES.split()} | {"wrap64": _wrap64}


def _wrap64(number: int) -> int:
    return (number + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000
