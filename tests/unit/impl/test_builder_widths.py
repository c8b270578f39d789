"""Batches whose vectors and tables have 64 bits: the same numbers as of 32 bits."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.execution.in_process import InProcess
from subjects import load

IMPL = load("impl")
DECODES = StepRequest(1, 4), StepRequest(1, 3), StepRequest(1, 9)
DRAFTED = StepRequest(3, 4, drafts=2, accepted=2), StepRequest(2, 7, drafts=1, accepted=3)
PROMPTS = StepRequest(5, 4, prefilling=True), StepRequest(9, 0, prefilling=True)
STEPS = {
    "decodes": BuildCall(DECODES),
    "decodes and padding": BuildCall(DECODES, padded_rows=2),
    "prompts": BuildCall(PROMPTS, padded_rows=1),
    "decodes and prompts": BuildCall((*DECODES, *PROMPTS)),
    "drafts": BuildCall(DRAFTED, padded_rows=1),
    "drafts and prompts": BuildCall((*DRAFTED, *PROMPTS), padded_rows=1),
    "a prompt between drafts": BuildCall((DRAFTED[0], PROMPTS[0], DRAFTED[1])),
}
ALWAYS = {"seq_lens", "state_indices_tensor_p"}
AS_GIVEN = ALWAYS | {
    "state_indices_tensor_d",
    "spec_state_indices_tensor",
    "non_spec_state_indices_tensor",
    "chunk_indices",
}
"""Fields that are views of what was given, or have its dtype, some of them unless a graph reads them."""


def is_as_given(name: str, metadata: Any, *, graphs: bool) -> bool:
    if name == "non_spec_query_start_loc":
        return metadata.num_spec_decodes == 0 and (not graphs or metadata.num_prefills > 0)
    return name in (ALWAYS if graphs and metadata.num_prefills == 0 else AS_GIVEN)


def widened(value: Any) -> Any:
    is_int32 = isinstance(value, torch.Tensor) and value.dtype == torch.int32
    return value.long() if is_int32 else value


def built(setup: BuilderSetup, step: BuildCall, *, wide: bool) -> Any:
    port = InProcess(IMPL, "cpu")
    made = {name: port.materialise(value) for name, value in setup.construct().keywords}
    call = step.build(setup)
    common = port.materialise(call.named["common_attn_metadata"])
    keywords = {name: port.materialise(value) for name, value in call.keywords}
    if wide:
        for name, value in list(vars(common).items()):
            setattr(common, name, widened(value))
        keywords = {name: widened(value) for name, value in keywords.items()}
    return IMPL.resolve(setup.builder)(**made).build(0, common, **keywords)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("mode", ["none", "align", "all"])
@pytest.mark.parametrize("kind", ["mamba1", "mamba2", "gdn"])
@pytest.mark.parametrize("name", STEPS)
def test_metadata_of_64_bits_have_the_numbers_of_32_bits(
    name: str, kind: str, mode: str, graphs: bool
) -> None:
    drafted = any(row.drafts > 0 for row in STEPS[name].requests)
    if (kind == "gdn" and mode == "all") or (kind == "mamba1" and drafted):
        pytest.skip("no such builder")
    if kind != "gdn" and name == "a prompt between drafts":
        pytest.skip("not in the runner's order")
    setup = BuilderSetup(kind, mode, num_spec=2 if drafted else 0, full_cudagraphs=graphs, max_model_len=40)
    narrow, wide = (built(setup, STEPS[name], wide=wide) for wide in (False, True))
    for field in fields(narrow):
        value, other = getattr(narrow, field.name), getattr(wide, field.name)
        if not isinstance(value, torch.Tensor):
            assert isinstance(value, dict) or value == other, field.name
            continue
        assert value.tolist() == other.tolist(), field.name
        expected = torch.int64 if is_as_given(field.name, narrow, graphs=graphs) else value.dtype
        assert other.dtype == expected, field.name
