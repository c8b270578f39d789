"""The table of seeds of a port of sequences."""

from __future__ import annotations

import re

import pytest

from lab import sequence_seeds

PORT = "tests.adapters.sequences.reference_port"


def test_a_correct_port_has_no_new_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert sequence_seeds.main([PORT, "--seeds", "2", "--examples", "3"]) == 0
    _, _, small, _, all_, _, rate = capsys.readouterr().out.splitlines()
    model, examples, compared, declared, new = (cell.strip() for cell in small.strip("|").split("|"))
    assert (model, declared, new) == ("small", "", "0")
    assert int(examples) >= int(compared) > 20
    assert all_.startswith("| all |")
    assert "scenarios" in rate


def test_a_new_failure_is_named_and_is_the_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.adapters.sequences import reference_port

    monkeypatch.setattr(reference_port, "drop", lambda context, sequence: None)
    assert sequence_seeds.main([PORT, "--seeds", "1", "--examples", "20", "--models", "small"]) == 1
    assert re.search(
        r"sequences/drop: sequence \d has 0 tokens, but the library reports \d", capsys.readouterr().out
    )
