"""Inputs that the contract of vLLM's releases leaves out; skipped where vLLM is not installed, as in the environment of statecheck itself."""

from __future__ import annotations

import importlib

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here: run in an environment of a release")

import torch

from statecheck.case.values import call, int32
from statecheck.subject.subject import NotOffered
from subjects.vllm.outside import rounds_beyond_int32
from subjects.vllm.recurrences import Recurrences
from subjects.vllm.transfers import channels_first


@pytest.mark.parametrize(("size", "outside"), [(2**31 - 2**30, False), (2**31 - 2**30 + 1, True)])
def test_chunks_are_outside_where_rounding_up_leaves_int32(size: int, outside: bool) -> None:
    asked = call("prepare_chunk_offsets", cu_seqlens=int32((0, 2, 2 + 2**30)), chunk_size=size)
    assert rounds_beyond_int32(asked) is outside


@pytest.mark.parametrize("slots", [[1, 2], [1, 0]])
def test_decodes_beside_a_longer_row_are_not_offered_be_it_of_padding(slots: list[int]) -> None:
    """The shorter row would keep its old window: docs/findings/vllm-conv-update-of-short-rows.md."""
    starts = torch.tensor([0, 1, 3], dtype=torch.int32)
    states, weight = torch.zeros(3, 2, 1), torch.zeros(2, 2)
    rows = torch.tensor(slots, dtype=torch.int32)
    with pytest.raises(NotOffered, match="several lengths"):
        Recurrences.conv_update(torch.zeros(3, 2), weight, None, None, states, rows, starts, None)


def test_modules_that_are_imported_while_channels_come_first_keep_no_layout() -> None:
    """`from ... import` would keep a stand-in: layers that an engine runs later would read states the wrong way around."""
    utilities = importlib.import_module("vllm.model_executor.layers.mamba.mamba_utils")
    before = utilities.is_conv_state_dim_first
    with channels_first():
        imported = utilities.is_conv_state_dim_first
        assert imported()
    assert imported is before
    assert not imported()
