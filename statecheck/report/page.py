"""A report as one HTML page."""

from __future__ import annotations

import re
from pathlib import Path

from statecheck.util.markdown import POLICY, rendered, templates

_TEMPLATES = Path(__file__).with_name("templates")
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FOLDED = re.compile(r"<p>&lt;details&gt;\s*&lt;summary&gt;(.*?)&lt;/summary&gt;</p>")
_END_OF_FOLDED = "<p>&lt;/details&gt;</p>"


def report_page(text: str) -> str:
    """The report, as `report_text` wrote it, as one HTML page that is well-formed XML too."""
    title = text.splitlines()[0].removeprefix("# ")
    page = templates(_TEMPLATES).get_template("page.html.j2")
    return f"{page.render(title=plain(title), policy=POLICY, body=report_body(text))}\n"


def report_body(text: str) -> str:
    """The report as a part of a page."""
    return _with_folds(rendered(plain(text)))


def plain(text: str) -> str:
    """`text` with a replacement for each character that XML cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _with_folds(body: str) -> str:
    """What is folded in Markdown is folded on the page; all other markup stays the text that it is."""
    if len(_FOLDED.findall(body)) != body.count(_END_OF_FOLDED):
        return body
    return _FOLDED.sub(r"<details><summary>\1</summary>", body).replace(_END_OF_FOLDED, "</details>")
