"""`lab.site`: the pages of the site and its scoreboard."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.site import PAGES, gallery, scoreboard, site_path, with_links_of_the_site, write_pages
from lab.sources import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
GENERATED = {"scoreboard.md", "gallery.md"}


@pytest.mark.parametrize(
    ("path", "text", "on_the_site"),
    [
        ("docs/conformance.md", "[engines](engine-adapters.md#calls)", "[engines](engine-adapters.md#calls)"),
        ("docs/conformance.md", "[the protocol](../PROTOCOL.md)", "[the protocol](PROTOCOL.md)"),
        ("README.md", "[rules](docs/rules.md)", "[rules](rules.md)"),
        ("docs/findings/README.md", "[a file](../../subjects/vllm_known.toml)", "a file"),
        ("docs/findings/triage.md", "[home](../../README.md)", "[home](../index.md)"),
        ("docs/faq.md", "[out](https://example.org/a.md)", "[out](https://example.org/a.md)"),
        ("docs/faq.md", "```\n[a](../setup.py)\n```\n[b](../setup.py)", "```\n[a](../setup.py)\n```\nb"),
    ],
)
def test_links_lead_to_pages_of_the_site_or_become_text(path: str, text: str, on_the_site: str) -> None:
    assert with_links_of_the_site(text, path) == on_the_site


def test_files_that_are_no_pages_have_no_place_on_the_site() -> None:
    assert site_path("docs/rules.md") == "rules.md"
    assert not site_path("lab/site.py")
    assert not site_path("corpus/README.md")


def test_each_page_of_the_navigation_exists_and_each_page_of_docs_is_in_it() -> None:
    named = set(re.findall(r"^ +- [^:\n]+: (\S+\.md)$", CONFIGURATION, re.MULTILINE))
    folder = ROOT / "docs"
    pages = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    outside = {site_path(name) for name in ("README.md", "PROTOCOL.md", "CHANGELOG.md")}
    assert named - pages - outside == GENERATED
    # The page of findings leads to the others.
    assert {page for page in pages - named if not page.startswith("findings/")} == set()


def test_the_scoreboard_has_each_release_with_what_differs_and_since_when() -> None:
    page = scoreboard()
    assert "| 0.33.0 | cpu | " in page
    assert "| 0.5.23 | cpu | " in page
    assert 'title="98 % passed, 2 % known"' in page
    assert re.search(r"^\| \[.+\]\(\S+\) \| 0\.\d+\.\d+ to 0\.\d+\.\d+ \|$", page, re.MULTILINE)


def test_the_gallery_has_the_tables_of_findings_with_the_wrong_cells_marked() -> None:
    page = gallery()
    assert "[The finding](findings/sits-a-step-out.md)" in page
    sections = page.split("\n## ")[1:]
    assert len(sections) > 3
    assert [section for section in sections if "**{.wrong}" not in section] == []


def test_the_pages_are_made_anew(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/old.md").write_text("old", encoding="utf-8")
    write_pages(tmp_path / "site")
    assert not (tmp_path / "site/old.md").exists()
    assert (tmp_path / "site/scoreboard.md").is_file()


def test_each_picture_that_a_page_shows_is_on_the_site(tmp_path: Path) -> None:
    write_pages(tmp_path)
    pages = [path for path in tmp_path.rglob("*.md") if path != tmp_path / "index.md"]
    shown = {
        (path.parent / name).resolve()
        for path in pages
        for name in re.findall(r"!\[[^\]]*\]\(([^():\s]+)\)", path.read_text(encoding="utf-8"))
    }
    assert shown
    assert {path for path in shown if not path.is_file()} == set()


@pytest.mark.slow
def test_the_site_builds_without_a_dead_link() -> None:
    tools = ROOT / "build/site-tools/bin/python"
    python = str(tools) if tools.exists() else sys.executable
    if not tools.exists() and find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: `make docs` installs it")
    write_pages(PAGES)
    line = [python, "-m", "mkdocs", "build", "--strict", "--quiet"]
    found = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
