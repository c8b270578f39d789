"""What mkdocs calls for each page: "edit" leads to the file that the page is made of."""

from __future__ import annotations

from typing import Any

SOURCES = {"index.md": "README.md", "PROTOCOL.md": "PROTOCOL.md", "CHANGELOG.md": "CHANGELOG.md"}
GENERATED = {"scoreboard.md", "gallery.md"}


def on_page_context(context: Any, page: Any, config: Any, **_: Any) -> Any:
    """Pages of docs/ have the path that `edit_uri` gives them; generated pages have no file."""
    path = page.file.src_uri
    if path in SOURCES:
        page.edit_url = f"{config.repo_url.rstrip('/')}/edit/main/{SOURCES[path]}"
    elif path in GENERATED:
        page.edit_url = None
    return context
