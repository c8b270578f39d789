"""Records which lines and branches of some files are executed: with `sys.monitoring` from Python 3.12 on, below it with `sys.settrace`.

Each line and each way of a branch is noted once; what has been seen costs little from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from statecheck.reach.source import Instructions, Point, source

_TOOL, _NAME = 4, "statecheck"
"""The number under which Python knows this tool: those below are coverage's, a profiler's, and Hypothesis's."""


class _Watched:
    """A function that is watched: its points, and those of them that are still to come."""

    def __init__(self, instructions: Instructions, new: set[Point]) -> None:
        self.jumps = instructions.jumps
        self.missing = instructions.points
        self._lines = instructions.lines
        self._new = new

    def reach(self, point: Point | None) -> None:
        if point in self.missing:
            self.missing.remove(point)
            self._new.add(point)

    def reach_line(self, offset: int) -> None:
        """The instruction there is executed."""
        self.reach(self._lines.get(offset))

    def reach_branch(self, offset: int, destination: int) -> bool:
        """The instruction at `destination` follows that at `offset`; whether nothing is missing there any more."""
        jump = self.jumps.get(offset)
        if jump is None:
            return True
        # Python 3.12 goes to the instruction behind the one that ends a loop.
        self.reach(jump.taken if 0 <= destination - jump.target <= 2 else jump.passed)
        return self.missing.isdisjoint({jump.taken, jump.passed})


class Trace:
    """The points of these files that were reached while `watching` was entered."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)
        self._new: set[Point] = set()
        self._given: set[Point] = set()
        self._known: dict[CodeType, _Watched] = {}
        self._tracer: _Monitoring | _Debugger | None = None
        if self._files:
            self._tracer = _Monitoring(self) if sys.version_info >= (3, 12) else _Debugger(self)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While it is entered, what this thread runs is noted."""
        if self._tracer is None:
            yield
            return
        self._tracer.start()
        try:
            yield
        finally:
            self._tracer.stop()

    def take(self) -> frozenset[Point]:
        """What was reached for the first time since the last call."""
        new = frozenset(self._new - self._given)
        self._given |= new
        self._new.clear()
        return new

    def watched(self, code: CodeType) -> _Watched | None:
        """A function; None if it is in no file that is watched."""
        if code.co_filename not in self._files:
            return None
        if code not in self._known:
            self._known[code] = _Watched(source(code.co_filename).of(code), self._new)
        return self._known[code]


class _Debugger:
    """By `sys.settrace`, instruction by instruction; functions of which nothing is missing are left alone."""

    def __init__(self, trace: Trace) -> None:
        self._watched = trace.watched
        self._before: Any = None

    def start(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG002 - as Python calls it
        watched = self._watched(frame.f_code)
        if watched is None or not watched.missing:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        last = -1

        def executed(frame: FrameType, event: str, argument: object) -> Any:  # noqa: ARG001 - as Python calls it
            nonlocal last
            if event == "opcode":
                at = frame.f_lasti
                if last in watched.jumps:
                    watched.reach_branch(last, at)
                watched.reach_line(at)
                last = at
            return executed

        return executed


class _Monitoring:
    """By `sys.monitoring`, from Python 3.12 on: an event of an instruction is asked for until it has nothing new to say."""

    def __init__(self, trace: Trace) -> None:
        self._watched, self._on = trace.watched, False
        tool: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self._tool, events = tool, tool.events
        if tool.get_tool(_TOOL) is None:
            tool.use_tool_id(_TOOL, _NAME)
        self._wanted = events.LINE | events.BRANCH
        tool.register_callback(_TOOL, events.PY_START, self._started)
        tool.register_callback(_TOOL, events.LINE, self._line)
        tool.register_callback(_TOOL, events.BRANCH, self._branch)
        tool.set_events(_TOOL, events.PY_START)
        # Those that an earlier trace of this process has had enough of.
        tool.restart_events()

    def start(self) -> None:
        self._on = True

    def stop(self) -> None:
        self._on = False

    def _started(self, code: CodeType, offset: int) -> Any:  # noqa: ARG002 - as Python calls it
        if self._watched(code) is not None:
            self._tool.set_local_events(_TOOL, code, self._wanted)
        return self._tool.DISABLE

    def _line(self, code: CodeType, line: int) -> Any:
        watched = self._watched(code)
        if not self._on or watched is None:
            return None
        watched.reach(Point(code.co_filename, line))
        return self._tool.DISABLE

    def _branch(self, code: CodeType, offset: int, destination: int) -> Any:
        watched = self._watched(code)
        if not self._on or watched is None:
            return None
        return self._tool.DISABLE if watched.reach_branch(offset, destination) else None
