"""Mutants that no run can tell from the source: the same bytecode, or the same IR of a kernel wherever it is launched."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

_LOCATION = re.compile(r"^#loc.*$|\s*loc\((?:#loc\d*|unknown|\"[^\"]*\"\(#loc\d*\))\)", re.MULTILINE)
_PLACE = re.compile(r'loc\("([^"]+)":(\d+):\d+')


def same_bytecode(first: bytes, second: bytes) -> bool:
    """Whether two texts compile to the same code, wherever its lines stand.

    Raises:
        SyntaxError: one of them is no Python source.
    """
    return _code(compile(first, "source", "exec", dont_inherit=True)) == _code(
        compile(second, "source", "exec", dont_inherit=True)
    )


def _code(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(
        _code(constant) if isinstance(constant, CodeType) else (type(constant).__name__, repr(constant))
        for constant in code.co_consts
    )
    flow = getattr(code, "co_exceptiontable", b"")
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name)
    return (code.co_code, constants, names, flow, code.co_flags, code.co_argcount, code.co_kwonlyargcount)


@dataclass(frozen=True)
class Specialisation:
    """A variant of a kernel that an item has launched: what Triton compiles it of, and a digest of its IR.

    Args:
        of: signature, constants, attributes and options, as bytes of `pickle`.
        places: files and lines that the IR names.
    """

    module: str
    kernel: str
    of: bytes
    digest: str
    places: frozenset[tuple[str, int]]


def specialisation(source: Any, options: Any, backend: Any) -> Specialisation:
    """Of a variant that is being compiled."""
    from statecheck.kernels.source.compile import ttir

    text = ttir(source, options, backend)
    of = pickle.dumps((source.signature, source.constants, source.attrs, options))
    places = frozenset((file, int(line)) for file, line in _PLACE.findall(text))
    kernel = source.fn.fn
    return Specialisation(kernel.__module__, kernel.__qualname__, of, _digest(text), places)


def same_ir(specialisations: Iterable[Specialisation]) -> bool:
    """Whether the kernels, as they are imported now, have the same IR in every one of these variants.

    A variant that cannot be compiled has another one; the items say then whether that is noticed.
    """
    from statecheck.kernels.private import ASTSource
    from statecheck.kernels.source.compile import ttir

    for one in specialisations:
        signature, constants, attributes, options = pickle.loads(one.of)  # noqa: S301 - of this command's own cache
        try:
            kernel = _jit_function(getattr(importlib.import_module(one.module), one.kernel))
            source = ASTSource(kernel, signature, constants, attributes)
            text = ttir(source, options, kernel.device_caches[0][3])
        except Exception:
            return False
        if _digest(text) != one.digest:
            return False
    return True


def _jit_function(kernel: Any) -> Any:
    """The kernel below its decorators, such as `triton.autotune`."""
    while not hasattr(kernel, "device_caches"):
        kernel = kernel.fn
    return kernel


def _digest(text: str) -> str:
    return hashlib.sha256(_LOCATION.sub("", text).encode()).hexdigest()
