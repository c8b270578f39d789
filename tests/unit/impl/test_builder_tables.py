"""Tables of another group, tables wider or narrower than the longest request takes, and counts longer than the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.execution.in_process import InProcess
from subjects import load

IMPL = load("impl")


def parts(setup: BuilderSetup, step: BuildCall) -> tuple[Any, Any, dict[str, Any]]:
    """A builder, the step's batch and the other arguments of `build`."""
    port = InProcess(IMPL, "cpu")
    made = {name: port.materialise(value) for name, value in setup.construct().keywords}
    call = step.build(setup)
    keywords = {name: port.materialise(value) for name, value in call.keywords}
    return IMPL.resolve(setup.builder)(**made), port.materialise(call.named["common_attn_metadata"]), keywords


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_in_mode_all_a_table_may_have_any_width(columns: int, graphs: bool) -> None:
    setup = BuilderSetup("mamba2", "all", num_spec=2, max_model_len=8, full_cudagraphs=graphs)
    step = BuildCall((StepRequest(1, 2), StepRequest(3, 1, drafts=2)))
    builder, common, keywords = parts(setup, step)
    common.block_table_tensor = torch.arange(1, 2 * columns + 1, dtype=torch.int32).view(2, columns)
    ids = builder.build(0, common, **keywords).state_indices_tensor_d
    width = builder.state_indices_tensor_d.size(1) if graphs else columns
    assert ids.shape == (2, width)
    both = min(width, columns)
    assert ids[:, :both].tolist() == common.block_table_tensor[:, :both].tolist()
    assert (ids[:, both:] == -1).all()


@pytest.mark.parametrize("kind", ["mamba2", "gdn"])
def test_a_later_batch_may_have_a_wider_table(kind: str) -> None:
    setup = BuilderSetup(kind, "align", block_size=2, max_model_len=4)
    builder, common, keywords = parts(setup, BuildCall((StepRequest(1, 1), StepRequest(1, 3))))
    builder.build(0, common, **keywords)
    wide = BuilderSetup(kind, "align", block_size=2, max_model_len=40)
    _, common, keywords = parts(wide, BuildCall((StepRequest(1, 37), StepRequest(1, 11))))
    found = builder.build(0, common, **keywords)
    ids = found.non_spec_state_indices_tensor if kind == "gdn" else found.state_indices_tensor_d[:, 0]
    table = common.block_table_tensor
    assert ids.tolist() == [int(table[0, 18]), int(table[1, 5])]


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("kind", ["mamba2", "gdn"])
def test_counts_may_go_on_behind_the_batch_and_stay_as_they_are(kind: str, graphs: bool) -> None:
    setup = BuilderSetup(kind, "align", num_spec=2, full_cudagraphs=graphs)
    rows = StepRequest(3, 4, drafts=2, accepted=2), StepRequest(2, 7, drafts=1, accepted=3)
    builder, common, keywords = parts(setup, BuildCall(rows, padded_rows=1))
    counts = keywords["num_accepted_tokens"] = torch.tensor([2, 3, 7, 8, 9], dtype=torch.int32)
    found = builder.build(0, common, **keywords).num_accepted_tokens
    assert found.tolist() == ([2, 3] if kind == "gdn" and not graphs else [2, 3, 1])
    assert counts.tolist() == [2, 3, 7, 8, 9]
