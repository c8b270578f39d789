"""What Hypothesis keeps to itself does as we need it to."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.internal.conjecture.engine import ConjectureRunner

from properties.harness.execution.private.hypothesis import shrinking_again


def test_what_somebody_saved_before_it_was_shrunk_is_shrunk() -> None:
    database, found = InMemoryExampleDatabase(), list[int]()

    def search(*phases: Phase) -> int:
        @settings(database=database, phases=phases, max_examples=200, deadline=None)
        @given(st.integers())
        def small(number: int) -> None:
            found.append(number)
            assert number < 1000

        with pytest.raises(AssertionError):
            small()
        return found[-1]

    saved = search(Phase.generate)
    assert saved > 1000
    everything = (Phase.reuse, Phase.generate, Phase.shrink)
    assert search(*everything) == saved
    with shrinking_again():
        assert search(*everything) == 1000
    assert not hasattr(ConjectureRunner, "reused_previously_shrunk_test_case")
