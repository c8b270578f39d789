"""How the sanitizer listens to launches that Triton's interpreter runs: what it replaces meanwhile, and puts back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from properties.harness.case.findings import Finding, Program
from properties.harness.kernels.sanitizer import bfloat16
from properties.harness.kernels.sanitizer.handles import Handles
from properties.harness.kernels.sanitizer.touches import Touch, touch
from properties.harness.kernels.sanitizer.views import view_of
from properties.harness.kernels.sanitizer.watch import Sanitizer

_MISSING = object()


@contextlib.contextmanager
def listening(watch: Sanitizer) -> Iterator[None]:
    """Everything that interpreted kernels do in this context is shown to the sanitizer first."""
    with contextlib.ExitStack() as undo:
        hooks = _Hooks(watch, undo)
        hooks.install()
        yield


class _Hooks:
    def __init__(self, watch: Sanitizer, undo: contextlib.ExitStack) -> None:
        from properties.harness.kernels.private import interpreter

        self._watch, self._undo, self._interpreter = watch, undo, interpreter
        self._builder, self._handles = interpreter.interpreter_builder, Handles(watch.provenance)
        self._names: dict[tuple[int, Any], str] = {}
        self._atomic: dict[Program, tuple[bool, bool]] = {}

    def install(self) -> None:
        tl, interpreter, builder = self._interpreter.tl, self._interpreter, self._builder
        self._accesses()
        for name, method in self._handles.wrappers(builder, interpreter.TensorHandle, tl.int64).items():
            self._replace(builder, name, method)
        for name, method in bfloat16.wrappers(builder, self._refuse).items():
            self._replace(builder, name, method)
        reduce = interpreter.ReduceScanOpInterface
        self._replace(reduce, "apply", self._reduce(bfloat16.reduce_and_scan(reduce.apply, self._refuse)))
        self._replace(interpreter, "_implicit_cvt", self._convert(interpreter._implicit_cvt))
        for handle in ("TensorDescHandle", "BlockPointerHandle"):
            if hasattr(interpreter, handle):
                owner = getattr(interpreter, handle)
                self._replace(owner, "materialize_pointers", self._materialize(owner.materialize_pointers))
        executor = interpreter.GridExecutor
        self._replace(executor, "__call__", self._launch(executor.__call__))

    def _accesses(self) -> None:
        builder = self._builder
        self._replace(builder, "create_masked_load", self._load(builder.create_masked_load))
        self._replace(builder, "create_masked_store", self._store(builder.create_masked_store))
        self._replace(builder, "create_atomic_rmw", self._rmw(builder.create_atomic_rmw))
        self._replace(builder, "create_atomic_cas", self._cas(builder.create_atomic_cas))
        self._replace(builder, "create_barrier", self._barrier(builder.create_barrier))
        self._replace(builder, "set_grid_dim", self._grid(builder.set_grid_dim))
        for name, place in (("create_atomic_load", 2), ("create_atomic_poll", 3), ("create_atomic_store", 3)):
            if hasattr(builder, name):
                self._replace(builder, name, self._made_atomic(getattr(builder, name), place))

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        plain = vars(owner).get(name, _MISSING)
        setattr(owner, name, new)
        self._undo.callback(_put_back, owner, name, plain)

    def _refuse(self, operation: str) -> Any:
        self._watch.refuse_bfloat16(self._builder.grid_idx, operation)

    def _touch(self, kind: str, pointers: Any, mask: Any, values: Any = None) -> Touch | None:
        nbytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        origin = self._handles.of(pointers)
        return touch(kind, self._builder.grid_idx, pointers, mask, nbytes, origin, values)

    def _load(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def load(pointers: Any, mask: Any, *rest: Any, **keywords: Any) -> Any:
            sem = self._atomic.get(self._builder.grid_idx)
            found = self._touch("load" if sem is None else "atomic", pointers, mask.data)
            if found is None:
                return plain(pointers, mask, *rest, **keywords)
            if sem is not None:
                found.acquires = sem[0]
            self._watch.before(found)
            result = plain(pointers, mask, *rest, **keywords)
            self._watch.after(found)
            self._handles.loaded(result)
            return result

        return load

    def _store(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def store(pointers: Any, value: Any, mask: Any, *rest: Any, **keywords: Any) -> Any:
            sem = self._atomic.get(self._builder.grid_idx)
            found = self._touch("store" if sem is None else "atomic", pointers, mask.data, value.data)
            if found is None:
                return plain(pointers, value, mask, *rest, **keywords)
            found.reads, found.writes = False, True
            if sem is not None:
                found.releases = sem[1]
            self._watch.before(found)
            result = plain(pointers, value, mask, *rest, **keywords)
            self._watch.after(found)
            return result

        return store

    def _rmw(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def change(op: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
            found = self._touch("atomic", pointers, mask.data)
            if found is None:
                return plain(op, pointers, value, mask, sem, scope)
            found.writes = True
            found.acquires, found.releases = _semantics(sem)
            self._watch.before(found)
            result = plain(op, pointers, value, mask, sem, scope)
            self._watch.after(found)
            return result

        return change

    def _cas(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def compare_and_swap(pointers: Any, expected: Any, value: Any, sem: Any, scope: Any) -> Any:
            found = self._touch("atomic", pointers, True)
            assert found is not None
            self._watch.before(found)
            result = plain(pointers, expected, value, sem, scope)
            # One that finds another value changes nothing, and so publishes nothing.
            found.writes = bool((result.data == expected.data).any())
            acquires, releases = _semantics(sem)
            found.acquires, found.releases = acquires, releases and found.writes
            self._watch.after(found)
            return result

        return compare_and_swap

    def _made_atomic(self, plain: Callable[..., Any], place: int) -> Callable[..., Any]:
        """Atomic loads and stores end in plain ones, which then are no plain ones."""

        def access(*arguments: Any, **keywords: Any) -> Any:
            program = self._builder.grid_idx
            sem = arguments[place] if len(arguments) > place else keywords["sem"]
            self._atomic[program] = _semantics(sem)
            try:
                return plain(*arguments, **keywords)
            finally:
                self._atomic.pop(program, None)

        return access

    def _barrier(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def barrier(*arguments: Any, **keywords: Any) -> Any:
            self._watch.barrier(self._builder.grid_idx)
            return plain(*arguments, **keywords)

        return barrier

    def _reduce(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def reduce(operation: Any, arguments: Any) -> Any:
            result = plain(operation, arguments)
            # All lanes have to get there before any of them has the one result.
            if isinstance(result, tuple) and all(one.handle.data.size == 1 for one in result):
                self._watch.barrier(self._builder.grid_idx)
            return result

        return reduce

    def _grid(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def begin(*sizes: Any) -> None:
            plain(*sizes)
            self._watch.begin_grid(prod(sizes))

        return begin

    def _convert(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def convert(argument: Any) -> Any:
            result = plain(argument)
            if hasattr(result, "handle") and hasattr(result.handle, "attr"):
                self._handles.argument(result.handle, argument, self._names)
            return result

        return convert

    def _materialize(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def materialize(descriptor: Any, *arguments: Any) -> Any:
            pointers, mask = plain(descriptor, *arguments)
            self._handles.give(pointers, self._handles.of(descriptor.base))
            return pointers, mask

        return materialize

    def _launch(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(executor: Any, *arguments: Any, **keywords: Any) -> Any:
            self._names = {}
            for name, argument in zip(executor.arg_names, arguments, strict=False):
                self._name(name, argument)
            for name, argument in keywords.items():
                self._name(name, argument)
            self._atomic.clear()
            self._watch.begin_launch(executor.fn.__name__)
            try:
                result = plain(executor, *arguments, **keywords)
            except Exception as error:
                found = _finding(error)
                if found is None or found is error:
                    raise
                raise found from None
            self._watch.end_launch()
            return result

        return call

    def _name(self, name: str, argument: Any) -> None:
        if hasattr(argument, "data_ptr"):
            self._names.setdefault(view_of(argument, name).key, name)
        elif isinstance(argument, tuple):
            for number, one in enumerate(argument):
                self._name(f"{name}[{number}]", one)
        elif hasattr(argument, "base") and hasattr(argument, "block_shape"):
            self._name(name, argument.base)


def _put_back(owner: Any, name: str, plain: Any) -> None:
    if plain is _MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, plain)


def _semantics(sem: Any) -> tuple[bool, bool]:
    """Whether an atomic acquires and whether it releases."""
    return sem.name in ("ACQUIRE", "ACQUIRE_RELEASE"), sem.name in ("RELEASE", "ACQUIRE_RELEASE")


def _finding(error: BaseException) -> Finding | None:
    """What the interpreter has wrapped in its own exceptions, once for each function on the way."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Finding):
        cause = cause.__cause__
    return cause
