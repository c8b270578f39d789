"""Functions of the harness that a case can call beside the subject's: which results a builder owns, what a graph reads, and the launch of a kernel.

They look at real memory, so they stand beside the port.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from statecheck.execution.executors.plain import LARGEST_RIGHT_NUMBER
from statecheck.subject import Subject


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
