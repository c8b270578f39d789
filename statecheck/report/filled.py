"""Texts that are filled into templates of Jinja2: scripts and Markdown, in which nothing is escaped by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def filled(template: Path, filters: dict[str, Callable[..., Any]], **values: Any) -> str:
    """The template with these values; a line that is only a block leaves no line behind.

    Args:
        filters: functions by name, which the template uses as filters.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - neither a script nor Markdown is HTML
        loader=FileSystemLoader(template.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment.get_template(template.name).render(values)
