"""Results must not depend on the order of programs: launches of a script in the orders in which properties make theirs.

Races are found without trying orders. What atomics make depend on the order (a slot that `atomic_add` hands out, a sum
of floats) is no race, and shows only in another order: so each launch is made again from the same memory, in the reversed
order, in a few that PCT draws, and, if it is small, in all interleavings up to equivalence. Programs that wait for each other
may never end in an order that runs one after the other: choose others for those.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch

from statecheck.case.findings import Access, Finding
from statecheck.case.program_schedule import EVERY, PRIORITIES, REVERSED
from statecheck.kernels import coverage, triton_mode
from statecheck.kernels.orders.schedule import program_schedule, switches_recorded
from statecheck.kernels.sanitizer.touches import place_texts
from statecheck.kernels.sanitizer.views import TensorView, view_of
from statecheck.kernels.sanitizer.watch import Sanitizer

if TYPE_CHECKING:
    from statecheck.kernels.launch import Launched
    from statecheck.kernels.memory import Memory
    from statecheck.kernels.orders.journal import Journal, Writer, WrittenBytes

ORDERS = (REVERSED, *(f"{PRIORITIES}:{seed}" for seed in range(1, 4)), f"{EVERY}:300")
_ROW_MAJOR = ""


class OrderDependence(Finding):
    """A launch leaves other bytes, or fails, if its programs run in another order."""


@contextlib.contextmanager
def every_order(orders: Sequence[str] = ORDERS, watch: Sanitizer | None = None) -> Iterator[None]:
    """Each launch in this context is made in row-major order, taken back, made again in the other orders, and compared.

    Afterwards memory holds what row-major order has left. May be entered inside `sanitize()` or around it: each order is
    a launch of its own to the sanitizer, whose findings come first and stay what they are. With `watch`, tensors that were
    registered have their names in messages; and its last writer is that of the last order. A launch that Triton's
    interpreter runs is made once, in row-major order, and a warning says so.

    Raises:
        ValueError: no such order, or kernels are compiled, or interpreted, in this process.
        OrderDependence: from the launch, where two orders differ.
    """
    for order in orders:
        with program_schedule(order):
            pass
    triton_mode.prepare("cpu")
    from statecheck.kernels.launch import launching

    launches = 0

    def compare(launched: Launched, make: Callable[[], None]) -> None:
        nonlocal launches
        launches += 1
        if prod(launched.grid) < 2:
            make()
            return
        registered = watch.provenance.registered if watch else []
        _Launch(launched, make, [*_tensors(launched), *registered], launches).compare(orders)

    with _warning_of_interpreted(), launching(compare):
        yield


@contextlib.contextmanager
def _warning_of_interpreted() -> Iterator[None]:
    """Warn of launches that were made in one order only."""
    before = coverage.interpreted()
    yield
    for launch in coverage.interpreted() - before:
        warnings.warn(f"{launch.kernel} ran in one order only: {launch.why}", stacklevel=3)


def _tensors(launched: Launched) -> Iterator[TensorView]:
    for name, argument in zip(launched.names, launched.arguments, strict=True):
        if hasattr(argument, "data_ptr"):
            yield view_of(argument, name, keep=True)


class _Launch:
    """One launch, in one order after the other."""

    def __init__(
        self, launched: Launched, make: Callable[[], None], known: list[TensorView], number: int
    ) -> None:
        self._launched, self._make, self._known, self._number = launched, make, known, number
        self._memory: Memory | None = None

    def compare(self, orders: Sequence[str]) -> None:
        journal, error = self._run(_ROW_MAJOR)
        if not isinstance(error, Finding):
            first = journal.take_back()
            try:
                for order in orders:
                    self._compare_with(order, journal.writers, first, error)
            finally:
                first.put_back()
        if error is not None:
            raise error

    def _run(self, order: str) -> tuple[Journal, Exception | None]:
        """What was written, and what was raised."""
        from statecheck.kernels.orders.journal import Journal

        journal = Journal()
        with self._noting(journal), program_schedule(order):
            try:
                self._make()
            except Exception as error:
                return journal, error
            except BaseException:
                journal.take_back()
                raise
        return journal, None

    @contextlib.contextmanager
    def _noting(self, journal: Journal) -> Iterator[None]:
        """Programs run in row-major order, unless another one is chosen inside, and what they write is noted."""
        from statecheck.kernels.launch import STATE, in_turn, running
        from statecheck.kernels.observed import ObservedMemory

        make = STATE.memory

        def memory(launched: Launched) -> Memory:
            self._memory = ObservedMemory() if make is None else make(launched)
            assert isinstance(self._memory, ObservedMemory)
            # Behind the sanitizer: an access that it refuses is not made, and not noted.
            self._memory.observers.append(journal)
            return self._memory

        with running(memory=memory, runner=in_turn):
            yield

    def _compare_with(
        self, order: str, writers: list[Writer], first: WrittenBytes, error: Exception | None
    ) -> None:
        with switches_recorded() as record:
            journal, other = self._run(order)
        # Which of all interleavings differs.
        order = record[-1] if order.startswith(EVERY) else order
        now = journal.take_back()
        if isinstance(other, Finding):
            other.add_note(f"In the order {order}; in row-major order nothing was found.")
            raise other
        if (error is None) is not (other is None):
            self._refuse_failure(order, error, other)
        address = first.first_difference(now) if error is None else None
        if address is not None:
            self._refuse_difference(order, [(writers, first), (journal.writers, now)], address)

    def _refuse_difference(
        self, order: str, both: list[tuple[list[Writer], WrittenBytes]], address: int
    ) -> None:
        known = next((view for view in self._known if view.geometry.has(address - view.base, 1)), None)
        index = known.index(address) if known else None
        access, values = [], []
        for writers, written in both:
            number = written.writer(address)
            access.append(None if number is None else self._access(writers[number], known, index, address))
            values.append(_value(written, known, index, address))
        last = next(writer for writer in access[::-1] if writer)
        message = (
            f"{last.what} depends on the order of programs: it is {values[0]} in row-major order, "
            f"{_where(access[0])}, and {values[1]} in the order {order}, {_where(access[1])}"
        )
        raise OrderDependence(message, access[0] or last, access[1] if access[0] else None)

    def _access(
        self, writer: Writer, known: TensorView | None, index: tuple[int, ...] | None, address: int
    ) -> Access:
        name, nbytes = (known.name, known.geometry.itemsize) if known else ("", 1)
        kernel, places = self._launched.kernel, place_texts(writer.place)
        return Access(
            writer.kind, writer.program, kernel, name, index, address, nbytes, *places, self._number
        )

    def _refuse_failure(self, order: str, error: Exception | None, other: Exception | None) -> None:
        failing, fine = "row-major order", f"the order {order}"
        if other is not None:
            failing, fine = fine, failing
        cause = error or other
        assert cause is not None
        access = self._failure(cause)
        message = (
            f"{access.kernel} depends on the order of programs: in {failing} it fails at {access.place} "
            f"with {cause!r}, and in {fine} it does not"
        )
        raise OrderDependence(message, access) from cause

    def _failure(self, cause: BaseException) -> Access:
        """Where the program that was under way last has failed."""
        assert self._memory is not None
        texts = place_texts(getattr(cause, "place", ("", 0)))
        program, kernel = self._memory.program, self._launched.kernel
        return Access("arithmetic", program, kernel, "", None, 0, 0, *texts, self._number)


def _value(
    written: WrittenBytes, known: TensorView | None, index: tuple[int, ...] | None, address: int
) -> object:
    """The element, or the byte in no known tensor, as the launch has left it."""
    from statecheck.kernels.orders.journal import read_bytes

    if known is None or index is None:
        addresses = np.array([address], np.int64)
        return f"{written.over(addresses, read_bytes(addresses))[0]:#04x}"
    geometry = known.geometry
    start = known.base + sum(i * stride for i, stride in zip(index, geometry.strides, strict=True))
    addresses = start + np.arange(geometry.itemsize)
    element = torch.from_numpy(written.over(addresses, read_bytes(addresses)))
    return element.view(known.tensor.dtype).item()


def _where(access: Access | None) -> str:
    if access is None:
        return "where no program writes it"
    return f"where program {access.program} of {access.kernel} {access.verb} it last at {access.place}"
