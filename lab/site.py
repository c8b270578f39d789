"""`python -m lab.site`: the pages of the site, in build/site-pages; `make docs` builds the site from them.

A page links to other pages. A link to a file of this repository that is no page becomes its text, since the site has no sources. The
scoreboard is made of results as JSON: `compatibility*.json`, and `conformance*.json` in docs/results. The gallery is made of the cases in docs/findings.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.sources import ROOT
from statecheck.case import Case
from statecheck.report.scenario_timeline import LEGEND, block_tables, timeline_of
from statecheck.subject.loading import PROJECTS

PAGES = ROOT / "build/site-pages"
ROOT_PAGES = {"README.md": "index.md", "PROTOCOL.md": "PROTOCOL.md", "CHANGELOG.md": "CHANGELOG.md"}
"""Pages outside of docs, and where they are on the site: the README is the home page."""
FOUND_FIRST = {"tutorial.md", "verdicts.md", "faq.md", "install.md", "conformance.md", "expected-failures.md"}
"""Pages that the site's search names before long ones, in which each word stands more often."""
_BOOST = "---\nsearch:\n  boost: 4\n---\n\n"
RESULTS = {"vLLM": "compatibility.json", "SGLang": "compatibility-sglang.json"}
_ABOUT = {
    "vLLM": ("Functions, builders and kernels that are called by themselves", "compatibility.md"),
    "SGLang": ("Functions, kernels and scenarios of the engine", "compatibility.md#sglang"),
}
"""What the results are about, and the page that has all of them."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^( *)```", re.MULTILINE)
_STYLE = """\
.md-grid{max-width:76rem}
.md-typeset table:not([class]){display:block;overflow-x:auto}
.md-typeset .wrong{color:#fff;background:#b3261e;padding:0 .3em;border-radius:.2em}
.md-typeset table:not([class]) th{min-width:2.5rem}
.share{display:flex;width:7rem;height:.8rem;border-radius:.2rem;overflow:hidden;background:var(--md-default-fg-color--lightest)}
.share i{height:100%}
.passed{background:#2e7d4f}.known{background:#c58a1b}.new{background:#b3261e}
"""
_WRONG = re.compile(r"\*\*✗ ([^*|]+)\*\*")
_MOMENTS = 4
"""The tables of a case that the gallery shows: those before it went wrong, and the one where it did."""


def site_path(path: str) -> str:
    """Where a page of the repository is on the site; "" for a file that is none."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") and path.endswith(".md") else ""


def with_links_of_the_site(text: str, path: str) -> str:
    """A page's text; its links to other pages lead to where these are, and links to other files are text alone."""

    def changed(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        name, hash_, anchor = target.partition("#")
        if image or "://" in target or not name:
            return found[0]
        there = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(path), name)))
        if not there:
            return label
        here = posixpath.dirname(site_path(path)) or "."
        return f"[{label}]({posixpath.relpath(there, here)}{hash_}{anchor})"

    pieces = _FENCE.split(text)
    # Outside of blocks of code: `split` leaves the indentation of each fence between the pieces.
    for at in range(0, len(pieces), 4):
        pieces[at] = _LINK.sub(changed, pieces[at])
    return "".join(piece if at % 2 == 0 else f"{piece}```" for at, piece in enumerate(pieces))


def scoreboard() -> str:
    """The page of results by engine and release."""
    lines = [
        "# Scoreboard",
        "",
        "What was verified in each release, what differs, and since when. *Passed* counts properties of which an example was compared and none failed; a *known* defect is",
        "declared and described. A bar has the shares of the applicable properties: green passed, yellow known, red new. Reports stand under [findings](findings/README.md).",
        "",
    ]
    lines += _conformance(sorted((ROOT / "docs/results").glob("conformance*.json")))
    for engine, file in RESULTS.items():
        lines += _of_engine(engine, json.loads((ROOT / file).read_text(encoding="utf-8")), _date_of(file))
    return "\n".join(lines) + "\n"


def _of_engine(engine: str, data: Mapping[str, Any], date: str) -> Iterator[str]:
    defects = {one["id"]: one for one in data["known"]}
    about, page = _ABOUT[engine]
    yield from (
        f"## {engine} by release",
        "",
        f"{about}, each cell on [a page of its own]({page}). Results in `{RESULTS[engine]}`, last changed on {date}.",
        "",
    )
    yield from (
        "| release | device | shares | passed | known | new | not applicable | examples |",
        "|---|---|---|---|---|---|---|---|",
    )
    for release in reversed(data["releases"]):
        states = Counter(cell["state"] for cell in release["cells"].values())
        known, new = states.pop("known defect", 0), states.pop("new", 0) + states.pop("NEW", 0)
        bar = _bar({"passed": states["passed"], "known": known, "new": new})
        row = (
            release["release"],
            release["device"],
            bar,
            states["passed"],
            known,
            new,
            states["not applicable"],
        )
        yield f"| {' | '.join(map(str, row))} | {release['examples']:,} |"
    yield from ("", "| what differs | releases that show it |", "|---|---|")
    for name, first, last in _ranges(data["releases"]):
        yield f"| {_linked(defects.get(name, {'title': name}))} | {first if first == last else f'{first} to {last}'} |"
    yield ""


