"""Tensors that are on another device than they should be, without a GPU: those of torch's device "meta" have no memory."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

checks: Any = import_module("impl.checks")
host: Any = import_module("impl.builders.host")
runner: Any = import_module("impl.align.runner")
CPU = torch.device("cpu")
ELSEWHERE = torch.ones(2, dtype=torch.int32, device="meta")


def test_a_tensor_elsewhere_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^x = .* on meta, but should be an int32 or int64 .* on the CPU "):
        checks.host_rows("x", ELSEWHERE, 2, "f")
    with pytest.raises(ValueError, match=r"^x = .* on meta, but should be .* with 2 rows on cpu "):
        checks.device_rows("x", ELSEWHERE, 2, CPU, "f")
    with pytest.raises(ValueError, match=r"^num_accepted_tokens = .* on meta, .* at least 2 entries on cpu "):
        host.check_counts(ELSEWHERE, 2, CPU, "f")
    with pytest.raises(
        ValueError, match=r"^num_accepted_tokens_cpu_tensor = .* on meta, .* tensor on the CPU "
    ):
        runner._check_host_counts(ELSEWHERE, 2, "f")


@pytest.mark.parametrize("shape", [(3,), (2, 1, 1), (3, 1), ()])
def test_a_table_has_two_dimensions_and_a_row_for_each_row(shape: tuple[int, ...]) -> None:
    table = torch.ones(2, 1, dtype=torch.int32)
    assert checks.device_rows("table", table, 2, CPU, "f", ndim=2) is table
    with pytest.raises(
        ValueError, match=r"^table = .*, but should be .* of 2 dimensions with 2 rows on cpu "
    ):
        checks.device_rows("table", torch.ones(shape, dtype=torch.int32), 2, CPU, "f", ndim=2)
