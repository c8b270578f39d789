"""The table of a port of sequences."""

from __future__ import annotations

import pytest

from lab import sequence_table


def test_a_correct_port_agrees_in_each_cell_that_it_offers(capsys: pytest.CaptureFixture[str]) -> None:
    sequence_table.main(["tests.adapters.sequences.reference_port", "--examples", "1"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("| model | pieces | batch | fork |")
    cells = [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in rows]
    # A model whose weights hide the state is not verified in any cell.
    assert all(set(row) <= {"= 1", "no", ""} or set(row) <= {"?", ""} for row in cells), rows
    assert any("= 1" in row for row in cells)