def _bar(counts: Mapping[str, int]) -> str:
    """Shares as a bar, with the shares in words for readers of the page's text."""
    whole = sum(counts.values()) or 1
    shares = {name: 100 * count / whole for name, count in counts.items() if count}
    words = ", ".join(f"{share:.0f} % {name}" for name, share in shares.items())
    pieces = "".join(f'<i class="{name}" style="width:{share:.1f}%"></i>' for name, share in shares.items())
    return f'<span class="share" title="{words}" role="img" aria-label="{words}">{pieces}</span>'


def gallery() -> str:
    """The page of block tables over time, of each case of a finding that is a scenario of vLLM's engine."""
    lines = [
        "# Gallery",
        "",
        "Wrong states of vLLM's own engine, as block tables over time: the last steps of the smallest scenario of each [finding](findings/README.md).",
        "",
        LEGEND,
        "",
    ]
    for path in sorted((ROOT / "docs/findings").glob("*.json")):
        timeline = timeline_of(Case.from_json(path.read_text(encoding="utf-8")))
        page = path.with_suffix(".md")
        if timeline is None or timeline.finding is None or not page.is_file():
            continue
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines += [f"## {title}", "", f"[The finding](findings/{page.name})", ""]
        moments = {
            number: text
            for number, text in block_tables(timeline).items()
            if number <= timeline.finding.moment
        }
        for table in [*moments.values()][-_MOMENTS:]:
            lines += [_WRONG.sub(r"**✗ \1**{.wrong}", table), ""]
    return "\n".join(lines)


def _ranges(releases: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Each defect with the first and the last release in which it showed, the latest first."""
    shown: dict[str, list[int]] = {}
    for at, release in enumerate(releases):
        for name, status in release["statuses"].items():
            if status == "showed":
                shown.setdefault(name, []).append(at)
    for name, places in sorted(shown.items(), key=lambda item: (-item[1][-1], item[0])):
        # Without what stands behind the number, such as the name of a GPU.
        first, last = (str(releases[places[at]]["release"]).partition(" ")[0] for at in (0, -1))
        yield name, first, last


def _linked(defect: Mapping[str, Any]) -> str:
    title, link = str(defect["title"]).replace("|", "\\|"), str(defect.get("link", ""))
    return f"[{title}]({link.removeprefix('docs/')})" if link else title


def _conformance(files: Sequence[Path]) -> Iterator[str]:
    """The newest releases: the fixed examples of a profile on each."""
    yield from (
        "## The newest releases",
        "",
        "The fixed examples of [a profile](conformance.md): *engines* are scenarios in the release's own scheduler, *sequences* are those of a library with caches, *recurrences* are kernels.",
        "*Others* are not applicable, or not tested.",
        "",
        "| release | profile | shares | passed | known | new | others | date |",
        "|---|---|---|---|---|---|---|---|",
    )
    for file in files:
        run = json.loads(file.read_text(encoding="utf-8"))
        if run["subject"] not in PROJECTS:
            continue
        counts = Counter(run["counts"])
        states = {name: counts.pop(name, 0) for name in ("passed", "known", "FALSIFIED")}
        row = (
            f"{PROJECTS[run['subject']].name} {run['release']}",
            f"{run['profile']} {run['profile_version']}",
            _bar({"passed": states["passed"], "known": states["known"], "new": states["FALSIFIED"]}),
            *states.values(),
            counts.total(),
            run["date"][:10],
        )
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def _date_of(file: str) -> str:
    line = ["git", "log", "-1", "--format=%as", "--", file]
    found = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "an unknown date"


def write_pages(folder: Path) -> None:
    """Make the folder anew, with all pages and their pictures."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in (*ROOT_PAGES, *(one.relative_to(ROOT).as_posix() for one in (ROOT / "docs").rglob("*.md"))):
        target = folder / site_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = with_links_of_the_site((ROOT / path).read_text(encoding="utf-8"), path)
        target.write_text(_BOOST * (site_path(path) in FOUND_FIRST) + text, encoding="utf-8")
    for picture in (ROOT / "docs").rglob("*.svg"):
        target = folder / picture.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)
    for name, text in (("scoreboard.md", scoreboard()), ("gallery.md", gallery())):
        (folder / name).write_text(with_links_of_the_site(text, f"docs/{name}"), encoding="utf-8")
    (folder / "site.css").write_text(_STYLE, encoding="utf-8")


def main() -> int:
    """Write the pages."""
    write_pages(PAGES)
    print(f"pages: {PAGES.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
