"""Which lines of a target, and which variants of its kernels, an item uses: seen in the process that runs the item."""

from __future__ import annotations

import base64
import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from statecheck.mutants.equivalent import Specialisation, specialisation

Place = tuple[str, int]


class ExecutedLines:
    """The lines that Python executes in some files.

    Args:
        files: absolute names, and what each is called in what is seen.
        other: the beginning of the names of files of which is only seen whether any line is executed.
    """

    def __init__(self, files: Mapping[str, str], other: str) -> None:
        self._files, self._other = files, other
        self._tracers = dict[CodeType, Callable[..., Any] | None]()
        self._seen = set[Place]()
        self._is_other = False

    def start(self) -> None:
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
        return lines, other

    def _called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:  # noqa: ARG002
        code = frame.f_code
        if code not in self._tracers:
            self._tracers[code] = self._tracer(code.co_filename)
        tracer = self._tracers[code]
        return tracer(frame, "line", None) if tracer is not None else None

    def _tracer(self, file: str) -> Callable[..., Any] | None:
        if file in self._files:
            seen = self._seen

            def line(frame: FrameType, event: str, argument: Any) -> Any:  # noqa: ARG001
                if event == "line":
                    seen.add((file, frame.f_lineno))
                return line

            return line
        return self._used if self._other and file.startswith(self._other) else None

    def _used(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002
        self._is_other = True


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

    def take(self) -> tuple[list[str], list[str]]:
        """Digests of those that were launched, and those that are new, packed, since this was last asked."""
        launched, new = sorted(self._launched), list(map(packed, self.new))
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
    seen["launched"], seen["new"] = variants.take() if variants is not None else ([], [])


def packed(one: Specialisation) -> str:
    return base64.b64encode(pickle.dumps(one)).decode()


def unpacked(text: str) -> Specialisation:
    found = pickle.loads(base64.b64decode(text))  # noqa: S301 - written by this command
    assert isinstance(found, Specialisation)
    return found
