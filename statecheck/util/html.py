"""Text for pages, which load nothing and run nothing, whatever others have said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from statecheck.util.text import visible

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
