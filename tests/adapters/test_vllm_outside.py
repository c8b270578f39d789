"""Inputs that the contract of vLLM's releases leaves out; skipped where vLLM is not installed, as in the environment of statecheck itself."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: run in an environment of a release")

from statecheck.case.values import call, int32
from subjects.vllm.outside import rounds_beyond_int32


@pytest.mark.parametrize(("size", "outside"), [(2**31 - 2**30, False), (2**31 - 2**30 + 1, True)])
def test_chunks_are_outside_where_rounding_up_leaves_int32(size: int, outside: bool) -> None:
    asked = call("prepare_chunk_offsets", cu_seqlens=int32((0, 2, 2 + 2**30)), chunk_size=size)
    assert rounds_beyond_int32(asked) is outside
