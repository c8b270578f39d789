"""Two kernels, a small input, and the expected contents of every tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from statecheck.sanitizer import Finding, sanitize


@dataclass(frozen=True)
class Launch:
    """A kernel's grid and arguments, the same for both twins."""

    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, int] = field(default_factory=dict)


@dataclass
class LaunchMemory:
    """The tensors of a launch by name, and what the sanitizer has to know of their bytes."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    notes: list[tuple[str, torch.Tensor, tuple[str, ...]]] = field(default_factory=list)

    def put(self, name: str, dtype: torch.dtype, numbers: Sequence[float]) -> torch.Tensor:
        """A vector of these numbers."""
        self.tensors[name] = torch.tensor(numbers, dtype=dtype)
        return self.tensors[name]

    def blank(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A tensor of zeros."""
        self.tensors[name] = torch.zeros(shape, dtype=dtype)
        return self.tensors[name]

    def note(self, what: str, tensor: torch.Tensor, *words: str) -> torch.Tensor:
        """Call this function of the sanitizer before the launch."""
        self.notes.append((what, tensor, words))
        return tensor


@dataclass(frozen=True)
class KernelPair:
    """A broken kernel beside an intact one that differs from it in a line or two.

    `lay_out` makes the tensors and says what the sanitizer has to know; `rule` is what every tensor holds after the intact
    kernel, in plain numbers; what it does not name stays as it was.
    """

    name: str
    wrong: str
    broken: Any
    intact: Any
    lay_out: Callable[[LaunchMemory], Launch]
    rule: Callable[[], Mapping[str, Sequence[float]]]
    finding: str
    """What the sanitizer calls it."""

    def run(self, kernel: Any) -> tuple[str, dict[str, list[float]], dict[str, Sequence[float]]]:
        """What the sanitizer finds, what the tensors hold afterwards, and what they should."""
        memory = LaunchMemory()
        launch = self.lay_out(memory)
        wanted = {**{name: one.flatten().tolist() for name, one in memory.tensors.items()}, **self.rule()}
        found = ""
        with sanitize() as watch:
            for what, tensor, words in memory.notes:
                getattr(watch, what)(tensor, *words)
            try:
                kernel[launch.grid](*launch.arguments, **launch.constants)
            except Finding as finding:
                found = f"{type(finding).__name__}: {finding}"
        return found, {name: one.flatten().tolist() for name, one in memory.tensors.items()}, wanted
