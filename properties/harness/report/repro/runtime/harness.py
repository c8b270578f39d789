"""Functions that a case can call beside the subject's: a launch, who owns a result, what a graph reads."""

from __future__ import annotations

from typing import Any

import torch

from properties.harness.report.repro.runtime.calls import NotOffered
from properties.harness.report.repro.runtime.given import DEVICE, subject

__all__ = ["capture", "launch", "owned_fields", "replay", "sing"]


class Graph:
    """A captured CUDA graph, and the tensors that it writes what it reads to."""

    graph: Any
    reads: dict[str, torch.Tensor]


class GraphReads:
    """What the kernels of a replayed graph read, by field."""

    values: dict[str, torch.Tensor]


def launch(kernel: str, grid: list[int], arguments: dict[str, Any], constexprs: dict[str, Any]) -> None:
    getattr(subject, kernel)[tuple(grid)](**arguments, **constexprs)


def owned_fields(owner: object, result: object) -> tuple[str, ...]:
    """Names of the tensor fields of `result` that lie in memory which `owner` keeps as an attribute."""
    found = {name: value for name, value in vars(result).items() if isinstance(value, torch.Tensor)}
    attributes = [
        value for value in vars(owner).values() if isinstance(value, torch.Tensor) and value.numel()
    ]
    kept = {value.untyped_storage().data_ptr() for value in attributes}
    return tuple(sorted(name for name, value in found.items() if value.untyped_storage().data_ptr() in kept))


def capture(result: object, names: tuple[str, ...]) -> Graph:
    """Capture kernels that read the named tensors of `result`, on a stream of their own."""
    if DEVICE != "cuda":
        raise NotOffered("graphs are captured on a GPU only; DEVICE=cuda tries it there")

    def read() -> dict[str, torch.Tensor]:
        # An elementwise kernel, not a copy: a graph would turn a copy into a node of its own kind.
        found = {name: getattr(result, name) for name in names}
        return {name: ~~value if value.dtype is torch.bool else value + 0 for name, value in found.items()}

    graph, stream = Graph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        read()
    torch.cuda.current_stream().wait_stream(stream)
    graph.graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph.graph):
        graph.reads = read()
    return graph


def replay(graph: Graph, latest: object) -> GraphReads:  # noqa: ARG001 - the case says what was built last
    graph.graph.replay()
    reads = GraphReads()
    reads.values = {name: value.clone() for name, value in graph.reads.items()}
    return reads


def sing(number: int, device: torch.device) -> int:
    return int((torch.tensor(number, device=device) + (number > 9)).item())
