"""A report as one HTML page."""

from __future__ import annotations

import re
from pathlib import Path

from statecheck.report.picture import plain
from statecheck.text.html import POLICY, rendered, templates

PICTURE = "timeline.svg"
_TEMPLATES = Path(__file__).with_name("templates")
_SHOWN = f'<p>!<a href="{PICTURE}">block tables over time</a></p>'
"""What becomes of the picture on a page, where pictures are text."""
_FOLDED = re.compile(r"<p>&lt;details&gt;\s*&lt;summary&gt;(.*?)&lt;/summary&gt;</p>")
_END_OF_FOLDED = "<p>&lt;/details&gt;</p>"


def report_page(text: str, picture: str = "") -> str:
    """The report as one HTML page that is well-formed XML too.

    Args:
        text: what `report_text` wrote.
        picture: the SVG that `text` refers to, to stand in the page itself.
    """
    title = text.splitlines()[0].removeprefix("# ")
    body = report_body(text, picture)
    page = templates(_TEMPLATES).get_template("page.html.j2")
    return f"{page.render(title=plain(title), policy=POLICY, body=body)}\n"


def report_body(text: str, picture: str = "") -> str:
    """The report as a part of a page."""
    body = rendered(plain(text)).replace(_SHOWN, f"<figure>{picture}</figure>", 1)
    return _with_folds(body)


def _with_folds(body: str) -> str:
    """What is folded in Markdown is folded on the page; all other markup stays the text that it is."""
    if len(_FOLDED.findall(body)) != body.count(_END_OF_FOLDED):
        return body
    return _FOLDED.sub(r"<details><summary>\1</summary>", body).replace(_END_OF_FOLDED, "</details>")
