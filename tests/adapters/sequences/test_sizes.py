"""Tiny sizes by the names of fields."""

from __future__ import annotations

import pytest

from subjects.sequences.sizes import tiny


@pytest.mark.parametrize(
    ("name", "size"),
    [("vocab_size", 64), ("mamba_d_state", 8), ("num_experts_per_token", 2), ("hidden_dropout", None)],
)
def test_a_field_that_is_a_size_is_tiny(name: str, size: int | None) -> None:
    assert tiny(name) == size


def test_widths_grow_together() -> None:
    assert tiny("hidden_size", scale=4) == 4 * (tiny("hidden_size") or 0)
    assert tiny("head_dim", scale=4) == tiny("head_dim")
