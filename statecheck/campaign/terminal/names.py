"""Names in tables of a terminal: where they do not fit, they go on in the next line, from one of their words on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text


@dataclass(frozen=True)
class BrokenName:
    """A name such as `requests_in_rows_live`, whose words end with an underscore or a dot."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines(options.max_width):
            yield Text(line, self.style, no_wrap=True, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(map(len, self._words()), default=0)
        return Measurement(min(longest, options.max_width), min(len(self.text), options.max_width))

    def lines(self, width: int) -> Iterator[str]:
        """Lines of at most `width` characters, as far as words are not longer."""
        line = ""
        for word in self._words():
            if line and len(line + word) > width:
                yield line
                line = ""
            line += word
        yield line

    def _words(self) -> list[str]:
        return re.findall(r"[^_.]*[_.]|[^_.]+", self.text)
