"""The execution port: the one place where plain data becomes tensors, a subject is called, and what it returned becomes plain data again.

Properties never hold a tensor. They hand steps to a port and get outcomes back, so a port that runs in another
process, or on another machine, needs no change in any property.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
import torch

from statecheck.case.findings import Finding, NotExecuted
from statecheck.case.raised import error_text, from_outside, message_of, name_of, plain_text
from statecheck.case.values import (
    CANARY,
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
    Place,
    Raised,
    Record,
    Returned,
    Returns,
    Rows,
    SameAs,
    Step,
    Tensor,
    Value,
    View,
    dense_strides,
    record,
)
from statecheck.execution.memory import (
    GUARD_BYTES,
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
    raw_bytes,
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
        bounded: without `sanitized`, accesses that may end the process are findings all the same.
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
        bounded: bool = False,
        record: bool = False,
        arena: bool | None = None,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        if sanitized and device != "cpu":
            raise ValueError(f"sanitized = True, but should be False on {device} [InProcess]")
        self.subject = subject
        self.device = device
        self.on_call = on_call
        watches = sanitized or bounded
        self.watched = Watched(record=record, bounds_only=not sanitized) if watches else None
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
                program_schedule(call.schedule) if call.schedule else nullcontext(),
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


# From objects to plain data: what a call returned, and what observed memory holds after it. A subject may return anything: lists that hold
# themselves, tensors that have no elements to read, objects whose attributes raise. What cannot be described becomes a record
# `Undescribable`, which no rule expects, so that it is a finding and not an error.

_LARGEST = 64 << 10
"""Bytes. What is larger is read by itself: there, the bytes cost more than the wait."""


def on_host(found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors among `found` that were read, each with a tensor of the host that has its elements, flat.

    Left out: what lies on the host, subclasses of `Tensor`, and what cannot be read as one run of bytes.
    """
    far = {id(one): one for one in found if type(one) is torch.Tensor and one.is_cuda and has_few_bytes(one)}
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for one in far.values():
        by_device.setdefault(one.device, []).append(one)
    return [pair for tensors in by_device.values() if len(tensors) > 1 for pair in read_together(tensors)]


def read_together(tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each of these tensors of one device, all with few bytes, with its elements on the host, flat."""
    # The larger elements first, so that those of each tensor lie where its dtype may be viewed.
    ordered = sorted(tensors, key=lambda one: -one.element_size())
    # One element is contiguous at any stride, and its bytes may be viewed at a stride of one only.
    flat = [one.detach().as_strided((one.numel(),), (1,)) for one in ordered]
    together = torch.cat([one.view(torch.uint8) for one in flat]).cpu()
    sizes = [one.numel() * one.element_size() for one in ordered]
    return [(one, piece.view(one.dtype)) for one, piece in zip(ordered, together.split(sizes), strict=True)]


def has_few_bytes(found: torch.Tensor) -> bool:
    """Whether its elements are one run of bytes that is there, and is short."""
    if found.layout is not torch.strided or found.is_quantized or not found.is_contiguous():
        return False
    # The bytes of these are not yet what the elements are, or not one number each.
    if found.is_neg() or found.is_complex():
        return False
    # Views of a storage that was made smaller since have elements that are no longer there.
    nbytes = found.numel() * found.element_size()
    end = found.storage_offset() * found.element_size() + nbytes
    return 0 < nbytes <= _LARGEST and end <= found.untyped_storage().nbytes()


SCALARS = (type(None), bool, int, float, str)
_OUR_RECORDS = frozenset({"Damaged", "Missing", "Undescribable"})
_MOST_ELEMENTS = 1 << 24
_LONGEST_INT = 14_000
"""Bits. Python writes down at most 4,300 digits, which are 14,284 bits."""
_TOO_LARGE = 1 << _LONGEST_INT
_LONGEST_TEXT = 1_000_000


def undescribable(found: Any, why: str) -> Record:
    """What stands for an object of the subject's that has no form as plain data."""
    return record("Undescribable", type=name_of(type(found)), why=why)


class NotPlainError(Exception):
    """It cannot be described, for this reason; its cause is what the subject raised, if it did."""


class SubjectCode:
    """Attributes, iterators and tensors of the subject's may raise anything; here it is `NotPlainError`.

    What says that the device lacks memory, or has had a fault, is left to the caller, which knows about devices.
    """

    def __enter__(self) -> None:
        """The subject's code begins."""

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: object) -> None:
        """Raise the `NotPlainError` that stands for what the subject raised."""
        kept = (NotPlainError, MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)
        if error is None or isinstance(error, kept) or from_outside(error):
            return
        raise NotPlainError(error_text(error)) from error


