"""Results must not depend on the order of programs.

Races are found without trying orders. What atomics make depend on the order (a slot that `atomic_add` hands out, a sum
of floats) is no race, and shows only in another order: so every launch is made again in other ones, from the same memory.
Programs that wait for each other may never end in an order that runs one after the other: choose interleaved ones for
those.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from properties.harness.sanitizer.findings import Access, Finding, Program
from properties.harness.sanitizer.touches import Place, _is_machinery, here, place_texts
from properties.harness.sanitizer.views import View, view_of
from properties.harness.sanitizer.watch import Sanitizer
from properties.harness.schedules import program_schedule

ORDERS = ("reversed", "shuffled:1", "interleaved:1")
_ROW_MAJOR = ""
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
"""No larger than a page of any machine: memory that has one of its bytes has them all."""


class OrderDependence(Finding):
    """A launch leaves other bytes, or fails, if its programs run in another order."""


@contextlib.contextmanager
def every_order(orders: Sequence[str] = ORDERS, watch: Sanitizer | None = None) -> Iterator[None]:
    """Each launch in this context is made in row-major order, taken back, made again in the other orders, and compared.

    Afterwards memory holds what row-major order has left. May be entered inside `sanitize()` or around it: each order is
    a launch of its own to the sanitizer, whose findings come first and stay what they are. With `watch`, tensors that were
    registered have their names in messages; and the last writer it tells of is that of the last order. What
    `program_schedule` interleaves already is left at that.

    Raises:
        ValueError: no such order; kernels are compiled in this process; or a tensor is on a GPU.
        OrderDependence: from the launch, where two orders differ.
    """
    from triton.runtime import interpreter

    for order in orders:
        with program_schedule(order):
            pass
    _refuse_compiled()
    function, launches = interpreter.InterpretedFunction, 0
    plain = function.run

    def run(kernel: Any, /, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        nonlocal launches
        if not warmup:
            launches += 1
            call = lambda: plain(kernel, *arguments, grid=grid, warmup=False, **keywords)  # noqa: E731
            known = [
                *_tensors(kernel.arg_names, arguments, keywords),
                *(watch.provenance.registered if watch else ()),
            ]
            _Launch(interpreter, kernel, call, known, launches).compare(orders)

    function.run = run
    try:
        yield
    finally:
        function.run = plain


def _refuse_compiled() -> None:
    import triton

    if not triton.knobs.runtime.interpret:
        rule = "1 where programs are to run in other orders"
        raise ValueError(f"TRITON_INTERPRET is unset, but should be {rule} [every_order]")


def _tensors(names: Sequence[str], arguments: Sequence[Any], keywords: dict[str, Any]) -> Iterator[View]:
    for name, argument in [*zip(names, arguments, strict=False), *keywords.items()]:
        yield from _tensors_in(name, argument)


def _tensors_in(name: str, argument: Any) -> Iterator[View]:
    if isinstance(argument, tuple):
        for number, one in enumerate(argument):
            yield from _tensors_in(f"{name}[{number}]", one)
    elif hasattr(argument, "base"):
        yield from _tensors_in(name, argument.base)
    elif hasattr(argument, "data_ptr"):
        if argument.device.type != "cpu":
            rule = "cpu where programs are to run in other orders"
            raise ValueError(f"{name}.device = {argument.device}, but should be {rule} [every_order]")
        yield view_of(argument, name, keep=True)


class _Writer(NamedTuple):
    kind: str
    program: Program
    place: Place


@dataclass(frozen=True)
class _State:
    """Bytes after a run, and who wrote each of them last: a number, or -1 for nobody."""

    data: NDArray[np.uint8]
    writers: NDArray[np.int32]


class _Page:
    """Neighbouring bytes, of which only those that were touched are ours to put back."""

    def __init__(self, number: int) -> None:
        at = (ctypes.c_uint8 * _PAGE).from_address(number << _PAGE_BITS)
        self.now: NDArray[np.uint8] = np.ctypeslib.as_array(at)
        self.touched = np.zeros(_PAGE, np.bool_)
        self.before = _State(self.now.copy(), np.full(_PAGE, -1, np.int32))
        self.writers = self.before.writers.copy()

    def state(self) -> _State:
        return _State(self.now.copy(), self.writers.copy())

    def put(self, state: _State) -> None:
        self.now[self.touched] = state.data[self.touched]
        self.writers[:] = -1


_States = dict[int, _State]


class _Memory:
    """What the runs of a launch write."""

    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._pages: dict[int, _Page] = {}
        self._writers: dict[_Writer, int] = {}
        self.threads: set[int] = set()

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Every byte is noted before it is written, after all others who listen to the access have agreed to it."""
        plain, builder = self._interpreter._interpreter, self._interpreter.interpreter_builder
        noted = SimpleNamespace(**vars(plain))
        noted.store = self._noted(plain.store, "store", (0, 1, 2))
        noted.atomic_rmw = self._noted(plain.atomic_rmw, "atomic", (1, 2, 3))
        noted.atomic_cas = self._noted(plain.atomic_cas, "atomic", (0, 2, None))
        self._interpreter._interpreter = noted
        before = vars(builder).get("set_grid_idx")
        builder.set_grid_idx = self._begun(builder.set_grid_idx)
        try:
            yield
        finally:
            del builder.set_grid_idx
            if before is not None:
                builder.set_grid_idx = before
            self._interpreter._interpreter = plain

    def _begun(self, plain: Callable[..., None]) -> Callable[..., None]:
        def begin(*index: int) -> None:
            self.threads.add(threading.get_ident())
            plain(*index)

        return begin

    def _noted(
        self, plain: Callable[..., Any], kind: str, places: tuple[int, int, int | None]
    ) -> Callable[..., Any]:
        """`places` of the pointers, the new values and the mask among the arguments."""
        pointers, values, mask = places

        def write(*arguments: Any) -> Any:
            active = np.True_ if mask is None else arguments[mask]
            self._note(kind, arguments[pointers], arguments[values].dtype.itemsize, active)
            return plain(*arguments)

        return write

    def _note(self, kind: str, pointers: Any, nbytes: int, mask: Any) -> None:
        active = pointers[np.broadcast_to(mask, pointers.shape).astype(np.bool_)].astype(np.int64)
        if not active.size:
            return
        touched = (active[:, None] + np.arange(nbytes)).reshape(-1)
        numbers = touched >> _PAGE_BITS
        writer = _Writer(kind, self._interpreter.interpreter_builder.grid_idx, here())
        who = self._writers.setdefault(writer, len(self._writers))
        for number in np.unique(numbers).tolist():
            if number not in self._pages:
                self._pages[number] = _Page(number)
            page, some = self._pages[number], touched[numbers == number] & (_PAGE - 1)
            page.touched[some] = True
            page.writers[some] = who

    def states(self) -> _States:
        return {number: page.state() for number, page in self._pages.items()}

    def put(self, states: _States) -> None:
        """Put everything back as it was then; {} is before the launch."""
        for number, page in self._pages.items():
            page.put(states.get(number, page.before))

    def first_difference(self, one: _States, other: _States) -> int | None:
        """The address of a byte."""
        for number, page in sorted(self._pages.items()):
            left, right = one.get(number, page.before), other.get(number, page.before)
            differs = page.touched & (left.data != right.data)
            if differs.any():
                return (number << _PAGE_BITS) + int(differs.argmax())
        return None

    def bytes_in(self, states: _States, address: int, nbytes: int) -> bytes:
        found = bytearray()
        for one in range(address, address + nbytes):
            number = one >> _PAGE_BITS
            page = self._pages.get(number) or _Page(number)
            found.append(int(states.get(number, page.before).data[one & (_PAGE - 1)]))
        return bytes(found)

    def writer_in(self, states: _States, address: int) -> _Writer | None:
        state = states.get(address >> _PAGE_BITS)
        who = -1 if state is None else int(state.writers[address & (_PAGE - 1)])
        return list(self._writers)[who] if who >= 0 else None


