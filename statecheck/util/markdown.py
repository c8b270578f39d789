"""Text for Markdown and for pages, which load nothing and run nothing: what others have said is neither markup nor a picture that a browser fetches
from somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecheck.util.text import brief, on_one_line, visible

_MARKUP = re.compile(r"([\\`|<>*\[\]#~])")
_CODE = re.compile(r"(?<!`)(`+)(?!`)([^\n]+?)(?<!`)\1(?!`)")
_OUTSIDE_OF_CODE = re.compile(r"([\\`<\[\]~])")
_BLOCK = re.compile(r"^(\s*)(#|>|=+\s*$|-+\s*$|_+\s*$|\++\s)")


def escaped(text: str, room: int) -> str:
    """`text` on one line of at most `room` characters, in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", brief(text, room))


def code(text: str) -> str:
    """`text` as code, in more backticks than it has."""
    line = on_one_line(text)
    most = _longest_fence(line)
    fence, pad = "`" * (most + 1), " " if most else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """`text` as a block of code, behind a fence that it does not have."""
    fence = "`" * max(3, _longest_fence(text) + 1)
    return f"{fence}{language}\n{visible(text)}\n{fence}"


def _longest_fence(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def inert(markdown: str) -> str:
    """Markdown of ours, with what others may have put into it: code, tables and emphasis stay, as do lists.

    Pictures, links, HTML, headings, quotations and blocks of code become text.
    """
    return "\n".join(map(_inert_line, visible(markdown).split("\n")))


def _inert_line(line: str) -> str:
    pieces, end = [], 0
    for found in _CODE.finditer(line):
        pieces += [_OUTSIDE_OF_CODE.sub(r"\\\1", line[end : found.start()]), found[0]]
        end = found.end()
    pieces.append(_OUTSIDE_OF_CODE.sub(r"\\\1", line[end:]))
    return _BLOCK.sub(r"\1\\\2", "".join(pieces))


def table(head: Sequence[str], rows: Iterable[Iterable[str]], *, numbers: Collection[int] = ()) -> list[str]:
    """The lines of a table of cells that are Markdown already; `numbers` are the columns that stand to the right."""
    rule = "".join("|---:" if column in numbers else "|---" for column in range(len(head)))
    return [_row(head), f"{rule}|", *map(_row, rows)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a page asks of the browser: no script, no picture and no font from anywhere."""


def rendered(markdown: str) -> str:
    """Markdown as HTML that is well-formed XML: HTML in it is text, and so are pictures."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    text: str = parser.render(markdown)
    return text


def templates(folder: Path) -> Environment:
    """The templates in a folder: what they are given is text, and escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
    )


def _shown(value: Any) -> Any:
    """What a page can hold of a value; what is HTML already stays."""
    return visible(value) if type(value) is str else value