def attribute(found: Any, name: str) -> Any:
    """An attribute of an object of the subject's, or the `NotPlainError` that stands for what it raised."""
    try:
        with SubjectCode():
            return getattr(found, name)
    except NotPlainError as error:
        return error


def scalar(found: Any) -> Value:
    """None, a number or a text as it is, where it can be written down."""
    if type(found) is int and found.bit_length() > _LONGEST_INT:
        raise NotPlainError(f"{found.bit_length()} bits")
    if type(found) is str:
        if len(found) > _LONGEST_TEXT:
            raise NotPlainError(f"{len(found)} characters")
        return plain_text(found)
    return math.nan if type(found) is float and math.isnan(found) else found


def are_integers(found: list[Any]) -> bool:
    """Whether all items are integers that `scalar` leaves as they are; there is at least one."""
    return set(map(type, found)) == {int} and min(found) > -_TOO_LARGE and max(found) < _TOO_LARGE


def part_of_scalar(found: Any) -> Record:
    """A number or a text of a type of its own, such as an enumeration's: not what the rules mean by that value."""
    plain = next(kind for kind in (int, float, str) if issubclass(type(found), kind))
    read = {int: int.__index__, float: float.__float__, str: str.__str__}[plain]
    return record(type_name(type(found)), value=scalar(read(found)))


def is_plain_key(key: Any) -> bool:
    """Whether nothing about a key of a dict has to be changed to write it down."""
    return type(key) in SCALARS and scalar(key) == key


def type_name(kind: type) -> str:
    """The name of a type of the subject's, apart from the records that we make."""
    name = name_of(kind)
    return f"{name} of the subject" if name in _OUR_RECORDS else name


def require_few(count: int) -> None:
    """Raise `NotPlainError` where there are too many elements to tell them."""
    # A view can have more elements than there is memory.
    if count > _MOST_ELEMENTS:
        raise NotPlainError(f"{count} elements")


def numbers(elements: list[Any]) -> tuple[int, ...]:
    """Elements as numbers, truth values among them.

    Raises:
        TypeError: an element is no number, as in a masked array.
    """
    kinds = set(map(type, elements))
    if kinds == {int}:
        return tuple(elements)
    # NaN is one object everywhere, so that what holds it equals itself.
    plain: list[Any] = [math.nan if element != element else element for element in elements]  # noqa: PLR0124
    if kinds <= {int, float}:
        return tuple(plain)
    return tuple(map(int, plain))


_ADDRESS_FIELDS = {("MambaCopySpec", "start_addr")}
MISSING = record("Missing")
_GUARD = bytes([CANARY]) * GUARD_BYTES
_DEEPEST = 50
_MOST_PARTS = 100_000


