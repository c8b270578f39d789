"""From plain data to objects: the arguments that a subject is called with."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from statecheck.case.raised import from_outside
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Device,
    DType,
    Fake,
    Function,
    Name,
    NumPy,
    Overwrite,
    Record,
    Returns,
    Rows,
    Tensor,
    Value,
    View,
    dense_strides,
)
from statecheck.execution.objects.allocator import Allocator
from statecheck.execution.objects.arena import Arena
from statecheck.execution.objects.blocks import (
    Allocation,
    Named,
    Scope,
    SubjectError,
    Window,
    contents,
    joined,
    window,
)
from statecheck.execution.objects.fakes import fake_tensor
from statecheck.execution.objects.sanitizer import Watched
from statecheck.subject import Subject

Bound = Allocation | Window | Named | SubjectError


class Builder:
    """Builds values for `subject` on `device`, and keeps what names are bound to."""

    def __init__(
        self,
        subject: Subject,
        device: str,
        *,
        watched: Watched | None = None,
        arena: Arena | None = None,
    ) -> None:
        self.subject = subject
        self.device = device
        self.watched = watched
        self.allocator = Allocator(device, arena=arena)
        self.names: dict[str, Bound] = {}

    def let(self, name: str, value: Value) -> None:
        """Bind a name to a value's memory or object, or to what making it has raised: the next call that wants it meets the refusal."""
        if isinstance(value, Tensor):
            block = self.allocator.named(value)
            self._allocated(block)
            self.names[name] = block
        elif isinstance(value, View):
            self.names[name] = self._window(value)
        else:
            scope = Scope()
            try:
                self.names[name] = Named(self.build(value, "", scope), scope)
            except SubjectError as error:
                self.names[name] = error

    def _window(self, value: View) -> Window:
        block = self.names[value.of]
        assert isinstance(block, Allocation)
        return Window(value, window(block, value), block)

    def _allocated(self, block: Allocation) -> None:
        """A pool without contents holds unwritten bytes."""
        if self.watched is not None and block.before is None:
            self.watched.unwritten(block.inside)

    def overwrite(self, step: Overwrite) -> None:
        target = self.names[step.name]
        assert isinstance(target, (Allocation, Window))
        raw = contents(step.elements, target.view.dtype)
        into = target.inside if isinstance(target, Allocation) else target.view
        assert raw.numel() == into.numel() * into.element_size(), (
            f"{step} does not have the size of its tensor"
        )
        if self.watched is not None:
            self.watched.overwritten(into, raw)
        self.allocator.overwrite(target, raw)

    def build(self, value: Value, path: str, scope: Scope) -> Any:
        """The object that `value`, found at `path` among a call's arguments, stands for."""
        match value:
            case Name():
                return self._known(value, path, scope)
            case Tensor():
                block = self.allocator.allocate(value)
                self._allocated(block)
                return scope.add(path, block)
            case View():
                found = self._window(value)
                return scope.add(path, found.block, found.view)
            case Record():
                fields = {name: self.build(item, joined(path, name), scope) for name, item in value.fields}
                return self.run(self.subject.construct, value.type, fields)
            case list() | tuple():
                items = (self.build(item, f"{path}[{i}]", scope) for i, item in enumerate(value))
                return type(value)(items)
            case dict():
                return {key: self.build(item, f"{path}[{key!r}]", scope) for key, item in value.items()}
            case Rows():
                whole = self.build(value.of, path, scope)
                return lambda count: whole[:count]
            case NumPy():
                return self.build(value.of, path, scope).numpy()
            case Attribute():
                return self.run(attrgetter(value.path), self.build(value.of, path, scope))
            case DType():
                return getattr(torch, value.name)
            case Device():
                return torch.device(self.device)
            case Returns():
                return lambda: value.value
            case Fake():
                strides = value.strides or dense_strides(value.shape)
                dtype = getattr(torch, value.dtype)
                return fake_tensor(dtype, value.shape, strides, value.address, self.device)
            case Function():
                return self.subject.resolve(value.name)
            case BufferMaker():
                return self._make_buffer
        return value

    def _known(self, name: Name, path: str, scope: Scope) -> Any:
        known = self.names[name.name]
        if isinstance(known, SubjectError):
            raise known
        if isinstance(known, Allocation):
            return scope.add(path, known)
        if isinstance(known, Window):
            return scope.add(path, known.block, known.view)
        scope.include(path, known.scope)
        return known.value

    def _make_buffer(self, *size: int, dtype: torch.dtype) -> Any:
        pinned = self.device == "cuda"
        make = self.subject.resolve("CpuGpuBuffer")
        return make(*size, dtype=dtype, device=torch.device(self.device), pin_memory=pinned)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call code of the subject.

        Raises:
            SubjectError: it raised something.
        """
        self.allocator.flush()
        try:
            return function(*arguments)
        except BaseException as error:
            if from_outside(error):
                raise
            raise SubjectError from error
