"""Citations of docs/rules.md and links between pages lead somewhere, or are complained about with file and line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from properties.harness.docs import citations
from properties.harness.expectations.symbols import MANIFEST, Symbol

RULES = """
# Rules
## Document 1: batches
`build` makes metadata.
## Document 4: copies
## Contract 1: helpers
### Contract 1.8: lists of pointers
`batch_memcpy` copies, `CpuGpuBuffer.copy_to_gpu` uploads.
### Contract 1.10: chunks
## Contract 2: steps
- **I4 (slots).** Where states are.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in citations.FOLDERS:
        (tmp_path / folder).mkdir()
    (tmp_path / citations.RULES).write_text(RULES, encoding="utf-8")
    return tmp_path


def found(root: Path, text: str, path: str = "oracle/a.py") -> list[str]:
    (root / path).write_text(text, encoding="utf-8")
    return citations.complaints(root)


@pytest.mark.parametrize(
    "text",
    [
        f"Source: document {1}.",
        f"Documents {1} and {4}, and why",
        f"Source: contract {1.8}, `batch_memcpy`.",
        f"contract 1.{10}; document {4}, 1 layer",
        f"contract {1.8}, `CpuGpuBuffer.copy_to_gpu` and `batch_memcpy`",
        f"contracts {1.8} and 1.{10}",
        f"contracts {1} to {2}",
        f"Source: document\n    {4}.",
        f"law I{4}",
        f"| contract {1.8} | a cell |",
        "an import contract, 3 documents, a document",
    ],
)
def test_a_citation_of_a_rule_that_is_there_is_fine(root: Path, text: str) -> None:
    assert found(root, text) == []


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f"Source: document {7}.", f"document {7}"),
        (f"Documents {1} and {2}, and why", f"document {2}"),
        (f"documents {1}, {3} and {4}", f"document {3}"),
        (f"contract {1.9}", f"contract {1.9}"),
        (f"# of contract\n# {1.1}.", f"contract {1.1}"),
        (f"contract 1.{100}", f"contract 1.{100}"),
        (f"contracts {1.8}, 1.{10}, {2.3}", f"contract {2.3}"),
        (f"contracts {1} to {3}", f"contract {3}"),
        (f"I{4} and I{9}", f"I{9}"),
    ],
)
def test_a_citation_of_no_rule_is_told_with_file_and_line(root: Path, text: str, cited: str) -> None:
    (complaint,) = found(root, f"first\n{text}\n")
    assert complaint == f"oracle/a.py:2: {cited}, but {citations.RULES} has no such rule"


def test_each_rule_of_a_range_is_cited(root: Path) -> None:
    assert [line.partition(", ")[0] for line in found(root, f"documents {1} to {4}")] == [
        f"oracle/a.py:1: document {2}",
        f"oracle/a.py:1: document {3}",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"document {4}, `build`", "build"),
        (f"document {1}, GDNAttentionMetadata.", "GDNAttentionMetadata"),
        (f"contract {1.8},\n    `CpuGpuBuffer.copy_to_cpu`", "CpuGpuBuffer.copy_to_cpu"),
        (f"contract {1.8}, `batch_memcpy` and `do_mamba_copy_block`", "do_mamba_copy_block"),
        (f"contract {2}, I{1}", f"I{1}"),
    ],
)
def test_a_name_that_the_rule_does_not_speak_of_is_told(root: Path, text: str, name: str) -> None:
    assert any(
        line.endswith(f", but {citations.RULES} does not name `{name}` there") for line in found(root, text)
    )


def test_every_room_and_every_page_is_read(root: Path) -> None:
    for path in (*(f"{folder}/a.py" for folder in citations.FOLDERS), "README.md"):
        assert found(root, f"document {7}", path) != [], path
        (root / path).unlink()


def test_every_folder_of_the_repository_is_read() -> None:
    found = subprocess.run(
        ["git", "ls-files"], cwd=citations.ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"no git checkout: {found.stderr.strip()}")
    tops = {line.partition("/")[0] for line in found.stdout.splitlines() if "/" in line}
    assert {top for top in tops if top[0] != "."} == set(citations.FOLDERS)


def test_a_folder_that_is_not_there_is_told(root: Path) -> None:
    (root / "impl").rmdir()
    assert citations.complaints(root) == ["impl: missing, but its citations should be checked"]


def test_rules_that_are_not_there_are_told(root: Path) -> None:
    (root / citations.RULES).unlink()
    assert citations.complaints(root) == [
        f"{citations.RULES}: missing, but should have the rules that are cited"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[rules](docs/rules.md)",
        "[rule](docs/rules.md#contract-18-lists-of-pointers)",
        "## Here and there\n[above](#here-and-there)",
        "## `Code`, here\n[above](#code-here)",
        "## Twice\n## Twice\n[second](#twice-1)",
        "[folder](oracle)",
        "[elsewhere](https://example.org/a.md#b) and [mail](mailto:a@example.org)",
        "```\nx = [a](nowhere.md)\n```",
        "`kernel[grid](nowhere)`",
    ],
)
def test_a_link_that_leads_somewhere_is_fine(root: Path, text: str) -> None:
    assert found(root, text, "README.md") == []


@pytest.mark.parametrize(
    "target",
    [
        "nowhere.md",
        "docs/nowhere.md",
        "docs/rules.md#contract-19",
        "#nowhere",
        "oracle/b.py#L3",
        "../outside.md",
    ],
)
def test_a_link_that_leads_nowhere_is_told_with_file_and_line(root: Path, target: str) -> None:
    complaints = found(root, f"# A page\n\n```\n# code\n```\n[it]({target})", "README.md")
    assert complaints == [f"README.md:6: ]({target}), but there is no such place"]


def test_links_are_relative_to_their_page(root: Path) -> None:
    assert found(root, "[rules](rules.md) and [readme](../README.md)", "docs/b.md") == [
        "docs/b.md:1: ](../README.md), but there is no such place"
    ]


def test_nothing_in_the_repository_leads_nowhere() -> None:
    assert citations.complaints() == []


def test_every_documented_symbol_is_named_where_its_rule_is() -> None:
    known, documented = citations.rules(), [symbol for symbol in MANIFEST if symbol.document != "own"]
    assert [one.name for one in documented if not citations.names(known[_label(one)], one.name)] == []


def _label(symbol: Symbol) -> str:
    return symbol.document if "contract" in symbol.document else f"document {symbol.document}"
