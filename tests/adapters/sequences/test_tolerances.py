"""The tolerance of a model follows what fresh runs and runs in pieces differ by, and is never larger than the port's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from statecheck.subject import adapted
from statecheck.subject.subject import NotOffered
from subjects.sequences.library import Local
from subjects.sequences.protocol import PortModule
from subjects.sequences.reference import MOST_EXACT, TIMES_NOISE, Reference
from tests.adapters.sequences import reference_port

PORT, ROUNDED = 0.01, 0.04


def _noisy(noise: float) -> ModuleType:
    """A port whose logits behind continued sequences differ by this share of their scale, with weights of 64 bits and of 16."""
    module = ModuleType("noisy_port")
    rounding = {"GIVEN_TO_REFERENCE": ("bits",), "TOLERANCES": {("bits", 16): ROUNDED}}
    vars(module).update(vars(reference_port) | rounding)

    def new(model: str, seed: int, *, bits: int = 64) -> reference_port.SmallContext:  # noqa: ARG001 - as documented
        return reference_port.new(model, seed)

    def extend(
        context: reference_port.SmallContext, rows: Sequence[tuple[int, Sequence[int]]]
    ) -> list[list[float]]:
        goes_on = any(number in context.states for number, _ in rows)
        logits = reference_port.extend(context, rows)
        return [_moved(row, noise if goes_on else 0.0) for row in logits]

    vars(module).update(new=new, extend=extend, features=lambda _: {"bits": (64, 16)})
    return module


def _tolerance(noise: float, **features: int) -> float:
    reference = Reference(Local(PortModule.of(_noisy(noise))), "small", 0, features)
    reference.require_verified()
    return reference.tolerance


def _moved(logits: list[float], share: float) -> list[float]:
    mean = sum(logits) / len(logits)
    unit = max(abs(logit - mean) for logit in logits)
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


@pytest.mark.parametrize("noise", [0.0, 0.0015, 0.5])
def test_features_that_round_have_the_tolerance_of_the_port_for_them(noise: float) -> None:
    assert _tolerance(noise, bits=16) == ROUNDED


def test_a_model_whose_roundings_leave_no_room_is_not_offered() -> None:
    with pytest.raises(NotOffered, match=r"small with bits = 16: controls differ by up to 0\.02 of"):
        _tolerance(0.02, bits=16)


def test_a_tolerance_of_a_feature_that_the_reference_lacks_is_refused() -> None:
    module = _noisy(0.0)
    module.GIVEN_TO_REFERENCE = ()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"^TOLERANCES = of 'bits', but should be of features in GIVEN_TO"):
        PortModule.of(module)


def _routed(
    moved: Callable[[int, Sequence[tuple[int, Sequence[int]]]], Sequence[float]], **names: Any
) -> Any:
    """A library whose logits of rows with a state move as far as `moved` says of the weights' seed and the rows."""
    module = ModuleType("routed_port")
    vars(module).update(vars(reference_port))
    seeds: dict[reference_port.SmallContext, int] = {}

    def new(model: str, seed: int) -> reference_port.SmallContext:
        context = reference_port.new(model, seed)
        seeds[context] = seed
        return context

    def extend(
        context: reference_port.SmallContext, rows: Sequence[tuple[int, Sequence[int]]]
    ) -> list[list[float]]:
        begun = set(context.states)
        logits = reference_port.extend(context, rows)
        far = moved(seeds[context], rows)
        return [
            _moved(row, by if number in begun else 0.0)
            for (number, _), row, by in zip(rows, logits, far, strict=True)
        ]

    vars(module).update(new=new, extend=extend, **names)
    return adapted(module).module.Sequences(model="small", seed=0, features={})


def _broken(wrong_seeds: Sequence[int], *, chooses_experts: bool = True) -> str:
    """The sentence about a continued sequence, restored over itself, whose logits jump with weights of these seeds."""
    library = _routed(
        lambda seed, rows: [0.4 if rows[0][1][-1] == 13 and seed in wrong_seeds else 0.0] * len(rows),
        chooses_experts=lambda _: chooses_experts,
    )
    library.extend(context=0, rows=[(0, [1, 2])], features={})
    library.save(context=0, sequence=0, name="saved 0")
    step = library.extend(context=0, rows=[(0, [13])], features={})
    library.load(context=0, sequence=0, name="saved 0")
    again = library.extend(context=0, rows=[(0, [5])], features={})
    assert again["broken"]["logits"] == "nothing"
    return str(step["broken"]["logits"])


def test_a_jump_with_the_weights_of_one_seed_alone_is_a_router_s() -> None:
    assert _broken([0]) == "nothing"


@pytest.mark.parametrize("seeds", [(0, 1), (0, 2), (0, 1, 2)])
def test_a_jump_with_other_weights_too_is_a_failure(seeds: Sequence[int]) -> None:
    assert "logits differ by 0.4" in _broken(seeds)


def test_a_jump_of_a_model_without_experts_is_a_failure() -> None:
    assert "logits differ by 0.4" in _broken([0], chooses_experts=False)


def test_a_tie_in_one_row_excuses_no_other_row() -> None:
    """Sequence 1 has a wrong state with any weights, sequence 0 a jump with one seed's."""
    library = _routed(
        lambda seed, rows: [{0: 0.9 if seed == 0 else 0.0, 1: 0.5}[number] for number, _ in rows],
        chooses_experts=lambda _: True,
    )
    library.extend(context=0, rows=[(0, [1, 2]), (1, [3])], features={})
    step = library.extend(context=0, rows=[(0, [5]), (1, [6])], features={})
    assert "logits differ by" in str(step["broken"]["logits"])
