"""The programs of a launch side by side: what each of them read and wrote, operation by operation.

For a case whose programs switch. Of a launch of many operations those are shown that touch the bytes which programs contend
for, since all others could as well be made at another time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from statecheck.case import Case
from statecheck.case.program_schedule import REVERSED, parsed
from statecheck.case.values import Call, Let
from statecheck.diagnose.rerun import Rerun
from statecheck.execution.port import InProcess
from statecheck.kernels.memory import Array
from statecheck.kernels.orders.footprints import Footprints, byte_addresses
from statecheck.kernels.orders.recording import (
    RecordedLaunch,
    RecordedOperation,
    launches_recorded,
)
from statecheck.kernels.orders.schedule import switches_recorded
from statecheck.subject import Subject
from statecheck.text import markdown

_ALL_SHOWN, _MOST_ROWS, _MOST_COLUMNS, _MOST_VALUES = 24, 60, 5, 6


def side_by_side(case: Case, subject: Subject) -> str:
    """A table in Markdown, with a sentence above it; "" for a case without switches.

    Its steps are taken once more, up to the call that fails.
    """
    call = case.failure.call if case.failure is not None else None
    if call is None or call >= len(case.calls) or parsed(case.calls[call].schedule).kind in ("", REVERSED):
        return ""
    port = InProcess(subject, "cpu")
    schedule = _switches_made(case, port, call)
    launch = _recorded(case, port, call, schedule) if any(parsed(schedule).launches) else None
    if launch is None:
        return ""
    table = _ProgramTable(launch, _Names(case, port, launch))
    return (
        f"Programs of `{launch.launch.kernel}` in call {call + 1} (`{case.calls[call].function}`), in the order "
        f"`{schedule}`{table.left_out}:\n\n" + "\n".join(table.lines())
    )


def _switches_made(case: Case, port: InProcess, call: int) -> str:
    """The order of a call, or the switches that it makes where it names a seed, or all interleavings."""
    schedule = case.calls[call].schedule
    if parsed(schedule).launches:
        return schedule
    _take_steps_before(case, port, call)
    with switches_recorded() as record:
        port.execute(case.calls[call])
    return record[0] if record else ""


def _take_steps_before(case: Case, port: InProcess, call: int) -> None:
    """Take the steps that come before a call."""
    places = [place for place, step in enumerate(case.steps) if isinstance(step, Call)]
    for _ in Rerun(replace(case, steps=case.steps[: places[call]]), port):
        """Its outcome is known."""


def _recorded(case: Case, port: InProcess, call: int, schedule: str) -> RecordedLaunch | None:
    """The launch of the call in which programs switch."""
    _take_steps_before(case, port, call)
    with launches_recorded() as recorded:
        port.execute(replace(case.calls[call], schedule=schedule))
    pairs = zip(recorded, parsed(schedule).launches, strict=False)
    return next((one for one, switches in pairs if switches), None)


class _Names:
    """What addresses are called: by the names of the case, or else by the parameters of the kernel."""

    def __init__(self, case: Case, port: InProcess, launch: RecordedLaunch) -> None:
        self._views = list(port.views(step.name for step in case.steps if isinstance(step, Let)))
        one = launch.launch
        handed = zip(one.names, one.arguments, strict=True)
        self._views += [(name, each) for name, each in handed if isinstance(each, torch.Tensor)]

    def of(self, addresses: Array, nbytes: int) -> str:
        """Elements of one tensor, or places in memory that have no name."""
        places = addresses.tolist()
        for name, view in self._views:
            inside = view.untyped_storage()
            first = inside.data_ptr()
            if all(first <= one < first + inside.nbytes() for one in places):
                return f"{name}[{_numbers(_elements(view, places, nbytes))}]"
        return _numbers([hex(one) for one in places])


def _elements(view: torch.Tensor, places: Sequence[int], nbytes: int) -> list[str]:
    """Numbers of elements, in row-major order; of bytes where that is not what is touched."""
    size = view.element_size()
    offsets = [one - view.data_ptr() for one in places]
    if size == nbytes and view.is_contiguous():
        return [str(one // size) for one in offsets]
    return [f"byte {one}" for one in offsets]


def _numbers(every: Sequence[str]) -> str:
    if len(every) <= _MOST_VALUES:
        return ", ".join(every)
    return f"{', '.join(every[: _MOST_VALUES - 1])}, ... {every[-1]}"


@dataclass(frozen=True)
class _Row:
    number: int
    who: str
    text: str


class _ProgramTable:
    def __init__(self, recorded: RecordedLaunch, names: _Names) -> None:
        self._operations, self._names = recorded.operations, names
        self._contended = self._contenders()
        self._shown = len(self._operations) <= _ALL_SHOWN

    @property
    def left_out(self) -> str:
        return "" if self._shown else "; operations are left out that touch nothing which another one writes"

    def lines(self) -> list[str]:
        rows = list(self._rows())
        columns = list(dict.fromkeys(row.who for row in rows))
        if len(columns) > _MOST_COLUMNS:
            rows = [_Row(row.number, "", f"{row.who}: {row.text}") for row in rows]
            columns = [""]
        else:
            columns.sort()
        cells = [
            [str(row.number), *(row.text if one == row.who else "" for one in columns)]
            for row in rows[:_MOST_ROWS]
        ]
        if len(rows) > _MOST_ROWS:
            cells.append(["...", f"{len(rows) - _MOST_ROWS} more", *[""] * (len(columns) - 1)])
        return markdown.table(("", *columns), cells)

    def _rows(self) -> Iterator[_Row]:
        for number, one in enumerate(self._operations):
            if self._shown or number in self._contended:
                yield _Row(
                    number + 1, f"program {one.touch.program}", self._text(one, self._contended.get(number))
                )

    def _text(self, one: RecordedOperation, contended: Array | None) -> str:
        """The line of code, and what was read and written: of a long tile, what others touch too."""
        chosen = slice(None) if contended is None or len(one.touch.addresses) <= _MOST_VALUES else contended
        what = self._names.of(one.touch.addresses[chosen], one.site.nbytes)
        found = None if one.found is None else _numbers([str(each) for each in one.found[chosen]])
        left = None if one.left is None else _numbers([str(each) for each in one.left[chosen]])
        place = f"{Path(one.site.place.file).name}:{one.site.place.line}"
        if not len(one.touch.addresses):
            return f"`{place}` {one.site.kind} of nothing"
        if left is None:
            return f"`{place}` reads `{what}`: {found}"
        if found is None:
            return f"`{place}` writes `{what}` = {left}"
        return f"`{place}` atomic {one.site.operation} `{what}`: {found} → {left}"

    def _contenders(self) -> dict[int, Array]:
        """Operations that conflict with those of another program, and which of their elements do."""
        footprints, found = Footprints(), dict[int, Array]()
        numbers = [
            footprints.number(one.touch.addresses, one.site.nbytes, writes=one.left is not None)
            for one in self._operations
        ]

        for at, one in enumerate(self._operations):
            others = [
                other
                for number, other in zip(numbers, self._operations, strict=True)
                if number in footprints.conflicts[numbers[at]] and one.touch.program != other.touch.program
            ]
            if others:
                near = [byte_addresses(other.touch.addresses, other.site.nbytes) for other in others]
                own = one.touch.addresses.reshape(-1, 1) + np.arange(one.site.nbytes)
                found[at] = np.asarray(np.isin(own, np.concatenate(near)).any(axis=1))
        return found
