"""One renderer for each output: Markdown and HTML of the sections of a report, and lines, Markdown and annotations of an `Entry`.

An issue tracker cuts nothing itself and takes 65,536 characters: sections lose their last pieces. Pages load nothing, and are well-formed XML.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.report.bisection import ROOM as ROOM_OF_BISECTION
from statecheck.report.bisection import Bisection, save, with_section
from statecheck.report.failure import PATHS, STEPS, TYPED, Entry
from statecheck.report.scripts.script import repro_script, repro_test
from statecheck.report.sections import TEST, Section, report_sections
from statecheck.subject import Subject
from statecheck.util.files import in_file_name, mark_reports, write_text
from statecheck.util.markdown import POLICY, code, escaped, fenced, rendered, templates
from statecheck.util.text import visible

TEMPLATES = Path(__file__).with_name("templates")
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_FOLDED = re.compile(r"<p>&lt;details&gt;\s*&lt;summary&gt;(.*?)&lt;/summary&gt;</p>")
_END_OF_FOLDED = "<p>&lt;/details&gt;</p>"
GITHUB = "GITHUB_ACTIONS"
"""Set where GitHub runs this."""
_MOST_ANNOTATIONS = 10
"""As many as GitHub shows of a step."""
MOST = 60_000
"""Characters of a report."""
_A_SENTENCE = 400
"""Room for what is said of pieces that are left out."""


def report_text(case: Case, subject: Subject | None, note: str = "") -> str:
    """The report as Markdown that an issue tracker takes, with room for when it became wrong; arguments as of `report_sections`."""
    return markdown_of(report_sections(case, subject, note), MOST - ROOM_OF_BISECTION)


def markdown_of(sections: Sequence[Section], most: int = MOST) -> str:
    """The sections as Markdown of at most `most` characters, as long as those that may lose nothing have room."""
    shown = list(sections)
    for number in sorted(range(len(shown)), key=lambda number: -shown[number].rank):
        excess = len(_joined(shown)) - most
        if excess > 0 and shown[number].many:
            shown[number] = _without(shown[number], excess + _A_SENTENCE)
    return _joined(shown)


def _joined(sections: Sequence[Section]) -> str:
    return "\n\n".join(part for section in sections for part in _parts(section)) + "\n"


def _parts(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {section.title}"
    if section.summary:
        yield f"<details>\n<summary>{section.summary}</summary>"
    if section.pieces and section.language:
        yield fenced("\n".join(section.pieces), section.language)
    elif section.pieces:
        yield "\n\n".join(section.pieces)
    if section.left_out:
        missing = f"{section.left_out:,} more {section.one if section.left_out == 1 else section.many}"
        yield f"**{missing} left out here, so that the report can be pasted: `case.json` has everything.**"
    if section.summary:
        yield "</details>"


def _without(section: Section, characters: int) -> Section:
    """The section without as many of its last pieces as have so many characters together."""
    kept, gone = list(section.pieces), 0
    while kept and gone < characters:
        gone += len(kept.pop())
    return replace(section, pieces=tuple(kept), left_out=section.left_out + len(section.pieces) - len(kept))


# Pages.


def report_page(text: str) -> str:
    """The report, as `report_text` wrote it, as one HTML page that is well-formed XML too."""
    title = text.splitlines()[0].removeprefix("# ")
    page = templates(TEMPLATES).get_template("page.html.j2")
    return f"{page.render(title=_plain(title), policy=POLICY, body=report_body(text))}\n"


def report_body(text: str) -> str:
    """The report as a part of a page: what is folded in Markdown is folded there; all other markup stays the text that it is."""
    body = rendered(_plain(text))
    if len(_FOLDED.findall(body)) != body.count(_END_OF_FOLDED):
        return body
    return _FOLDED.sub(r"<details><summary>\1</summary>", body).replace(_END_OF_FOLDED, "</details>")


def _plain(text: str) -> str:
    """`text` with a replacement for each character that XML cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


# Entries.


