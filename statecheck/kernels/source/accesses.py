"""Accesses to memory as calls of the memory that a launch sees, each with its site."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from statecheck.kernels.arithmetic import atomic
from statecheck.kernels.source.flow import FULL, SCALAR
from statecheck.kernels.source.ir import NotUnderstoodError, Operation, Type, Value
from statecheck.kernels.source.lines import Lines, pointee
from statecheck.kernels.source.values import dtype_of, number


class Accesses(Lines):
    """Writes loads, stores, atomics and barriers."""

    def _site(self, kind: str, op: Operation, pointer: Value, **rest: Any) -> str:
        site = self._module.site(kind, op.place, element=pointee(pointer.type), **rest)
        self._line(f"yield {site.number}")
        return self._module.constant(site, ("site", site.number), "s")

    def _mask(self, op: Operation, at: int) -> Value | None:
        """The mask among the operands, unless all lanes are active."""
        if at >= len(op.operands):
            return None
        mask = op.operands[at]
        return None if mask in self._constants and self._constants[mask] is True else mask

    def _where(self, mask: Value | None) -> AbstractContextManager[None]:
        """For an access of one element."""
        return nullcontext() if mask is None else self._under(f"if {self._name(mask)}:")

    def _tt_load(self, op: Operation) -> None:
        pointer, mask = op.operands[0], self._mask(op, 1)
        other = op.operands[2] if len(op.operands) > 2 else None
        name = op.result.name
        if pointer.type.shape is None:
            with self._where(mask):
                site = self._site("load", op, pointer)
                self._line(f"{name} = load1({site}, {self._name(pointer)}, {self._origin(pointer)})")
            if mask is not None:
                with self._under("else:"):
                    self._line(
                        f"{name} = {self._name(other) if other else self._zero(op.result.type.element)}"
                    )
            return
        site = self._site("load", op, pointer)
        masked = self._mask_of(mask, pointer)
        rest = self._name(other) if other else "None"
        self._line(f"{name} = load({site}, {self._full(pointer)}, {masked}, {rest}, {self._origin(pointer)})")

    def _mask_of(self, mask: Value | None, pointer: Value) -> str:
        if mask is None:
            return "None"
        return self._as(mask, FULL, Type(pointer.type.shape, "i1"))

    def _zero(self, element: str) -> str:
        zero = number("0.0" if element[0] in "fb" else "0", element)
        return repr(zero) if type(zero) is int else self._module.constant(zero, ("zero", element))

    def _tt_store(self, op: Operation) -> None:
        pointer, value, mask = op.operands[0], op.operands[1], self._mask(op, 2)
        if pointer.type.shape is None:
            with self._where(mask):
                site = self._site("store", op, pointer)
                self._line(
                    f"store1({site}, {self._name(pointer)}, {self._name(value)}, {self._origin(pointer)})"
                )
            return
        site = self._site("store", op, pointer)
        masked = self._mask_of(mask, pointer)
        stored = self._as(value, FULL, Type(pointer.type.shape, value.type.element))
        self._line(f"store({site}, {self._full(pointer)}, {stored}, {masked}, {self._origin(pointer)})")

    def _tt_atomic_rmw(self, op: Operation) -> None:
        operation, sem, *_ = (part.strip() for part in op.text.split(","))
        pointer, value = op.operands[:2]
        if atomic(operation, pointee(pointer.type)) is None:
            raise NotUnderstoodError(f"tt.atomic_rmw {operation} of {pointee(pointer.type)}")
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(f"{op.result.name} = {self._changed(op, operation, sem, stored, self._mask(op, 2))}")

    def _changed(self, op: Operation, operation: str, sem: str, value: str, mask: Value | None = None) -> str:
        """What an atomic operation finds, as an expression, behind the stop before it."""
        pointer = op.operands[0]
        site = self._site("atomic", op, pointer, operation=operation, sem=sem)
        scalar = pointer.type.shape is None
        masked = "None" if mask is None else self._name(mask) if scalar else self._mask_of(mask, pointer)
        where = self._name(pointer) if scalar else self._full(pointer)
        return f"rmw({site}, {where}, {value}, {masked}, {self._origin(pointer)})"

    def _tt_atomic_load(self, op: Operation) -> None:
        kind, sem = op.result.type, op.text.split(",")[0].strip()
        nothing = self._zero(kind.element)
        if kind.shape is not None:
            dtype = self._module.constant(dtype_of(kind.element), ("dtype", kind.element), "t")
            nothing = f"full({nothing}, {kind.shape}, {dtype})"
        self._line(f"{op.result.name} = {self._changed(op, 'load', sem, nothing, self._mask(op, 1))}")

    def _tt_atomic_store(self, op: Operation) -> None:
        pointer, value = op.operands[:2]
        stored = self._as(value, SCALAR if pointer.type.shape is None else FULL, value.type)
        self._line(self._changed(op, "store", op.text.split(",")[0].strip(), stored, self._mask(op, 2)))

    def _tt_atomic_poll(self, op: Operation) -> None:
        if len(op.operands) > 2:
            raise NotUnderstoodError("tt.atomic_poll with a time limit")
        pointer, expected = op.operands
        wanted = self._as(expected, SCALAR if pointer.type.shape is None else FULL, expected.type)
        with self._under("while True:"):
            value = self._changed(op, "poll", op.text.split(",")[0].strip(), wanted)
            self._line(f"{op.result.name} = {value} == {wanted}")
            with self._under(f"if {op.result.name}{'' if pointer.type.shape is None else '.all()'}:"):
                self._line("break")

    def _tt_atomic_cas(self, op: Operation) -> None:
        sem = op.text.split(",")[0].strip()
        pointer, expected, value = op.operands
        site = self._site("atomic", op, pointer, operation="cas", sem=sem)
        whole = FULL if pointer.type.shape is not None else SCALAR
        passed = [self._as(each, whole, each.type) for each in (pointer, expected, value)]
        self._line(f"{op.result.name} = cas({site}, {', '.join(passed)}, {self._origin(pointer)})")

    def _ttg_barrier(self, op: Operation) -> None:  # noqa: ARG002 - as all others
        self._line("barrier()")

    _gpu_barrier = _ttg_barrier
