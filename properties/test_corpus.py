"""Every saved case of the corpus runs again, before anything else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.campaign.corpus import Corpus, CorpusFile, replayed
from statecheck.execution.example import ExecutionContext

if TYPE_CHECKING:
    import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    entries = Corpus(Path(metafunc.config.getoption("--corpus"))).entries()
    metafunc.parametrize("entry", entries, ids=[entry.path.name for entry in entries])


def test_a_case_of_the_corpus_is_answered_by_the_rules(entry: CorpusFile, trial: ExecutionContext) -> None:
    # Not above: a campaign imports this module, too, and has no use for pytest.
    import pytest

    record, _ = replayed(entry, trial.subject, trial.port.device, trial.port)
    if record.verdict in ("NOT APPLICABLE", "NOT REPRODUCED"):
        pytest.skip(f"not applicable: {record.message}")
    if record.verdict == "KNOWN":
        pytest.xfail(f"known: {record.message}")
    if record.verdict != "FIXED":
        pytest.fail(f"{record.verdict}: {entry.path}: {record.message}", pytrace=False)
