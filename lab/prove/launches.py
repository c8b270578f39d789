"""What a subject launches: the IR of the kernel, and which of its arguments are whose memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lab.prove.memory import APART, Region, SymbolicMemory
from lab.prove.paths import Term
from lab.prove.program import Executor
from statecheck.case.values import Raised, Step
from statecheck.execution.in_process import InProcess
from statecheck.kernels.launch import Launched, launching
from statecheck.kernels.source.ir import FuncOp, NotUnderstoodError
from statecheck.kernels.source.parse import parsed
from statecheck.subject import Subject


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the launch: where it really lies, and what it holds. `name` is "" for one that no step has named."""

    name: str
    address: int
    size: int
    item: int
    contents: Sequence[int]


@dataclass(frozen=True)
class CapturedLaunch:
    """A launch of a kernel that a subject made of a scene's steps."""

    function: FuncOp
    grid: tuple[int, int, int]
    names: Sequence[str]
    values: Sequence[Any]
    tensors: Sequence[_Tensor]
    copied: Mapping[str, str]
    """Tensors that are copies of others before the launch."""

    def has(self, argument: str) -> bool:
        """Whether it is an argument of the launch, and not a constant of the kernel."""
        return argument in self.names

    def execute(self, memory: SymbolicMemory, scalars: Mapping[str, Term]) -> None:
        """Execute the launch with these values for arguments, and its other tensors as they were."""
        regions = {region.name: region for region in memory.regions}
        for copy, original in self.copied.items():
            regions[copy].initial = regions[original].initial
        number = max(region.start >> APART for region in memory.regions)
        starts = dict[int, int]()
        for tensor in self.tensors:
            if tensor.name in regions:
                starts[tensor.address] = regions[tensor.name].start
                continue
            number += 1
            starts[tensor.address] = number << APART
            own = Region("", number << APART, tensor.size, tensor.item, self._reader(tensor, starts))
            memory.regions.append(own)
        arguments = [
            scalars.get(name, self._moved(value, starts))
            for name, value in zip(self.names, self.values, strict=True)
        ]
        Executor(self.function, memory, self.grid).run(arguments)

    def _reader(self, tensor: _Tensor, starts: Mapping[int, int]) -> Callable[[Term], Term]:
        def read(index: Term) -> Term:
            if not isinstance(index, int):
                raise NotUnderstoodError("an index of a vector of the launch that is not known")
            return self._moved(tensor.contents[index], starts)

        return read

    def _moved(self, value: Any, starts: Mapping[int, int]) -> Any:
        """A number of the launch; an address where the same tensor lies in the proof."""
        if isinstance(value, int):
            for tensor in self.tensors:
                if tensor.address <= value < tensor.address + max(1, tensor.size):
                    return starts[tensor.address] + value - tensor.address
        return value


def captured(
    subject: Subject, steps: Sequence[Step], names: Sequence[str], copies: Mapping[str, str]
) -> CapturedLaunch:
    """The last launch that the subject makes for steps.

    Args:
        names: what steps have bound tensors to, those that the proof has regions for.
        copies: a tensor below a bound object by the named tensor that it may be a copy of, as releases hand over.

    Raises:
        ValueError: a step is refused, or nothing is launched.
        NotUnderstoodError: the executor does not know the kernel's IR.
    """
    port = InProcess(subject, "cpu")
    port.begin()
    launches: list[tuple[Launched, list[_Tensor]]] = []

    def note(launch: Launched, make: Callable[[], None]) -> None:
        launches.append((launch, _tensors(launch, port, names)))
        make()

    for step in steps:
        # The launches of the last step that makes some.
        with launching(note):
            outcome = port.execute(step)
        if isinstance(outcome, Raised):
            raise ValueError(f"{outcome.message} [{subject.name}]")
    if not launches:
        raise NotUnderstoodError("a call that executes no launch")
    launch, tensors = launches[-1]
    function = next(one for one in parsed(launch.ir()) if one.public)
    held = {tensor.name: tensor.contents for tensor in tensors}
    # A copy that the subject has made of a vector holds what the vector holds.
    made = {copy: of for copy, of in copies.items() if {copy, of} <= held.keys() and held[copy] == held[of]}
    return CapturedLaunch(function, launch.grid, launch.names, launch.values, tensors, made)


def _tensors(launch: Launched, port: InProcess, names: Sequence[str]) -> list[_Tensor]:
    found: dict[int, _Tensor] = {}
    for name in names:
        tensor = _of(port, name)
        if tensor is not None:
            found.setdefault(tensor.data_ptr(), _described(name, tensor))
    for argument in launch.arguments:
        if isinstance(argument, torch.Tensor):
            found.setdefault(argument.data_ptr(), _described("", argument))
    return list(found.values())


def _of(port: InProcess, path: str) -> torch.Tensor | None:
    name, _, attribute = path.partition(".")
    bound = port.names.get(name)
    if bound is None:
        return None
    found: Any = getattr(bound, "view", None)
    if found is None:
        found = getattr(bound, "value", None)
    return getattr(found, attribute) if attribute else found


def _described(name: str, tensor: torch.Tensor) -> _Tensor:
    item = tensor.element_size()
    contents = tuple(tensor.flatten().tolist()) if item > 1 else ()
    return _Tensor(name, tensor.data_ptr(), tensor.numel() * item, item, contents)
