"""Which lines of a target, and which variants of its kernels, an item uses: seen in the process that runs the item."""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from lab.mutants.equivalent import Specialisation, specialisation

Place = tuple[str, int]


class ExecutedLines:
    """The lines that Python executes in some files.

    Args:
        files: absolute names, and what each is called in what is seen.
        by_line: those whose lines are seen one by one; of the others, before Python 3.12, only that a function was called. A release
            has thousands of files, and to import them line by line takes minutes.
        other: the beginning of the names of files of which is only seen whether any line is executed.
    """

    def __init__(self, files: Mapping[str, str], by_line: Collection[str], other: str) -> None:
        self._files, self._by_line, self._other = files, by_line, other
        self._seen = set[Place]()
        self._is_other = False
        self._restart: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Watch this process from now on; before Python 3.12, each line that is executed costs time."""
        if hasattr(sys, "monitoring"):
            self._monitor(sys.monitoring)
        else:
            threading.settrace(self._called)
            sys.settrace(self._called)

    def take(self) -> tuple[dict[str, list[int]], bool]:
        """The lines by file and whether another file was used, since this was last asked."""
        lines = dict[str, list[int]]()
        for file, line in sorted(self._seen):
            lines.setdefault(self._files[file], []).append(line)
        other = self._is_other
        self._seen.clear()
        self._is_other = False
        self._restart()
        return lines, other

    def _see(self, file: str, line: int) -> bool:
        """Whether the next lines of the file, whose line was executed, are wanted."""
        if file in self._files:
            self._seen.add((file, line))
            return file in self._by_line
        self._is_other |= bool(self._other) and file.startswith(self._other)
        return False

    def _monitor(self, monitoring: Any) -> None:
        def line(code: CodeType, number: int) -> Any:
            self._see(code.co_filename, number)
            # Until the next item, which starts all lines again.
            return monitoring.DISABLE

        tool = monitoring.COVERAGE_ID
        monitoring.use_tool_id(tool, "statecheck")
        monitoring.register_callback(tool, monitoring.events.LINE, line)
        monitoring.set_events(tool, monitoring.events.LINE)
        self._restart = monitoring.restart_events

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:  # noqa: ARG002
        if event in ("call", "line"):
            return self._called if self._see(frame.f_code.co_filename, frame.f_lineno) else None
        return self._called


class Variants:
    """The variants of kernels that are launched."""

    def __init__(self) -> None:
        self._of = dict[int, Specialisation]()
        self._kept = list[Any]()
        self._launched = set[str]()
        self.new = list[Specialisation]()

    def start(self) -> None:
        """Watch compilations and launches from now on."""
        launch: Any = importlib.import_module("statecheck.kernels.launch")

        compiled, run = launch.compiled, launch.Kernel.run

        def watched_compiled(source: Any, options: Any, backend: Any) -> Any:
            made = compiled(source, options, backend)
            one = specialisation(source, options, backend)
            self._of[id(made)] = one
            self._kept.append(made)
            self.new.append(one)
            return made

        def watched_run(kernel: Any, *arguments: Any) -> None:
            one = self._of.get(id(kernel.variant))
            if one is not None:
                self._launched.add(one.digest)
            run(kernel, *arguments)

        launch.compiled = watched_compiled
        launch.Kernel.run = watched_run

    def take(self) -> tuple[list[str], dict[str, str]]:
        """Digests of those that were launched, and those that are new, packed, by digest, since this was last asked."""
        launched, new = sorted(self._launched), {one.digest: packed(one) for one in self.new}
        self._launched.clear()
        self.new.clear()
        return launched, new


@contextmanager
def watching(lines: ExecutedLines, variants: Variants | None) -> Iterator[dict[str, Any]]:
    """What is used while an item runs; complete when the context ends."""
    lines.take()
    if variants is not None:
        variants.take()
    seen: dict[str, Any] = {}
    yield seen
    seen["lines"], seen["other"] = lines.take()
    seen["launched"], seen["new"] = variants.take() if variants is not None else ([], {})


def packed(one: Specialisation) -> str:
    return base64.b64encode(pickle.dumps(one)).decode()


def unpacked(text: str) -> Specialisation:
    found = pickle.loads(base64.b64decode(text))  # noqa: S301 - written by this command
    assert isinstance(found, Specialisation)
    return found
