"""The reasons of this repository are about mutants that there are."""

from __future__ import annotations

from pathlib import Path

from lab.mutants.operators import mutants_of
from lab.mutants.reasons import read_reasons, require_current

ROOT = Path(__file__).resolve().parents[3]
REASONS = ROOT / "lab" / "mutants" / "reasons.toml"


def test_no_reason_has_outlived_its_mutant() -> None:
    reasons = read_reasons(REASONS)
    files = {reason.file: (ROOT / reason.file).read_bytes() for reason in reasons}
    ids = {file: {mutant.id for mutant in mutants_of(file, content)} for file, content in files.items()}
    require_current(reasons, ids, {})
    assert ids
