"""Text for a terminal, and for the log of a CI job, which takes lines that begin with `::` or `##` for commands."""

from __future__ import annotations

from typing import TextIO

from rich.text import Text

from statecheck.util.text import on_one_line, visible

_MARGIN = "\n  | "


def said(text: str) -> str:
    """Text from outside: without controls, and with a margin, so that no line of it looks like ours."""
    return _MARGIN.join(visible(text).replace("\t", " ").splitlines())


def cell(text: str, style: str = "") -> Text:
    """Text from outside, in a table of rich: nothing in it is markup."""
    return Text(on_one_line(text), style=style)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print text whose lines are ours, in which others may have put controls."""
    print(visible(text), file=stream, flush=True)
