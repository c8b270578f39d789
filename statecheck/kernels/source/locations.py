"""Where operations come from: the locations at the end of a module's text, as lines of kernel code."""

from __future__ import annotations

import re
from pathlib import Path

import triton

from statecheck.kernels.source.ir import NOWHERE, SourcePlace

_LOC_LINE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE_LOC = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAME_LOC = re.compile(r'^"(?:[^"\\]|\\.)*"\((#loc\d*)\)$')
_CALL_LOC = re.compile(r"^callsite\((#loc\d*) at (#loc\d*)\)$")
_FUSED_LOC = re.compile(r"^fused(?:<.*>)?\[(.*)\]$")


_LIBRARY = str(Path(triton.__file__).parent)


class Locations:
    def __init__(self, lines: list[str]) -> None:
        self._texts = {
            match.group(1): match.group(2) for line in lines if (match := _LOC_LINE.match(line)) is not None
        }
        self._stacks: dict[str, tuple[tuple[str, int], ...]] = {}
        self._places: dict[tuple[tuple[str, int], ...], SourcePlace] = {(): NOWHERE}

    def place(self, name: str) -> SourcePlace:
        stack = self._stack(name)
        if stack not in self._places:
            # What a function of Triton's library does, the line that calls it does.
            own = next((at for at, (file, _) in enumerate(stack) if not file.startswith(_LIBRARY)), 0)
            self._places[stack] = SourcePlace(*stack[own], stack[own + 1 :])
        return self._places[stack]

    def _stack(self, name: str) -> tuple[tuple[str, int], ...]:
        if name not in self._stacks:
            self._stacks[name] = self._read(self._texts.get(name, "unknown"))
        return self._stacks[name]

    def _read(self, text: str) -> tuple[tuple[str, int], ...]:
        if (match := _FILE_LOC.match(text)) is not None:
            return ((match.group(1), int(match.group(2))),)
        if (match := _NAME_LOC.match(text)) is not None:
            return self._stack(match.group(1))
        if (match := _CALL_LOC.match(text)) is not None:
            return self._stack(match.group(1)) + self._stack(match.group(2))
        if (match := _FUSED_LOC.match(text)) is not None:
            return self._stack(match.group(1).split(",")[0].strip())
        return ()
