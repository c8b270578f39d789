"""What `impl` requires of the vectors that a launch is handed, in every step anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from properties.subjects import load


def test_a_vector_whose_strides_changed_in_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launches = load("impl").module.align.launch
    monkeypatch.setattr(launches, "BoundLaunch", lambda *arguments: lambda values, given: None)
    launch: Any = launches.VectorLaunch(
        None, torch.device("cpu"), "postprocess", {"counts_ptr": "counts"}, {}
    )
    counts = torch.arange(8, dtype=torch.int32)[:4]
    launch(4, counts)
    counts.as_strided_((4,), (2,))
    with pytest.raises(ValueError, match=r"counts = .*, but should be a contiguous int32 vector"):
        launch(4, counts)
