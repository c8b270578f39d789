"""The execution port: the one place where plain data becomes tensors and a subject is called.

Properties never hold a tensor. They hand steps to a port and get outcomes back, so a port that runs in another
process, or on another machine, needs no change in any property.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn

import torch

from statecheck.case.findings import Finding, NotExecuted
from statecheck.case.raised import from_outside, message_of, name_of
from statecheck.case.values import (
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Outcome,
    Overwrite,
    Raised,
    Record,
    Returned,
    Returns,
    Rows,
    Step,
    Tensor,
    Value,
    View,
    dense_strides,
)
from statecheck.execution.describe import Describer
from statecheck.execution.memory import (
    Allocation,
    Allocator,
    Arena,
    Bound,
    Named,
    Scope,
    SubjectError,
    Watched,
    Window,
    contents,
    joined,
    window,
)
from statecheck.execution.plain import LARGEST_RIGHT_NUMBER, source_line
from statecheck.kernels.orders import program_schedule
from statecheck.subject import NotOffered, Subject, is_engine
from statecheck.subject.loading import ProcessState


class FakeTensor(torch.Tensor):
    """A tensor that says to lie on a device, at an address. Its slices say so as well; its elements cannot be read."""

    _storage_address: int
    _device: torch.device

    def _lie_at(self, address: int, device: torch.device) -> FakeTensor:
        self._storage_address, self._device = address, device
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return self._device.type == "cuda"

    def data_ptr(self) -> int:
        # Modulo 2^64, as a pointer is.
        return int(self._storage_address + self.storage_offset() * self.element_size()) % 2**64

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.data_ptr():#x})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Slices of a fake tensor lie in the same memory."""
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, FakeTensor) and not hasattr(result, "_storage_address"):
            source = next(argument for argument in args if isinstance(argument, FakeTensor))
            result._lie_at(source._storage_address, source._device)
        return result


def fake_tensor(
    dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], address: int, device: str
) -> FakeTensor:
    # A tensor of torch's device "meta" has everything but memory.
    meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta", requires_grad=False)
    # A tensor names its device with its index.
    return meta.as_subclass(FakeTensor)._lie_at(address, torch.empty(0, device=device).device)


@dataclass(frozen=True)
class Graph:
    """A captured CUDA graph and the tensors that its kernels write: what they read from each field."""

    graph: Any
    reads: dict[str, torch.Tensor]


@dataclass(frozen=True)
class GraphReads:
    """What the kernels of a replayed graph read, by field."""

    values: dict[str, torch.Tensor]


