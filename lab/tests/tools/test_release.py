"""The notes of a release are the entries of its version, and no others."""

from __future__ import annotations

import pytest

from lab.release import notes

CHANGELOG = "# Changes\n\n## Policy\n\n- a\n\n## 0.2.0 (unreleased)\n\n- new\n  and more\n\n## 0.1.0\n\n- old\n\n## 0.0.9\n"


@pytest.mark.parametrize(("version", "text"), [("0.2.0", "- new\n  and more\n"), ("0.1.0", "- old\n")])
def test_notes_are_the_entries_of_the_version(version: str, text: str) -> None:
    assert notes(CHANGELOG, version) == text


@pytest.mark.parametrize("version", ["0.3.0", "0.0.9", "0.1"])
def test_a_version_without_entries_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match=f"no entries of {version}, but should"):
        notes(CHANGELOG, version)
