"""Citations of docs/rules.md ("document 4", "contract 1.8", "I6") and links between pages: each has to lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from lab.sources import FOLDERS, ROOT, TEXTS, files

RULES = "docs/rules.md"

# A citation may go on in the next line, behind the mark of a comment.
_GAP = r"[\s#]+"
_NUMBER = r"\d+(?:\.\d+)?"
_JOIN = rf"(?:,?{_GAP}(?:and|or|to){_GAP}|,{_GAP})"
# In backticks whatever it is; without them what is written like no English word.
_NAME = r"(?:`(?:\w+\.)*\w+`|(?:\w+\.)*(?:\w*_\w+|[A-Z]\w*[A-Z\d]\w*))"
_NAMES = rf"(?:,{_GAP}(?P<names>{_NAME}(?:{_JOIN}{_NAME})*))?"
_CITATIONS = (
    re.compile(rf"\b(?P<kind>document|contract){_GAP}(?P<numbers>{_NUMBER}){_NAMES}", re.IGNORECASE),
    re.compile(
        rf"\b(?P<kind>document|contract)s{_GAP}(?P<numbers>{_NUMBER}(?:{_JOIN}{_NUMBER})*){_NAMES}",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?P<kind>I)(?P<numbers>[1-9])\b(?P<names>(?!))?"),
)
_RANGE = re.compile(rf"({_NUMBER}){_GAP}to{_GAP}({_NUMBER})")
_RULE = re.compile(r"^(?:#+ |- \*\*)(document \d+|contract \d+(?:\.\d+)?|I\d)(?![\d.])", re.IGNORECASE)
_HEADING = re.compile(r"^(#+) +(.+?) *$")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_COUNT = re.compile(r"\[(\d+)\]\(([^()\s#]+\.md)#([^()\s]+)\)")


def complaints() -> list[str]:
    """What leads nowhere, a line each: citations of rules and names, and relative links of Markdown pages."""
    missing = [folder for folder in FOLDERS if not (ROOT / folder).is_dir()]
    dead = [f"{folder}: missing, but its citations should be checked" for folder in missing]
    known = rules()
    for place, path in files(*TEXTS):
        text = path.read_text(encoding="utf-8")
        dead += [f"{place}:{line}" for line in _dead_citations(text, known)]
        if path.suffix == ".md":
            dead += [f"{place}:{line}" for line in _dead_links(text, path)]
    return dead


def rules() -> dict[str, str]:
    """By what it is cited by, as "contract 1.8": what the page says about it, rules within it included."""
    lines = _without_code_blocks((ROOT / RULES).read_text(encoding="utf-8")).split("\n")
    return {
        _label(rule[1]): "\n".join(lines[start : _end(lines, start)])
        for start, line in enumerate(lines)
        if (rule := _RULE.match(line))
    }


def names(rule: str, name: str) -> bool:
    """Whether a rule speaks of a function, class, field or law, all parts of a dotted name included."""
    return all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", rule) for part in name.split("."))


def _label(text: str) -> str:
    return text if text[0] == "I" else text.lower()


def _end(lines: list[str], start: int) -> int:
    """Where what begins with this line ends: a heading reaches to the next one that is no deeper, an item to the next."""
    heading = _HEADING.match(lines[start])
    for at in range(start + 1, len(lines)):
        other = _HEADING.match(lines[at])
        if other and not (heading and len(other[1]) > len(heading[1])):
            return at
        if not heading and lines[at].startswith("- "):
            return at
    return len(lines)


def _dead_citations(text: str, known: dict[str, str]) -> Iterator[str]:
    for cited in (citation for form in _CITATIONS for citation in form.finditer(text)):
        line = text.count("\n", 0, cited.start()) + 1
        labels = [_rule_of(cited["kind"], number) for number in _numbers(cited["numbers"])]
        dead = [label for label in labels if label not in known]
        yield from (f"{line}: {label}, but {RULES} has no such rule" for label in dead)
        for name in () if dead else re.findall(_NAME, cited["names"] or ""):
            if not any(names(known[label], name.strip("`")) for label in labels):
                yield f"{line}: {labels[-1]}, but {RULES} does not name `{name.strip('`')}` there"


def _rule_of(kind: str, number: str) -> str:
    return f"{kind}{number}" if kind == "I" else f"{kind.lower()} {number}"


def _numbers(text: str) -> list[str]:
    """The numbers of a list, with those that a range leaves out."""
    numbers = re.findall(_NUMBER, text)
    for first, last in _RANGE.findall(text):
        (chapter, _, low), (_, _, high) = first.rpartition("."), last.rpartition(".")
        between = [f"{chapter}.{at}" if chapter else str(at) for at in range(int(low) + 1, int(high))]
        numbers[numbers.index(first) + 1 : numbers.index(first) + 1] = between
    return numbers


def _without_code_blocks(text: str) -> str:
    """Lines keep their numbers."""
    return _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)


def _dead_links(text: str, page: Path) -> Iterator[str]:
    shown = _CODE.sub("", _without_code_blocks(text))
    for link in _LINK.finditer(shown):
        if not _leads_somewhere(link[1], page):
            line = shown.count("\n", 0, link.start()) + 1
            yield f"{line}: ]({link[1]}), but there is no such place"
    for counted in _COUNT.finditer(shown):
        rows = _rows(page.parent / counted[2]).get(counted[3])
        if rows not in (None, int(counted[1])):
            line = shown.count("\n", 0, counted.start()) + 1
            yield f"{line}: {counted[0]}, but the table there has {rows} rows"


def _leads_somewhere(target: str, page: Path) -> bool:
    if re.match(r"[a-z][a-z+.-]*:", target):
        return True
    path, _, anchor = target.partition("#")
    there = page.parent / unquote(path) if path else page
    if not there.exists() or not there.resolve().is_relative_to(ROOT):
        return False
    return not anchor or there.suffix != ".md" or anchor in _anchors(there)


def _anchors(page: Path) -> set[str]:
    """The places of a page that a link can name."""
    return set(_rows(page))


def _rows(page: Path) -> dict[str, int]:
    """By heading, how many rows the table below has.

    A heading is named as GitHub names it: by its letters, digits, hyphens and spaces, numbered where they come again.
    """
    seen: Counter[str] = Counter()
    rows = dict[str, int]()
    for line in _without_code_blocks(page.read_text(encoding="utf-8")).split("\n"):
        if heading := _HEADING.match(line):
            slug = re.sub(r"[^\w\- ]", "", heading[2].lower()).replace(" ", "-")
            anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
            # The first line of a table names its columns.
            rows[anchor] = -1
            seen[slug] += 1
        elif rows and line.startswith("| "):
            rows[anchor] += 1
    return rows