def entry_lines(entry: Entry, width: int = 0) -> Iterator[str]:
    """The entry as lines of text that break between words; paths and commands stay whole, so that they can be pasted, and each step has lines of its own.

    Args:
        width: of the lines; 0 for one line of each row.
    """
    yield from _wrapped(entry.headline, width, "", "  ")
    indent = 4 + max((len(label) for label, _ in entry.rows), default=0)
    for label, text in entry.rows:
        shown = text if label in TYPED else text.replace("**", "")
        first, *others = shown.splitlines() or [""] if label in STEPS else [shown]
        yield from _wrapped(first, 0 if label in PATHS else width, f"  {label}".ljust(indent), " " * indent)
        for step in others:
            yield from _wrapped(step, width, " " * indent, " " * (indent + 2))


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    """Lines of a text; its own further lines have a margin, so that none of them looks like ours."""
    lines = [line.replace("\t", " ") for line in visible(text).splitlines()] or [""]
    if not width or len(lines) > 1:
        return [f"{first}{lines[0]}", *(f"{rest}| {line}" for line in lines[1:])]
    return textwrap.wrap(
        lines[0],
        max(width, 40),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first]


def entry_markdown(entry: Entry, room: int = 400) -> list[str]:
    """The entry as an item of a list, in which nothing is markup that others have said."""
    lines = [f"- **{escaped(entry.headline, room)}**"]
    return lines + [
        f"  - {label}: {code(text[:room]) if label in TYPED else escaped(text.replace('**', ''), room)}"
        for label, text in entry.on_one_line.rows
    ]


def github_annotations(entries: Sequence[Entry]) -> list[str]:
    """Commands by which GitHub shows the entries beside a run; none elsewhere. A command ends with its line, which no message does."""
    if not os.environ.get(GITHUB):
        return []
    found = []
    for entry in entries[:_MOST_ANNOTATIONS]:
        body = "\n".join(line.strip() for line in entry_lines(Entry("", entry.rows)) if line)
        title = _escaped(entry.headline).replace(":", "%3A").replace(",", "%2C")
        found.append(f"::error title={title}::{_escaped(body) or title}")
    return found


def _escaped(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# The files of a report: `report.md` is for an issue tracker and `report.html` for a browser, `repro.py` to run, `test_repro.py` for pytest,
# and `case.json` to replay.

_MOST_OF_ONE_INPUT = 100


def write_report(case: Case, reports: Path, subject: Subject | None, *, note: str = "") -> Path:
    """Write the files into `reports/<date>-<property>-<hash>/`; the case first. Returns the directory.

    Args:
        subject: the case's, None where it cannot be imported here.
        note: a sentence to add, such as that the failure does not repeat.
    """
    directory = _directory_of(case, reports)
    case.save(directory / "case.json")
    mark_reports(reports)
    write_text(directory / "repro.py", repro_script(case, directory, subject))
    test = repro_test(case, subject)
    if test:
        write_text(directory / TEST, test)
    else:
        # This input may have been reported before, with such a file.
        (directory / TEST).unlink(missing_ok=True)
    text = with_section(report_text(case, subject, note), directory)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text))
    return directory


def add_bisection(directory: Path, bisection: Bisection) -> None:
    """Keep it in a report's folder, and let the report tell of it."""
    save(directory, bisection)
    text = with_section((directory / "report.md").read_text(encoding="utf-8"), directory)
    write_text(directory / "report.md", text)
    write_text(directory / "report.html", report_page(text))


def _directory_of(case: Case, reports: Path) -> Path:
    """A folder for the input, and another one where a report of it stands already that shows something else."""
    # The user's own date, which is what a person looks for in a list of reports.
    today = dt.datetime.now().astimezone().date()
    name, wanted = f"{today}-{in_file_name(case.property_id)}-{case.digest}", bucket_of(case).id
    for number in range(1, _MOST_OF_ONE_INPUT):
        directory = reports / (name if number == 1 else f"{name}-{number}")
        try:
            if bucket_of(Case.load(directory / "case.json")).id == wanted:
                return directory
        except FileNotFoundError:
            return directory
        except (OSError, ValueError):
            """It is no report of ours, and is not overwritten."""
    return directory
