"""A message of a subject is text: in a terminal, in Markdown, on a page, for a CI system, and in a script."""

from __future__ import annotations

import ast
import io
import re
from collections import Counter
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from statecheck.campaign.display import Display, print_sections
from statecheck.campaign.record import CampaignRecord, KnownRecord
from statecheck.campaign.report import markdown, page
from statecheck.case import Case
from statecheck.case.values import Returned, call
from statecheck.diagnose.replay import replay_case
from statecheck.execution.verdict import Counts
from statecheck.report.render import GITHUB, TEMPLATES, write_report
from statecheck.util.markdown import inert
from tests.helpers.cases import a_case, toy
from tests.unit.campaign.nightly_examples import TIMELINE, a_bucket, a_property, a_record

MESSAGES = {
    "a screen that is cleared": "\x1b[2J\x1b[1;31mx\x1b[0m\x9b31m\r\x07",
    "a title and a link of the terminal": "\x1b]0;x\x07 \x1b]8;;http://example.org\x1b\\x\x1b]8;;\x1b\\",
    "markup of rich": "[red]x[/red] [link=http://example.org]y[/link] [/] \\[",
    "lines of ours": "x\nCLEAN\nreport: elsewhere\n\n::error file=a::b\n##vso[task.complete]",
    "a fence": "`x` ``\n```\n# A heading\n~~~\n> quoted",
    "a picture from elsewhere": "![x](http://example.org/x.png) ![y][z]\n\n[z]: http://example.org/z.png",
    "links": "[x](javascript:alert(1)) [y](http://example.org) <http://example.org>",
    "a script": "<script>alert(1)</script><img src=http://example.org/x.png onerror=alert(1)>",
    "elements that end": "</code></pre></details></article><details open><summary>x</summary>",
    "a comment": "<!-- x --> <!-- never closed",
    "a table": "a | b || c \\| d\n|---|---|\n| x | y |",
    "what XML forbids": "\x00\x01\x08\x0b\ufffe\ud800 ]]> &amp; &x;",
    "letters from right to left": "\u202egpj.x\u202c \u2066\u200b\u200e\ufeff\u061c\U000e0041",
    "a template": "{{ 7 * 7 }} {% raw %} {# x #} ${x} %s",
    "an attribute": '" onmouseover="alert(1)" \' onfocus=\'alert(1)',
    "the end of a docstring": '"""\nimport os\nos._exit(7)\n"""\\N{BULLET}\\',
}
every_message = pytest.mark.parametrize("message", MESSAGES.values(), ids=list(MESSAGES))
_CONTROLS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def shown(message: str) -> Case:
    """The case of a subject that raises this, with everything else that may be said in one."""

    def divide(x: int, y: int) -> int:  # noqa: ARG001 - as documented
        raise ValueError(message)

    case = a_case(
        steps=(call("divide", x=4, y=2),), expected=(Returned(2),), actual=(Returned(3),), message=""
    )
    found = replay_case(case, toy(divide=divide), "cpu")
    assert found.verdict == "FAILED"
    texts = {"sentence": message, "finding": message}
    return Case(**{**vars(found.case), **texts, "timeline": TIMELINE})


def campaign(message: str) -> CampaignRecord:
    bucket = a_bucket(3, shown(message), note=message, rule=message, fault=message)
    stated = a_property(
        message,
        status="ERROR",
        detail=message,
        sentence=message,
        counts=Counts(1200, 1200, unchecked=Counter({message: 1})),
    )
    known = KnownRecord(message, message, message, "showed", {message: 1}, note=message)
    return a_record(bucket, properties=[stated], warnings=[message], known=[known], canary=message)


def elements(text: str) -> list[Element]:
    """All elements of a page or file, which is XML whatever else it is."""
    return list(fromstring(text.encode()).iter())  # noqa: S314 - we wrote it ourselves


def harmful(found: list[Element]) -> list[str]:
    """The elements that load or run something."""
    tags = {node.tag.rpartition("}")[2] for node in found}
    loads = tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "video", "audio"}
    attributes = [name for node in found for name in node.attrib if name.startswith("on")]
    places = [node.get(name, "") for node in found for name in ("src", "href", "action", "style")]
    # Columns of numbers stand to the right.
    elsewhere = (place for place in places if ":" in place and place != "text-align:right")
    return [*loads, *attributes, *elsewhere]


SCRIPT = (TEMPLATES / "campaign.js").read_text(encoding="utf-8")


