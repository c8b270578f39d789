"""What an exhibit is: two kernels, a small input, and what has to come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.gallery.memory import ExhibitMemory

Twin = Literal["broken", "intact"]
TWINS: tuple[Twin, Twin] = ("broken", "intact")


@dataclass(frozen=True)
class Launch:
    """A kernel's grid and arguments, the same for both twins."""

    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: Mapping[str, int] = field(default_factory=dict)

    def run(self, kernel: Any) -> None:
        kernel[self.grid](*self.arguments, **self.constants)


@dataclass(frozen=True)
class Exhibit:
    """A broken kernel beside an intact one that differs from it in a line or two.

    `lay_out` makes the tensors and says what the sanitizer has to know; `rule` is what every tensor holds afterwards,
    in plain numbers; what it does not name stays as it was.
    """

    name: str
    wrong: str
    broken: Any
    intact: Any
    lay_out: Callable[[ExhibitMemory], Launch]
    rule: Callable[[], Mapping[str, Sequence[float]]]
    finding: str
    """What the sanitizer calls it; "" where the fault is none of those that it looks for."""
    endless: bool = False
    """The broken kernel does not end."""
    luck: bool = False
    """Whether the broken kernel's bytes are wrong on a GPU depends on its timing, or on what lies next to what."""

    def kernel(self, twin: Twin) -> Any:
        return self.broken if twin == "broken" else self.intact
