"""Launches of `@triton.jit` kernels on CPU tensors: executed from their IR.

`install` makes this the way in which this process launches kernels. Triton then believes in a GPU that is never asked for
anything. A launch whose IR has something unknown is not made: it raises `NotExecuted`, and `LAUNCHES` says so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from triton import knobs

from statecheck.case.findings import NotExecuted
from statecheck.kernels import launch_counts
from statecheck.kernels.driver import use
from statecheck.kernels.launch_counts import EXECUTED, LAUNCHES, NOT_EXECUTED, How
from statecheck.kernels.memory import Memory, Program, WatchedMemory
from statecheck.kernels.private import ASTSource, JITFunction, driver
from statecheck.kernels.sanitizer.watch import Sanitizer
from statecheck.kernels.source.compile import Compiled, compiled, ttir
from statecheck.kernels.source.ir import NotUnderstoodError, Type, dtype_of


@dataclass
class Launched:
    """A launch, as the sanitizer and schedules see it."""

    kernel: str
    compiled: Compiled
    grid: Program
    arguments: Sequence[Any]
    """Of the launch, as the kernel's author sees them, but for constexprs."""
    names: Sequence[str]
    values: Sequence[Any]
    """The same as generated code takes them."""
    ir: Callable[[], str] = str
    """Makes the text of the IR."""
    place: str = ""
    """File and line of the kernel's code."""

    def program(self, memory: Memory, index: Program) -> Iterator[int]:
        """A generator of one program, which stops before each access."""
        result: Iterator[int] = self.compiled.program(memory, *index, *self.grid, *self.values)
        return result

    def programs(self) -> Iterator[Program]:
        """All programs in row-major order."""
        return (
            (x, y, z) for x in range(self.grid[0]) for y in range(self.grid[1]) for z in range(self.grid[2])
        )


Runner = Callable[[Launched, Memory], None]
Around = Callable[[Launched, Callable[[], None]], None]
"""Makes a launch by calling what it is handed: once, or several times."""


def in_turn(launch: Launched, memory: Memory) -> None:
    """Run all programs, one after the other, in row-major order."""
    for index in launch.programs():
        memory.switch(index)
        for _ in launch.program(memory, index):
            pass


class _State:
    """How this process's launches are run at the moment."""

    memory: Callable[[Launched], Memory] | None = None
    """Makes the memory that a launch sees; None for a plain one."""
    runner: Runner = staticmethod(in_turn)
    around: Around | None = None


STATE = _State()


@contextlib.contextmanager
def running(**changes: Any) -> Iterator[None]:
    """Executed launches of this context are run with these members of the state."""
    before = {name: getattr(STATE, name) for name in changes}
    try:
        vars(STATE).update(changes)
        yield
    finally:
        vars(STATE).update(before)


@contextlib.contextmanager
def watching(sanitizer: Callable[[], Sanitizer]) -> Iterator[None]:
    """Every access of an executed launch in this context is shown to the sanitizer before it is made.

    Args:
        sanitizer: is asked for it at each launch.
    """

    def memory(launch: Launched) -> WatchedMemory:
        return WatchedMemory(sanitizer(), launch.kernel, launch.grid, launch.names, launch.arguments)

    with running(memory=memory):
        yield


@contextlib.contextmanager
def launching(around: Around) -> Iterator[None]:
    """Executed launches of this context are made by `around`, those who were there before inside of it."""
    before = STATE.around

    def both(launch: Launched, make: Callable[[], None]) -> None:
        around(launch, make if before is None else lambda: before(launch, make))

    with running(around=both):
        yield


def run(launch: Launched) -> None:
    """Run a launch as the state says."""
    memory = Memory() if STATE.memory is None else STATE.memory(launch)
    # Integers wrap around and floats overflow without a word on a GPU.
    with np.errstate(all="ignore"):
        STATE.runner(launch, memory)
    memory.end()