@every_message
def test_in_a_terminal_nothing_steers_it_and_no_line_looks_like_one_of_ours(message: str) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, color_system="truecolor")
    record = campaign(message)
    display = Display(console)
    print_sections(display.say, record, display.width)
    text = _COLOURS.sub("", out.getvalue())
    assert not _CONTROLS.search(text)
    lines = [line.strip() for line in text.splitlines()]
    assert not [
        line for line in lines if line.startswith(("CLEAN", "report: elsewhere", "::", "##", "import os"))
    ]


@every_message
def test_an_annotation_of_github_is_one_line_and_the_only_command(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setenv(GITHUB, "true")
    out: list[str] = []
    print_sections(out.append, campaign(message))
    lines = [line.strip() for text in out for line in text.splitlines()]
    (command,) = [line for line in lines if line.startswith(("::", "##"))]
    assert command.startswith("::error title=toy")


@every_message
def test_a_report_in_markdown_has_no_markup_of_the_subject_s(tmp_path: Path, message: str) -> None:
    text = (write_report(shown(message), tmp_path, None, note=message) / "report.md").read_text(
        encoding="utf-8"
    )
    # As an issue tracker does: it takes HTML, and fetches pictures.
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert "<img" not in html
    # What we fold ourselves is there once.
    before, fold, rest = html.partition("<details>\n<summary>Block tables over time</summary>")
    folded, end, after = rest.partition("</details>")
    assert fold
    assert end
    html = before + folded + after
    assert not re.search(r"<(script|details|summary|/details|!--|a )", html)
    headings = re.findall(r"<h\d>(.*?)</h\d>", html)
    assert headings[0].startswith("toy")
    assert headings[1:] == OURS
    # Whatever is said, the parts of the report stay apart.
    # Of the environment, and the block table in the open and folded.
    assert html.count("<table>") == 3
    assert html.rstrip().endswith("</table>")


OURS = [
    "Who did it",
    "What happened",
    "Block tables where it went wrong",
    "Expected and actual",
    "Input",
    "Run it again",
    "Environment",
]


@every_message
def test_a_report_as_a_page_loads_and_runs_nothing(tmp_path: Path, message: str) -> None:
    folder = write_report(shown(message), tmp_path, None, note=message)
    found = elements((folder / "report.html").read_text(encoding="utf-8"))
    assert harmful(found) == []
    assert [node.get("content") for node in found if node.get("http-equiv") == "Content-Security-Policy"]


@every_message
def test_the_page_of_a_campaign_loads_and_runs_nothing(tmp_path: Path, message: str) -> None:
    record = campaign(message)
    text = page(record, tmp_path)
    found = elements(text)
    # The page's own script, which the policy names by its hash.
    (script,) = (node for node in found if node.tag.endswith("}script"))
    assert (script.text, script.attrib) == (SCRIPT, {})
    assert harmful([node for node in found if node is not script]) == []
    assert "49" not in re.findall(r"template.{0,20}|7 \* 7.{0,20}|\b49\b", text)


@every_message
def test_a_summary_in_markdown_has_no_markup_of_the_subject_s(tmp_path: Path, message: str) -> None:
    record = campaign(message)
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(record, tmp_path))
    assert not re.search(r"<(img|script|details|summary|/details|!--|a )", html)


@every_message
def test_a_script_has_what_was_said_in_its_docstring_and_nowhere_else(tmp_path: Path, message: str) -> None:
    folder = write_report(shown(message), tmp_path, None)
    tree = ast.parse((folder / "repro.py").read_text(encoding="utf-8"))
    first, second, *_ = tree.body
    assert isinstance(first, ast.Expr)
    assert isinstance(second, ast.Import)
    assert "os._exit(7)" not in {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize(
    ("ours", "text"),
    [
        ("**Known** `copy[0]` at `a.py:3`", "**Known** `copy[0]` at `a.py:3`"),
        ("| 1 | `p[0]`: 2 → 3 |\n|---|---|", "| 1 | `p[0]`: 2 → 3 |\n|---|---|"),
        ("- one\n- two", "- one\n- two"),
        ("``a`b`` and `c`", "``a`b`` and `c`"),
        ("![x](http://x)", "!\\[x\\](http://x)"),
        ("<b>", "\\<b>"),
        ("# x", "\\# x"),
        ("> x", "\\> x"),
        ("x\n===", "x\n\\==="),
        ("```\nx\n```", "\\`\\`\\`\nx\n\\`\\`\\`"),
        ("`never closed", "\\`never closed"),
    ],
)
def test_of_markdown_of_ours_code_tables_lists_and_emphasis_stay(ours: str, text: str) -> None:
    assert inert(ours) == text
