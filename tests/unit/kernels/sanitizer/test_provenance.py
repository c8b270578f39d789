"""An integer that is the address of a registered tensor points into the tensor, wherever it stands among others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from statecheck.kernels.sanitizer.views import UNKNOWN, Provenance, view_of

TENSORS = [torch.zeros(8, dtype=torch.int32) for _ in range(3)]


@pytest.fixture
def starts() -> list[int]:
    """The addresses of three tensors, in order."""
    return sorted(tensor.data_ptr() for tensor in TENSORS)


@pytest.fixture
def provenance() -> Provenance:
    found = Provenance()
    for number, tensor in enumerate(TENSORS):
        found.register(view_of(tensor, f"t{number}"))
    return found


def test_addresses_among_others_are_found(provenance: Provenance, starts: list[int]) -> None:
    low, middle, high = starts
    numbers = provenance.among(np.array([low, high + 1, middle, high, low - 1], np.int64))
    assert numbers is not None
    views = [
        provenance.origins[origin][0].base if origin != UNKNOWN else UNKNOWN for origin in numbers.tolist()
    ]
    assert views == [low, UNKNOWN, middle, high, UNKNOWN]


def test_a_number_that_is_no_address_of_a_tensor_has_no_origin(
    provenance: Provenance, starts: list[int]
) -> None:
    for addresses in ([], [starts[0] - 1, 3], [starts[-1] + 1], [starts[0] + 1]):
        assert provenance.among(np.array(addresses, np.int64)) is None
    assert Provenance().among(np.array(starts, np.int64)) is None
