"""What programs touch that Triton's interpreter runs one after the other, and a GPU all at once.

Within `touches_told` all accesses of a launch are looked at, byte by byte. Told is the first byte that two programs
touch, or two lanes of one program without a barrier between, of which one stores to it; or the first that lies in no
tensor at all. Atomics order programs in ways that are not looked into: nothing is told of a launch that has any.
The module stands on its own: scripts that show such a failure contain its text.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch


@contextlib.contextmanager
def touches_told(tell: Callable[[str], None], *, strays: bool) -> Iterator[None]:
    """Each launch in this context tells of its first two accesses that nothing orders.

    Args:
        strays: tell of the first stray access instead, and make none of them: they may end the process.
    """
    from triton.runtime import interpreter

    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    scans, before, looks = (
        interpreter.ReduceScanOpInterface,
        dict(vars(builder)),
        [_Look("", builder, strays)],
    )
    launch, scan = executor.__call__, scans.apply

    def look_at_launch(self: Any, *arguments: Any, **keywords: Any) -> Any:
        looks[0] = _Look(self.fn.__name__, builder, strays)
        result = launch(self, *arguments, **keywords)
        if looks[0].told and (strays or not looks[0].atomic):
            tell(looks[0].told)
        return result

    def looked_at(plain: Callable[..., Any], look: str) -> Callable[..., Any]:
        def access(*arguments: Any, **keywords: Any) -> Any:
            return plain(*getattr(looks[0], look)(*arguments), **keywords)

        return access

    watched = {"create_masked_load": "load", "create_masked_store": "store", "create_barrier": "meet"}
    watched |= {name: "change" for name in dir(builder) if name.startswith("create_atomic_")}
    executor.__call__, scans.apply = look_at_launch, looked_at(scan, "meet")
    for name, look in watched.items():
        setattr(builder, name, looked_at(getattr(builder, name), look))
    try:
        yield
    finally:
        executor.__call__, scans.apply = launch, scan
        for name in watched:
            delattr(builder, name)
        vars(builder).update(before)


class _Look:
    """One launch: of each byte, who loads it and who stores to it, as a program, a stretch between barriers and a lane."""

    def __init__(self, kernel: str, builder: Any, strays: bool) -> None:
        self.kernel, self.builder, self.strays = kernel, builder, strays
        self.told, self.atomic = "", False
        self.touched: dict[tuple[int, str], dict[tuple[Any, ...], str]] = {}
        self.stretch, self.stretches = 0, itertools.count(1)
        self.program: Any = None
        tensors = [
            one
            for one in gc.get_objects()
            if type(one) is torch.Tensor and one.is_cpu and one.layout is torch.strided and one.numel()
        ]
        self.spans = sorted(map(_span, tensors))
        self.ends = list(itertools.accumulate((end for _, end, _ in self.spans), max))

    def change(self, *arguments: Any) -> Any:
        self.atomic = True
        return arguments

    def meet(self, *arguments: Any) -> Any:
        """What any lane has done before a barrier is done."""
        self.stretch = next(self.stretches)
        return arguments

    def load(self, pointers: Any, mask: Any, *rest: Any) -> Any:
        return pointers, self._touch("loads", pointers, mask), *rest

    def store(self, pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        return pointers, values, self._touch("stores", pointers, mask), *rest

    def _touch(self, verb: str, pointers: Any, mask: Any) -> Any:
        """Look at an access; its mask, without the lanes that go astray where that is looked for."""
        if self.program != self.builder.grid_idx:
            self.program = self.builder.grid_idx
            self.meet()
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        active = mask.data & (pointers.data == pointers.data)
        lanes = active.reshape(-1).nonzero()[0].tolist()
        elements = [(lane, int(pointers.data.reshape(-1)[lane])) for lane in lanes]
        bytes_of = [(lane, byte) for lane, first in elements for byte in range(first, first + width)]
        if not self.strays:
            self._race_of(verb, pointers.data.shape if pointers.data.size > 1 else (), bytes_of)
            return mask
        for lane, byte in bytes_of:
            if not self._in_a_tensor(byte):
                active.reshape(-1)[lane] = False
                self.told = self.told or f"{self._who(verb)} {self._near(byte)} at {_place()}"
        return type(mask)(active, mask.dtype)

    def _race_of(self, verb: str, shape: tuple[int, ...], bytes_of: list[tuple[int, int]]) -> None:
        place = _place()
        touched = [(byte, (self.program, self.stretch, shape, lane)) for lane, byte in bytes_of]
        for byte, who in touched:
            self._hold_against(verb, byte, who, place)
        for byte, who in touched:
            self.touched.setdefault((byte, verb), {}).setdefault(who, place)

    def _hold_against(self, verb: str, byte: int, who: tuple[Any, ...], place: str) -> None:
        for before in () if self.told else ("stores", "loads") if verb == "stores" else ("stores",):
            for other, where in self.touched.get((byte, before), {}).items():
                did = f"{self._who(verb)} {self._what(byte)} at {place}"
                if other[0] != who[0]:
                    self.told = (
                        f"{did}; program {other[0]} {before} it at {where}, and nothing orders the two"
                    )
                elif other[1] == who[1] and other[2:] != who[2:]:
                    self.told = f"{did}; another lane of it {before} it at {where}, with no barrier between"

    def _who(self, verb: str) -> str:
        return f"program {self.program} of {self.kernel} {verb}"

    def _in_a_tensor(self, byte: int) -> bool:
        last = bisect_right(self.spans, (byte + 1,))
        return last > 0 and self.ends[last - 1] > byte

    def _near(self, byte: int) -> str:
        """A byte by the tensor that ends or begins nearest to it."""
        sides = [(byte - end + 1, f"behind a tensor {text}") for _, end, text in self.spans if end <= byte]
        sides += [(start - byte, f"before a tensor {text}") for start, _, text in self.spans if byte < start]
        distance, side = min(sides)
        return f"byte {distance} {side}"

    def _what(self, byte: int) -> str:
        """A byte by its place in the smallest tensor that has it."""
        having = [span for span in self.spans if span[0] <= byte < span[1]]
        start, _, text = min(having, key=lambda span: span[1] - span[0], default=(byte, 0, "of nobody"))
        return f"byte {byte - start} of a tensor {text}"


def _span(tensor: torch.Tensor) -> tuple[int, int, str]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size(), text


def _place() -> str:
    """The innermost line that is neither Triton's nor of this file."""
    import triton

    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename.startswith((__file__, str(Path(triton.__file__).parent))):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
