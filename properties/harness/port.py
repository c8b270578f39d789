"""The execution port: the one place where plain data becomes tensors and a subject is called.

Properties never hold a tensor. They hand steps to a port and get outcomes back, so a port that runs in another
process, or on another machine, needs no change in any property.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, Protocol

import torch

from properties.harness.own import OWN_FUNCTIONS
from properties.harness.values import (
    Address,
    Call,
    Device,
    DType,
    Let,
    Name,
    Outcome,
    Overwrite,
    Place,
    Raised,
    Record,
    Returned,
    Returns,
    SameAs,
    Step,
    Tensor,
    Value,
)
from properties.subjects import Subject

GUARD_BYTES = 64
CANARY = 0xA5
_ADDRESS_FIELDS = {("MambaCopySpec", "start_addr")}


class _SubjectError(Exception):
    """Carries what the subject raised, as its cause, apart from errors of the harness itself."""


class Port(Protocol):
    """Runs the steps of one example after another; `begin` forgets the names of the example before."""

    device: str

    def begin(self) -> None: ...

    def execute(self, step: Step) -> Outcome | None: ...

    def waiting_refused(self) -> AbstractContextManager[None]:
        """While it is entered, a call of the subject that waits for the device raises in the subject."""
        ...


@dataclass
class _Block:
    """Memory of one tensor: guard bytes, the storage, guard bytes; `before` is its snapshot, where it has contents."""

    view: torch.Tensor
    memory: torch.Tensor
    before: torch.Tensor | None


@dataclass
class _Scope:
    """What the arguments of one call became."""

    blocks: dict[str, _Block] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)

    def add(self, path: str, block: _Block) -> torch.Tensor:
        self.blocks[path] = block
        self.paths[id(block.view)] = path
        return block.view


@dataclass
class _Named:
    """What a name is bound to; the scope has the memory that is part of it."""

    value: Any
    scope: _Scope


class InProcess:
    """Executes in this process, on `device` ("cpu" or "cuda")."""

    def __init__(self, subject: Subject, device: str) -> None:
        self.subject = subject
        self.device = device
        self._named: dict[str, _Block | _Named | _SubjectError] = {}
        self._sync_mode = "default"
        self._blank: dict[str, torch.Tensor] = {}
        self._lendable: set[str] = set()

    def begin(self) -> None:
        self._named.clear()

    def execute(self, step: Step) -> Outcome | None:
        if isinstance(step, Let):
            self._named[step.name] = self._named_value(step.value)
        elif isinstance(step, Overwrite):
            block = self._named[step.name]
            assert isinstance(block, _Block)
            self._overwrite(block, step.elements)
        else:
            return self._call(step)
        return None

    def materialise(self, value: Value) -> Any:
        """The object that `value` stands for, on this port's device."""
        return self._build(value, "", _Scope())

    def _named_value(self, value: Value) -> _Block | _Named | _SubjectError:
        if isinstance(value, Tensor):
            return self._allocate(value)
        scope = _Scope()
        try:
            return _Named(self._build(value, "", scope), scope)
        except _SubjectError as error:
            # The next call that wants it meets the refusal.
            return error

    def _overwrite(self, block: _Block, elements: tuple[int, ...]) -> None:
        flat = block.view.as_strided((len(elements),), (1,), self._storage_start(block))
        flat.copy_(torch.tensor(elements, dtype=block.view.dtype))
        block.before = block.memory.clone()

    @staticmethod
    def _storage_start(block: _Block) -> int:
        return GUARD_BYTES // block.view.element_size()

    def _call(self, call: Call) -> Outcome:
        scope = _Scope()
        self._lendable = {"cpu", self.device}
        try:
            with self.subject.environment(dict(call.environment)):
                arguments = [self._build(value, name, scope) for name, value in call.arguments]
                keywords = {name: self._build(value, name, scope) for name, value in call.keywords}
                result = self._run(self._function(call.function), arguments, keywords)
        except _SubjectError as error:
            self._bind(call, error)
            cause = error.__cause__
            return Raised(type(cause).__name__, str(cause), self._changed(scope))
        self._bind(call, _Named(result, _Scope()))
        described = self._describe(result, "result", scope, by_content=call.by_content)
        return Returned(described, self._changed(scope))

    def _bind(self, call: Call, result: _Named | _SubjectError) -> None:
        if call.bind:
            self._named[call.bind] = result

    def _function(self, name: str) -> Any:
        owner, _, function = name.partition(".")
        return OWN_FUNCTIONS[function] if owner == "harness" else self.subject.resolve(name)

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        self._sync_mode = "error"
        try:
            yield
        finally:
            self._sync_mode = "default"

    def _run(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        try:
            with self._sync_debug_mode():
                return function(*arguments, **keywords)
        except Exception as error:
            raise _SubjectError from error

    @contextmanager
    def _sync_debug_mode(self) -> Iterator[None]:
        if self.device == "cpu" or self._sync_mode == "default":
            yield
            return
        try:
            with warnings.catch_warnings():
                # The first time in a process it warns that it may miss some; as an error that would leave it on.
                warnings.simplefilter("ignore", UserWarning)
                torch.cuda.set_sync_debug_mode(self._sync_mode)
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def _build(self, value: Value, path: str, scope: _Scope) -> Any:
        if isinstance(value, Name):
            return self._known(value, path, scope)
        if isinstance(value, Tensor):
            return scope.add(path, self._allocate(value))
        if isinstance(value, Record):
            return self._construct(value, path, scope)
        if isinstance(value, (list, tuple)):
            return type(value)(self._build(item, f"{path}[{i}]", scope) for i, item in enumerate(value))
        if isinstance(value, DType):
            return getattr(torch, value.name)
        if isinstance(value, Device):
            return torch.device(self.device)
        if isinstance(value, Returns):
            return lambda: value.value
        return value

    def _known(self, name: Name, path: str, scope: _Scope) -> Any:
        known = self._named[name.name]
        if isinstance(known, _SubjectError):
            raise known
        if isinstance(known, _Block):
            return scope.add(path, known)
        for inner, block in known.scope.blocks.items():
            scope.add(_joined(path, inner), block)
        return known.value

    def _construct(self, value: Record, path: str, scope: _Scope) -> Any:
        items = {name: self._build(item, _joined(path, name), scope) for name, item in value.fields}
        return self._run(self.subject.construct, [value.type, items], {})

    def _allocate(self, tensor: Tensor) -> _Block:
        dtype = getattr(torch, tensor.dtype)
        device = self.device if tensor.on == "device" else "cpu"
        nbytes = tensor.storage_size * dtype.itemsize
        if tensor.elements is None:
            memory = self._blank_memory(nbytes, device)
            return _Block(self._view(memory.view(dtype), tensor), memory, None)
        guard = torch.full((GUARD_BYTES,), CANARY, dtype=torch.uint8)
        contents = torch.tensor(tensor.elements, dtype=dtype).view(torch.uint8)
        memory = torch.cat((guard, contents, guard)).to(device)
        inside = memory[GUARD_BYTES : GUARD_BYTES + nbytes].view(dtype)
        return _Block(self._view(inside, tensor), memory, memory.clone())

    def _blank_memory(self, nbytes: int, device: str) -> torch.Tensor:
        """Memory whose contents nobody looks at; pools with huge strides take gigabytes, so a call is lent one."""
        if device not in self._lendable:
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._lendable.remove(device)
        if self._blank.get(device) is None or self._blank[device].numel() < nbytes:
            self._blank[device] = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return self._blank[device][:nbytes]

    @staticmethod
    def _view(storage: torch.Tensor, tensor: Tensor) -> torch.Tensor:
        strides = tensor.strides or tensor.contiguous_strides
        return storage.as_strided(tensor.shape, strides, storage.storage_offset() + tensor.offset)

    @staticmethod
    def _changed(scope: _Scope) -> tuple[str, ...]:
        return tuple(
            name
            for name, block in scope.blocks.items()
            if block.before is not None and not torch.equal(block.memory, block.before)
        )

    def _describe(self, result: Any, path: str, scope: _Scope, *, by_content: bool = False) -> Value:
        if isinstance(result, torch.Tensor):
            return self._describe_tensor(result, path, scope, by_content)
        describe = partial(self._describe, scope=scope, by_content=by_content)
        if is_dataclass(result) and not isinstance(result, type):
            return self._describe_fields(result, path, scope, describe)
        if isinstance(result, dict):
            return {key: describe(item, f"{path}[{key!r}]") for key, item in result.items()}
        if isinstance(result, (list, tuple)):
            items = [describe(item, f"{path}[{i}]") for i, item in enumerate(result)]
            return items if isinstance(result, list) else tuple(items)
        if result is None or isinstance(result, (bool, int, float, str)):
            return result
        return Record(type(result).__name__, ())

    def _describe_tensor(self, result: torch.Tensor, path: str, scope: _Scope, by_content: bool) -> Value:
        if not by_content:
            if id(result) in scope.paths:
                return SameAs(scope.paths[id(result)])
            scope.paths[id(result)] = path
            scope.blocks.setdefault(path, _Block(result, result, None))
        name = str(result.dtype).removeprefix("torch.")
        elements = result.reshape(-1).tolist()
        flat = tuple(map(int, elements)) if result.dtype is torch.bool else tuple(elements)
        on: Place = "host" if self.device != "cpu" and result.device.type == "cpu" else "device"
        return Tensor(name, tuple(result.shape), flat, on=on)

    @staticmethod
    def _describe_fields(
        result: Any, path: str, scope: _Scope, describe: Callable[[Any, str], Value]
    ) -> Record:
        kind = type(result).__name__

        def field_of(name: str) -> Value:
            item = getattr(result, name)
            if (kind, name) in _ADDRESS_FIELDS and isinstance(item, int):
                return _address(item, scope)
            return describe(item, f"{path}.{name}")

        return Record(kind, tuple((one.name, field_of(one.name)) for one in fields(result)))


def _joined(path: str, name: str) -> str:
    """Where `name` of the object at `path` is; `self` goes without saying."""
    return f"{path}.{name}" if path not in ("", "self") else name


def _address(number: int, scope: _Scope) -> Value:
    """The address relative to the argument whose memory it points into, or the bare number where there is none."""
    for name, block in scope.blocks.items():
        start = block.memory.data_ptr()
        if start <= number < start + block.memory.numel() * block.memory.element_size():
            return Address(name, number - block.view.data_ptr())
    return number


def choose_device(requested: str) -> str:
    """The device that a request stands for: `auto` is `cuda` where there is a GPU and `cpu` elsewhere.

    Raises:
        ValueError: an unknown device, or "cuda" where there is none.
    """
    if requested not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {requested!r}, but should be auto, cpu or cuda [choose_device]")
    if requested == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device = 'cuda', but should be cpu or auto where torch finds no GPU [choose_device]"
        )
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return requested


__all__ = ["CANARY", "GUARD_BYTES", "InProcess", "Port", "choose_device"]