class Describer:
    """Describes objects as they are found from a run on `device`; `imaged` gives what to read instead of a tensor."""

    def __init__(
        self, device: str, imaged: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    ) -> None:
        self.device = device
        self._kind = torch.device(device).type
        self._imaged = imaged

    def result(self, result: Any, path: str, scope: Scope, *, by_content: bool = False) -> Value:
        """`result` as a value: its parts, and tensors by what they hold or by which of the arguments they are."""
        return _Description(self, scope, by_content).of(result, path)

    def tensor(self, tensor: torch.Tensor, read: torch.Tensor | None = None) -> Tensor:
        """The tensor by its elements; `read` has them, flat, where they are on the host already.

        Raises:
            NotPlainError: it has none that can be read.
        """
        place = self._place(tensor)
        require_few(tensor.numel())
        if tensor.dtype.is_complex:
            raise NotPlainError(f"elements of {tensor.dtype}")
        elements = (self._imaged(tensor).reshape(-1) if read is None else read).tolist()
        name = str(tensor.dtype).removeprefix("torch.")
        return Tensor(name, tuple(tensor.shape), numbers(elements), on=place)

    def read(self, found: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """As `on_host`, of those of which no image is there."""
        if self.device == "cpu":
            return []
        tensors = (one for one in found if type(one) is torch.Tensor)
        try:
            with SubjectCode():
                return on_host(image for image in tensors if self._imaged(image) is image)
        except NotPlainError:
            # Each is read alone then, and the error says which it was.
            return []

    def array(self, array: np.ndarray) -> Tensor:
        """The NumPy array by its elements; raises as `tensor`."""
        require_few(array.size)
        if array.dtype.kind not in "biuf":
            raise NotPlainError(f"elements of {array.dtype}")
        place: Place = "host" if self.device != "cpu" else "device"
        return Tensor(str(array.dtype), array.shape, numbers(array.reshape(-1).tolist()), on=place)

    def _place(self, tensor: torch.Tensor) -> Place:
        kind = tensor.device.type
        if kind not in ("cpu", self._kind):
            raise NotPlainError(f"on device {tensor.device}")
        return "host" if self.device != "cpu" and kind == "cpu" else "device"

    def observed(self, names: dict[str, Bound], name: str) -> Value:
        """What `name`, or the dotted path below a name, holds; the record `Missing` where there is nothing."""
        root, _, path = name.partition(".")
        bound = names.get(root)
        if isinstance(bound, Allocation) and not path:
            assert bound.before is not None, "memory without contents is observed through views"
            inside = self._contents(bound.inside.view(bound.view.dtype))
            before, after = bound.guards()
            if before == after == _GUARD:
                return inside
            return record("Damaged", before=before, inside=inside, after=after)
        if isinstance(bound, Window) and not path:
            # Not the view that the subject was handed: it may have been resized since.
            return self._contents(window(bound.block, bound.value))
        if bound is None or isinstance(bound, SubjectError):
            return MISSING
        found = bound.value if isinstance(bound, Named) else bound.view
        try:
            with SubjectCode():
                for part in filter(None, path.split(".")):
                    found = getattr(found, part)
                return self._contents(found)
        except NotPlainError as error:
            return (
                MISSING if isinstance(error.__cause__, AttributeError) else undescribable(found, str(error))
            )

    def _contents(self, found: Any) -> Value:
        """As `result`, by content; unsigned bytes, and the elements of float types, as bytes."""
        if issubclass(type(found), torch.Tensor) and (
            found.dtype is torch.uint8 or found.is_floating_point()
        ):
            place = self._place(found)
            require_few(found.numel())
            raw = raw_bytes(self._imaged(found))
            shape = tuple(found.shape) if found.dtype is torch.uint8 else (len(raw),)
            return Tensor("uint8", shape, raw, on=place)
        if type(found) is torch.Tensor:
            try:
                with SubjectCode():
                    return self.tensor(found)
            except NotPlainError as error:
                return undescribable(found, str(error))
        return self.result(found, "", Scope(), by_content=True)


@dataclass
class _Description:
    """One result on its way to plain data; `inside` are the objects that the one in hand is part of.

    `read`: tensors that were read together with others, by their ids, each with what it holds.
    """

    describer: Describer
    scope: Scope
    by_content: bool
    inside: list[int] = field(default_factory=list)
    parts: int = 0
    read: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def of(self, found: Any, path: str) -> Value:
        self.parts += 1
        try:
            # Of these no code of the subject's is run, and most parts are such.
            if type(found) in SCALARS:
                return scalar(found)
            if type(found) in (tuple, list):
                return self._nested(found, path, self._items)
            with SubjectCode():
                return self._described(found, path)
        except NotPlainError as error:
            return undescribable(found, str(error))

    def _described(self, found: Any, path: str) -> Value:
        # By their types alone: an object may say of itself that it is of another class, or raise when it is asked.
        kind = type(found)
        if issubclass(kind, torch.Tensor):
            return self._tensor(found, path)
        if is_dataclass(kind):
            return self._nested(found, path, self._fields)
        if issubclass(kind, dict):
            return self._nested(found, path, self._dict)
        if issubclass(kind, (list, tuple)):
            return self._nested(found, path, self._items)
        if issubclass(kind, np.ndarray):
            return self.describer.array(found)
        return part_of_scalar(found) if issubclass(kind, (int, float, str)) else Record(type_name(kind), ())

    def _nested(self, found: Any, path: str, described: Callable[[Any, str], Value]) -> Value:
        if id(found) in self.inside:
            raise NotPlainError("it holds itself")
        if len(self.inside) >= _DEEPEST:
            raise NotPlainError(f"nested more than {_DEEPEST} deep")
        self.inside.append(id(found))
        try:
            return described(found, path)
        finally:
            self.inside.pop()

    def _some(self, items: Any) -> list[Any]:
        """All of them, where these are not too many altogether: iterators need not end, and lists can share parts."""
        room = max(0, _MOST_PARTS - self.parts)
        found = list(islice(items, room + 1))
        if len(found) > room:
            raise NotPlainError(f"more than {_MOST_PARTS} parts")
        return found

    def _tensor(self, found: torch.Tensor, path: str) -> Value:
        if id(found) in self.scope.paths and not self.by_content:
            return SameAs(self.scope.paths[id(found)])
        _, read = self.read.get(id(found), (None, None))
        described = self.describer.tensor(found, read)
        if self.by_content:
            return described
        self.scope.add(path, Allocation(found, found, guarded=False))
        return described

    def _items(self, found: Any, path: str) -> Value:
        kind = list if issubclass(type(found), list) else tuple
        # What it holds: a class of the subject's own may say of itself what it likes.
        parts = self._some(kind.__iter__(found))
        if are_integers(parts):
            # What most lists hold.
            self.parts += len(parts)
            items: list[Value] = parts
        else:
            self._read(parts)
            items = [self.of(item, f"{path}[{i}]") for i, item in enumerate(parts)]
        if type(found).__iter__ is not kind.__iter__:
            iterated = [self.of(item, f"{path}[{i}]") for i, item in enumerate(self._some(iter(found)))]
            if items != iterated:
                raise NotPlainError("other items when it is iterated than it holds")
        return kind(items)

    def _dict(self, found: Any, path: str) -> Value:
        items = self._some(iter(dict.items(found)))
        self._read(item for _, item in items)
        plain = {key: self.of(item, f"{path}[{key!r}]") for key, item in items if is_plain_key(key)}
        if len(plain) == len(items):
            return plain
        pairs = [(self.of(key, path), self.of(item, path)) for key, item in items]
        return record("Dict", items=pairs)

    def _fields(self, found: Any, path: str) -> Record:
        kind = type_name(type(found))
        held = [(plain_text(one.name), attribute(found, one.name)) for one in self._some(iter(fields(found)))]
        self._read(item for _, item in held)
        described: list[tuple[str, Value]] = []
        for name, item in held:
            if not isinstance(item, NotPlainError):
                is_address = (kind, name) in _ADDRESS_FIELDS and type(item) is int
                value = self.scope.address(item) if is_address else self.of(item, f"{path}.{name}")
                described.append((name, value))
            # The record goes without a field that was never set.
            elif not isinstance(item.__cause__, AttributeError):
                described.append((name, undescribable(found, str(item))))
        return Record(kind, tuple(described))

    def _read(self, parts: Iterable[Any]) -> None:
        if self.describer.device == "cpu":
            return
        known = () if self.by_content else self.scope.paths
        pairs = self.describer.read(part for part in parts if id(part) not in known)
        # With the tensor, or else another one could come to have its id.
        self.read.update((id(pair[0]), pair) for pair in pairs)
