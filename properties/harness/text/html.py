"""Text for pages, which load nothing and run nothing, whatever others have said."""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a page asks of the browser: no script, no picture and no font from anywhere."""


def rendered(markdown: str) -> str:
    """Markdown as HTML that is well-formed XML: HTML in it is text, and so are pictures."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    text: str = parser.render(markdown)
    return text