def tensors_of(result: Any) -> dict[str, torch.Tensor]:
    """The fields of a dataclass, or else the attributes of an object, that are tensors."""
    names = [field.name for field in fields(result)] if is_dataclass(result) else list(vars(result))
    found = {name: getattr(result, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def owned_fields(owner: Any, result: Any) -> tuple[str, ...]:
    """Names of the tensor fields of `result` that lie in memory which `owner` keeps as an attribute."""
    kept = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(owner).values() if tensor.numel()}
    found = tensors_of(result).items()
    return tuple(sorted(name for name, tensor in found if tensor.untyped_storage().data_ptr() in kept))


def capture(result: Any, names: tuple[str, ...]) -> Graph:
    """Capture kernels that read the named tensors of `result`, on a stream of their own."""
    found = {name: getattr(result, name) for name in names}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        _read_in_kernels(found)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        reads = _read_in_kernels(found)
    return Graph(graph, reads)


def _read_in_kernels(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    # An elementwise kernel, not a copy: a graph would turn a copy into a node of its own kind.
    return {
        name: torch.logical_not(torch.logical_not(tensor)) if tensor.dtype is torch.bool else tensor + 0
        for name, tensor in tensors.items()
    }


def replay(graph: Graph, latest: Any) -> GraphReads:  # noqa: ARG001 - the rules need to know what was built last
    """Replay the graph; what its kernels read now."""
    graph.graph.replay()
    return GraphReads({name: tensor.clone() for name, tensor in graph.reads.items()})


def canary_identity(number: int, device: torch.device) -> int:
    """The number, by way of the device; above `LARGEST_RIGHT_NUMBER` it is wrong, which a campaign has to find."""
    return int((torch.tensor(number, device=device) + (number > LARGEST_RIGHT_NUMBER)).item())


def launch(
    subject: Subject,
    kernel: str,
    grid: tuple[int, ...],
    arguments: dict[str, Any],
    constexprs: dict[str, Any],
) -> None:
    """Launch the subject's Triton kernel of that name, for kernels that no function of the subject launches."""
    # Not before the process is prepared: Triton reads TRITON_INTERPRET when it is imported.
    from statecheck.kernels.private import KernelInterface

    found = subject.resolve(kernel)
    # The name comes from a case file: nothing but a kernel may be run by it.
    if not isinstance(found, KernelInterface):
        raise TypeError(f"kernel = {kernel!r}, but should be a Triton kernel of {subject.name} [launch]")
    found[tuple(grid)](**arguments, **constexprs)


OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "owned_fields": owned_fields,
    "capture": capture,
    "replay": replay,
    "canary_identity": canary_identity,
}


class InProcess:
    """Executes in this process, on `device` ("cpu" or "cuda").

    Args:
        sanitized: watch every launch with the sanitizer; what it finds is what the call raises.
        record: the sanitizer keeps who wrote what.
        arena: small tensors lie in one piece of memory, see `Arena`; by default on every device but the CPU.
        on_call: called before each call of the subject.

    Raises:
        ValueError: kernels are to be watched on a device where they are compiled.
    """

    def __init__(
        self,
        subject: Subject,
        device: str,
        *,
        sanitized: bool = False,
        record: bool = False,
        arena: bool | None = None,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        if sanitized and device != "cpu":
            raise ValueError(f"sanitized = True, but should be False on {device} [InProcess]")
        self.subject = subject
        self.device = device
        self.on_call = on_call
        self.watched = Watched(record=record) if sanitized else None
        together = device != "cpu" if arena is None else arena
        self.allocator = Allocator(device, arena=Arena(device) if together else None)
        self.names: dict[str, Bound] = {}
        self._describer = Describer(device, self.allocator.imaged)
        self._refuses_waiting = False
        self._state = ProcessState()

    def begin(self) -> None:
        self._state.begin()
        self.names.clear()
        self.allocator.begin_example()
        if self.watched is not None:
            self.watched.begin()

    def give_back(self) -> None:
        """Memory of gigabytes that no name is bound to goes back to the device, for other processes."""
        self.allocator.give_back()

    def execute(self, step: Step) -> Outcome | None:
        if isinstance(step, Let):
            self._let(step.name, step.value)
        elif isinstance(step, Overwrite):
            self._overwrite(step)
        else:
            self.on_call()
            return self._call(step)
        return None

    def views(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that steps of the example in hand have bound to these names."""
        bound = ((name, self.names.get(name)) for name in names)
        return ((name, one.view) for name, one in bound if isinstance(one, Allocation | Window))

    def materialise(self, value: Value) -> Any:
        """The object that `value` stands for, on this port's device."""
        built = self.build(value, "", Scope())
        self.allocator.flush()
        return built

    # From plain data to objects: the arguments that the subject is called with.

    def _let(self, name: str, value: Value) -> None:
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

    def _overwrite(self, step: Overwrite) -> None:
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

    # Calls.

    def _call(self, call: Call) -> Outcome:
        scope = Scope()
        self.allocator.begin_call()
        before = self.subject.own_calls()
        try:
            with ExitStack() as stack:
                # It has the subject forget what it remembers, by the subject's own code.
                self.run(stack.enter_context, self.subject.environment(dict(call.environment)))
                result = self._run(self._prepared(call, scope), call, scope)
        except SubjectError as error:
            self.allocator.pull()
            if call.bind:
                self.names[call.bind] = error
            cause = error.__cause__
            assert cause is not None
            finding = cause if isinstance(cause, Finding) else None
            return Raised(
                name_of(type(cause)),
                message_of(cause),
                *self._traces(call, scope),
                at=source_line(cause) if finding is None else None,
                kind="refusal" if finding is None else finding.kind,
                access=None if finding is None else finding.access.fields,
                by_subject=self._is_own(call, before),
                not_offered=isinstance(cause, NotOffered | NotExecuted),
            )
        if call.bind:
            self.names[call.bind] = Named(result, Scope())
        described = self._describer.result(result, "result", scope, by_content=call.by_content)
        return Returned(described, *self._traces(call, scope), self._is_own(call, before))

    def _is_own(self, call: Call, before: int | None) -> bool:
        """Whether a function of the subject ran in the call, of whose functions `before` were called before it."""
        return self.subject.is_own(call.function) if before is None else self.subject.own_calls() != before

    def _prepared(self, call: Call, scope: Scope) -> Callable[[], Any]:
        build = self.build
        arguments = [build(value, name, scope) for name, value in call.arguments]
        keywords = {name: build(value, name, scope) for name, value in call.keywords}
        owner, _, name = call.function.partition(".")
        function: Any
        if owner != "harness":
            function = self.subject.resolve(call.function)
        else:
            function = partial(launch, self.subject) if name == "launch" else OWN_FUNCTIONS[name]
        return partial(function, *arguments, **keywords)

    def _traces(self, call: Call, scope: Scope) -> tuple[tuple[str, ...], tuple[tuple[str, Value], ...]]:
        """What was written to and is not observed, and what everything observed holds."""
        names = self.names
        after = tuple((name, self._describer.observed(names, name)) for name in call.observes)
        observed = [names[name] for name in call.observes if name in names]
        blocks = [bound for bound in observed if isinstance(bound, Allocation)]
        for bound in observed:
            if isinstance(bound, Window):
                bound.accept()
        changed = scope.changed(blocks)
        for block in blocks:
            block.accept()
        return changed, after

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        self._refuses_waiting = self.device != "cpu"
        try:
            yield
        finally:
            self._refuses_waiting = False

    def _run(self, function: Callable[[], Any], call: Call, scope: Scope) -> Any:
        watching: AbstractContextManager[None] = nullcontext()
        # An engine's kernels work in memory of its own, of which the sanitizer knows nothing.
        if self.watched is not None and not is_engine(call.function):
            watching = self.watched.watching(scope, kept=call.keeps)
        self.allocator.flush()
        process = os.getpid()
        try:
            with (
                self._waiting_is_error() if self._refuses_waiting else nullcontext(),
                watching,
                program_schedule(call.schedule),
                self._state.kept(),
            ):
                result = function()
            if os.getpid() != process:
                _end_child()
            # Until everything that the call has started is done, copies to host memory among it. The download is asked for first: where
            # processes share a GPU, each wait is for all of their turns. What an engine launches next would not wait for other
            # streams of the subject's either.
            with self.allocator.fetching():
                if self.device != "cpu":
                    torch.cuda.synchronize()
        except BaseException as error:
            if os.getpid() != process:
                _end_child(error)
            if from_outside(error):
                raise
            raise SubjectError from error
        return result

    @staticmethod
    @contextmanager
    def _waiting_is_error() -> Iterator[None]:
        try:
            with warnings.catch_warnings():
                # The first time in a process it warns that it may miss some; as an error that would leave it on.
                warnings.simplefilter("ignore", UserWarning)
                torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _end_child(error: BaseException | None = None) -> NoReturn:
    """End a process that the subject forked and that came out of the call: it would go on as a second one like its parent."""
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code if isinstance(code, int) else int(code is not None))
