"""Citations of docs/rules.md and links between pages lead somewhere, or are complained about with file and line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from statecheck.expectations.symbols import MANIFEST, Symbol
from tools.docs import citations

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


FINE = f"""
## Twice
## Twice
Source: document {1}. Documents {1} and {4}, contracts {1.8} and 1.{10}; document
    {4}, law I{4}, an import contract, 3 documents
contract {1.8}, `CpuGpuBuffer.copy_to_gpu` and `batch_memcpy`; contracts {1} to {2}
[rule](docs/rules.md#contract-18-lists-of-pointers) [folder](oracle) [second](#twice-1)
[elsewhere](https://example.org/a.md#b) and [mail](mailto:a@example.org)
```
x = [a](nowhere.md)
```
`kernel[grid](nowhere)`
"""
NOWHERE = {
    f"documents {1}, {3} and {4}": f"document {3}, but {citations.RULES} has no such rule",
    f"contract 1.{100}": f"contract 1.{100}, but {citations.RULES} has no such rule",
    f"I{4} and I{9}": f"I{9}, but {citations.RULES} has no such rule",
    f"document {1}, GDNAttentionMetadata.": f"but {citations.RULES} does not name `GDNAttentionMetadata` there",
    f"contract {1.8},\n    `CpuGpuBuffer.copy_to_cpu`": f"but {citations.RULES} does not name `CpuGpuBuffer.copy_to_cpu` there",
    "[it](nowhere.md)": "](nowhere.md), but there is no such place",
    "[it](docs/rules.md#contract-19)": "](docs/rules.md#contract-19), but there is no such place",
}


def test_what_leads_somewhere_is_fine(root: Path) -> None:
    assert found(root, FINE, "README.md") == []
    assert found(root, "[rules](rules.md)", "docs/b.md") == []


@pytest.mark.parametrize(("text", "complaint"), NOWHERE.items())
def test_what_leads_nowhere_is_told_with_file_and_line(root: Path, text: str, complaint: str) -> None:
    (line,) = found(root, f"first\n{text}\n", "README.md")
    assert line.startswith("README.md:2: ")
    assert line.endswith(complaint)


def test_every_folder_of_the_repository_is_read() -> None:
    found = subprocess.run(
        ["git", "ls-files"], cwd=citations.ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"no git checkout: {found.stderr.strip()}")
    tops = {line.partition("/")[0] for line in found.stdout.splitlines() if "/" in line}
    assert {top for top in tops if top[0] != "."} == set(citations.FOLDERS)


def test_every_documented_symbol_is_named_where_its_rule_is() -> None:
    known, documented = citations.rules(), [symbol for symbol in MANIFEST if symbol.document != "own"]
    assert [one.name for one in documented if not citations.names(known[_label(one)], one.name)] == []


def _label(symbol: Symbol) -> str:
    return symbol.document if "contract" in symbol.document else f"document {symbol.document}"
