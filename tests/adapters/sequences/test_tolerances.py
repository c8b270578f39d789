"""The tolerance of a model follows what fresh runs and runs in pieces differ by, and is never larger than the port's."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest

from subjects.sequences.library import Local
from subjects.sequences.protocol import PortModule
from subjects.sequences.reference import MOST_EXACT, TIMES_NOISE, Reference
from tests.adapters.sequences import reference_port

PORT = 0.01


def _tolerance(noise: float) -> float:
    """Of a port whose logits behind continued sequences differ by this share of their scale."""
    module = ModuleType("noisy_port")
    vars(module).update(vars(reference_port))

    def extend(
        context: reference_port.SmallContext, rows: Sequence[tuple[int, Sequence[int]]]
    ) -> list[list[float]]:
        goes_on = any(number in context.states for number, _ in rows)
        logits = reference_port.extend(context, rows)
        return [_moved(row, noise if goes_on else 0.0) for row in logits]

    module.extend = extend  # type: ignore[attr-defined]
    reference = Reference(Local(PortModule.of(module)), "small", 0, {})
    reference.require_verified()
    return reference.tolerance


def _moved(logits: list[float], share: float) -> list[float]:
    mean = sum(logits) / len(logits)
    unit = max(abs(one - mean) for one in logits)
    return [logits[0] + share * unit, *logits[1:]]


@pytest.mark.parametrize(
    ("noise", "tolerance"),
    [
        (0.0, PORT / MOST_EXACT),
        (4e-4, TIMES_NOISE * 4e-4),
        (0.002, PORT),
        # A defect, which says nothing of rounding.
        (0.5, PORT / MOST_EXACT),
    ],
)
def test_the_tolerance_is_a_multiple_of_the_noise_within_bounds(noise: float, tolerance: float) -> None:
    assert _tolerance(noise) == pytest.approx(tolerance, rel=0.01)