class Kernel:
    """Stands for a compiled kernel in Triton's caches."""

    function: Any = None
    packed_metadata: Any = None

    def __init__(
        self,
        function: Any,
        parameters: list[str],
        variant: Compiled | None,
        why: str,
        ir: Callable[[], str],
    ) -> None:
        self._function, self._names, self.variant, self.why = function, parameters, variant, why
        self._ir = ir
        nested = any("[" in name for name in parameters)
        self._kept = None if nested else [name in parameters for name in function.arg_names]
        """By argument, whether the kernel has a parameter for it; None where it has some for items of tuples."""
        place = launch_counts.place_of(function.fn)
        self._how = How(function.__name__, NOT_EXECUTED if variant is None else EXECUTED, why, place)

    def launch_metadata(self, *_: Any) -> None:
        """Triton asks for some."""

    def run(self, x: int, y: int, z: int, *rest: Any) -> None:
        # Before the kernel's own arguments come stream, function, metadata and hooks, of which there are none here.
        arguments = rest[6:]
        if self.variant is None or any(_elsewhere(argument) for argument in arguments):
            why = self.why or "tensors that are not on the CPU"
            LAUNCHES[replace(self._how, how=NOT_EXECUTED, why=why)] += 1
            raise NotExecuted(
                f"{self._how.kernel} is not executed on a CPU: the executor does not know {why}"
            )
        LAUNCHES[self._how] += 1
        handed, names = self._handed(arguments), self._names
        values = [
            _value(argument, kind) for argument, kind in zip(handed, self.variant.parameters, strict=True)
        ]
        how = self._how
        launch = Launched(how.kernel, self.variant, (x, y, z), handed, names, values, self._ir, how.place)
        if STATE.around is None:
            run(launch)
        else:
            STATE.around(launch, lambda: run(launch))

    def _handed(self, arguments: Sequence[Any]) -> list[Any]:
        """Those of a launch's arguments that the kernel has a parameter for, in order."""
        if self._kept is not None:
            return [argument for argument, kept in zip(arguments, self._kept, strict=True) if kept]
        flat = _flat(self._function.arg_names, arguments)
        return [argument for name, argument in flat if name in self._names]


def _elsewhere(argument: Any) -> bool:
    if type(argument) is int:
        return False
    if isinstance(argument, tuple):
        return any(_elsewhere(item) for item in argument)
    tensor = getattr(argument, "base", argument) if not isinstance(argument, torch.Tensor) else argument
    return isinstance(tensor, torch.Tensor) and not tensor.is_cpu


def _flat(names: Sequence[str], arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for name, argument in zip(names, arguments, strict=True):
        if isinstance(argument, tuple):
            yield from _flat([f"{name}[{at}]" for at in range(len(argument))], argument)
        else:
            yield name, argument


def _value(argument: Any, kind: Type) -> Any:
    if kind.element == "ptr":
        address = argument.data_ptr() if hasattr(argument, "data_ptr") else int(argument)
        # Generated code adds to addresses in int64, where the upper half is negative.
        return address - (1 << 64) if address >= 1 << 63 else address
    if kind.element == "i1":
        return bool(argument)
    if kind.element[0] == "i":
        bits = int(kind.element[1:])
        return (int(argument) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if kind.element == "bf16":
        raw = torch.tensor(float(argument), dtype=torch.bfloat16).float().item()
        return np.float32(raw)
    return dtype_of(kind.element).type(argument)


def install() -> None:
    """Execute this process's launches from now on, those of kernels that are decorated already among them.

    Raises:
        ValueError: a GPU has been used for them before.
    """
    if installed():
        return
    if getattr(driver, "_active", None) is not None:
        raise ValueError(
            "kernels have been compiled in this process, but should be executed from their IR from the first one on [install]"
        )
    # A kernel that is decorated later is none of Triton's interpreter, whatever TRITON_INTERPRET says by then.
    vars(knobs.runtime)["interpret"] = False
    # Unset, 3.9 warns that its default is going to be another one; it says nothing about what is executed here.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    use()
    JITFunction._do_compile = _do_compile


def installed() -> bool:
    """Whether this process executes its launches."""
    return "triton" in sys.modules and JITFunction._do_compile is _do_compile


def _do_compile(
    self: Any,
    key: str,
    signature: Any,
    device: int,
    constexprs: Any,
    options: Any,
    attrs: Any,
    warmup: bool,  # noqa: ARG001 - Triton's
    **_: Any,
) -> Kernel:
    # What `JITFunction.create_binder` returns in Triton 3.6 to 3.9, the versions in `private.MADE_FOR`: kernels by key, keys
    # by argument types, target, backend, binder. `run` unpacks the same five.
    kernels, _keys, _target, backend, _binder = self.device_caches[device]
    kernel = kernels[key] = _kernel(ASTSource(self, signature, constexprs, attrs), options, backend)
    return kernel


def _kernel(source: ASTSource, options: Any, backend: Any) -> Kernel:
    variant, why = None, ""
    try:
        variant = compiled(source, options, backend)
    except NotUnderstoodError as unknown:
        why = str(unknown)
    names = [name for name, kind in _flat_signature(source.signature) if kind != "constexpr"]
    return Kernel(source.fn, names, variant, why, partial(ttir, source, options, backend))


def _flat_signature(signature: Any) -> Iterator[tuple[str, Any]]:
    return _flat(list(signature), list(signature.values()))
