"""A report as one HTML page."""

from __future__ import annotations

import re
from html import escape

from properties.harness.report.picture import plain
from properties.harness.text.html import POLICY, rendered

PICTURE = "timeline.svg"
_SHOWN = f'<p>!<a href="{PICTURE}">block tables over time</a></p>'
"""What becomes of the picture on a page, where pictures are text."""
_FOLDED = re.compile(r"<p>&lt;details&gt;\s*&lt;summary&gt;(.*?)&lt;/summary&gt;</p>")
_END_OF_FOLDED = "<p>&lt;/details&gt;</p>"
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #f3f3f3; --line: #c9c9c9; --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #161616; --soft: #242424; --line: #4a4a4a;
  --link: #8ab8ff; } }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; }
h1, h2, p, li, td { overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
a { color: var(--link); }
pre, code { font: 0.85rem/1.45 ui-monospace, Menlo, Consolas, monospace; background: var(--soft); }
pre { padding: 0.8rem; overflow-x: auto; }
table { border-collapse: collapse; }
td { padding: 0.2rem 0.8rem; border: 1px solid var(--line); }
p code, li code { overflow-wrap: anywhere; white-space: pre-wrap; }
figure { margin: 1rem 0; overflow-x: auto; background: #ffffff; width: fit-content; max-width: 100%; }
figure svg { max-width: 100%; height: auto; min-width: 24rem; }
summary { cursor: pointer; margin: 0.6rem 0; }
@media (max-width: 40rem) { body { margin: 0.6rem auto; padding: 0 0.6rem; } td { padding: 0.15rem 0.4rem; } }
"""
_PAGE = """<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<meta http-equiv="Content-Security-Policy" content="{policy}" />
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}</body>
</html>
"""


def report_page(text: str, picture: str = "") -> str:
    """The report as one HTML page that is well-formed XML too.

    Args:
        text: what `report_text` wrote.
        picture: the SVG that `text` refers to, to stand in the page itself.
    """
    title = text.splitlines()[0].removeprefix("# ")
    body = report_body(text, picture)
    return _PAGE.format(title=escape(plain(title)), policy=escape(POLICY), style=_STYLE, body=body)


def report_body(text: str, picture: str = "") -> str:
    """The report as a part of a page."""
    body = rendered(plain(text)).replace(_SHOWN, f"<figure>{picture}</figure>", 1)
    return _with_folds(body)


def _with_folds(body: str) -> str:
    """What is folded in Markdown is folded on the page; all other markup stays the text that it is."""
    if len(_FOLDED.findall(body)) != body.count(_END_OF_FOLDED):
        return body
    return _FOLDED.sub(r"<details><summary>\1</summary>", body).replace(_END_OF_FOLDED, "</details>")