class _Launch:
    """One launch, in one order after the other."""

    def __init__(
        self, interpreter: Any, kernel: Any, call: Callable[[], None], known: list[View], number: int
    ) -> None:
        self._builder, self._kernel, self._call = interpreter.interpreter_builder, kernel, call
        self._known, self._number = known, number
        self._memory = _Memory(interpreter)

    def compare(self, orders: Sequence[str]) -> None:
        error = self._run(_ROW_MAJOR)
        # Programs in threads of their own are interleaved by a schedule around this one, which would be in the way.
        free = prod(self._builder.grid_dim) > 1 and len(self._memory.threads) < 2
        if free and not isinstance(error, Finding):
            first = self._memory.states()
            hooks, self._kernel.pre_run_hooks = self._kernel.pre_run_hooks, []
            try:
                for order in orders:
                    self._compare_with(order, first, error)
            finally:
                self._kernel.pre_run_hooks = hooks
                self._memory.put(first)
        if error is not None:
            raise error

    def _run(self, order: str) -> Exception | None:
        with program_schedule(order), self._memory.noting():
            try:
                self._call()
            except Exception as error:
                return error
        return None

    def _compare_with(self, order: str, first: _States, error: Exception | None) -> None:
        self._memory.put({})
        other = self._run(order)
        if isinstance(other, Finding):
            other.add_note(f"In the order {order}; in row-major order nothing was found.")
            raise other
        if (error is None) is not (other is None):
            self._refuse_failure(order, error, other)
        now = self._memory.states()
        address = self._memory.first_difference(first, now) if error is None else None
        if address is not None:
            self._refuse_difference(order, first, now, address)

    def _refuse_difference(self, order: str, first: _States, now: _States, address: int) -> None:
        known = next((one for one in self._known if one.geometry.has(address - one.base, 1)), None)
        index = known.index(address) if known else None
        access, values = [], []
        for states in (first, now):
            writer = self._memory.writer_in(states, address)
            access.append(self._access(writer, known, index, address) if writer else None)
            values.append(self._value(states, known, index, address))
        written = next(one for one in access[::-1] if one)
        message = (
            f"{written.what} depends on the order of programs: it is {values[0]} in row-major order, "
            f"{_where(access[0])}, and {values[1]} in the order {order}, {_where(access[1])}"
        )
        raise OrderDependence(message, access[0] or written, access[1] if access[0] else None)

    def _access(
        self, writer: _Writer, known: View | None, index: tuple[int, ...] | None, address: int
    ) -> Access:
        name, nbytes = (known.name, known.geometry.itemsize) if known else ("", 1)
        kernel, places = self._kernel.__name__, place_texts(writer.place)
        return Access(
            writer.kind, writer.program, kernel, name, index, address, nbytes, *places, self._number
        )

    def _value(
        self, states: _States, known: View | None, index: tuple[int, ...] | None, address: int
    ) -> object:
        if known is None or index is None:
            return f"{self._memory.bytes_in(states, address, 1)[0]:#04x}"
        geometry = known.geometry
        start = known.base + sum(i * stride for i, stride in zip(index, geometry.strides, strict=True))
        found = bytearray(self._memory.bytes_in(states, start, geometry.itemsize))
        return torch.frombuffer(found, dtype=torch.uint8).view(known.tensor.dtype).item()

    def _refuse_failure(self, order: str, error: Exception | None, other: Exception | None) -> None:
        failing, fine = "row-major order", f"the order {order}"
        if other is not None:
            failing, fine = fine, failing
        cause = _innermost(error or other)
        access = self._failure(cause)
        message = (
            f"{access.kernel} depends on the order of programs: in {failing} it fails at {access.place} "
            f"with {cause!r}, and in {fine} it does not"
        )
        raise OrderDependence(message, access) from cause

    def _failure(self, cause: BaseException) -> Access:
        frames = [
            (frame.f_code, line)
            for frame, line in traceback.walk_tb(cause.__traceback__)
            if not _is_machinery(frame.f_code.co_filename)
        ]
        texts = place_texts(frames[-1] if frames else (None, 0))
        program: Program = self._builder.grid_idx
        return Access("arithmetic", program, self._kernel.__name__, "", None, 0, 0, *texts, self._number)


def _where(access: Access | None) -> str:
    if access is None:
        return "where no program writes it"
    return f"where program {access.program} of {access.kernel} {access.verb} it last at {access.place}"


def _innermost(error: BaseException | None) -> BaseException:
    assert error is not None
    return _innermost(error.__cause__) if error.__cause__ else error
