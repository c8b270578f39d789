"""Every documented symbol takes the documented arguments, by position and by keyword; what we add has a default and stands last."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.docs.symbols import MANIFEST
from subjects import load

IMPL = load("impl")
CONTEXT = "MambaSpecDecodeGPUContext"
DOCUMENTED: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("documented_signatures.toml").read_text(encoding="utf-8")
)
NOT_CALLED = {
    "AttentionCGSupport",
    "CONV_BLOCK_M",
    "CUDAGraphMode",
    "CausalConv1dNums",
    "ConvStateLayoutType",
    "FLA_CHUNK_SIZE",
    "MambaCacheMode",
    "MambaSpec.page_size_bytes",
    "MambaStateCopyFunc",
    "NULL_BLOCK_ID",
    "PAD_SLOT_ID",
}
"""Constants, types and the property, which take no arguments."""


def documented(name: str) -> Iterator[inspect.Parameter]:
    """The parameters of the table's row."""
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for word in DOCUMENTED[name].split():
        parameter, _, default = word.partition("=")
        if word == "**":
            yield inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
        elif word.startswith("*"):
            kind = inspect.Parameter.KEYWORD_ONLY
            if parameter != "*":
                yield inspect.Parameter(parameter[1:], inspect.Parameter.VAR_POSITIONAL)
        else:
            value = eval(default, {}) if default else inspect.Parameter.empty  # noqa: S307 - a literal above
            yield inspect.Parameter(parameter, kind, default=value)


@cache
def signature_of(name: str) -> inspect.Signature:
    """The signature of impl's symbol, without `self`; of a kernel, that of the function that is compiled."""
    if name == "_copy_mamba_state_block":
        found = importlib.import_module("impl.align.kernels.states")._copy_mamba_state_block
    else:
        found = IMPL.resolve(name)
    function: Callable[..., Any] = getattr(found, "fn", found)
    parameters = [param for param in inspect.signature(function).parameters.values() if param.name != "self"]
    return inspect.Signature([param.replace(annotation=inspect.Parameter.empty) for param in parameters])


def test_the_table_has_every_documented_symbol() -> None:
    symbols = {symbol.name for symbol in MANIFEST if symbol.document != "own"}
    assert symbols - set(DOCUMENTED) == NOT_CALLED
    assert set(DOCUMENTED) <= symbols


@pytest.mark.parametrize("name", DOCUMENTED)
def test_parameters_are_the_documented_ones_in_their_order_with_their_defaults(name: str) -> None:
    wanted = list(documented(name))
    known = {param.name for param in wanted}
    parameters = [param for param in signature_of(name).parameters.values() if param.name in known]
    assert parameters == wanted


@pytest.mark.parametrize("name", DOCUMENTED)
def test_parameters_that_we_add_have_defaults_and_stand_last(name: str) -> None:
    known = [param.name for param in documented(name)]
    added = [param for param in signature_of(name).parameters.values() if param.name not in known]
    assert [param.name for param in added if param.default is inspect.Parameter.empty] == []
    positional = [
        param.name
        for param in signature_of(name).parameters.values()
        if param.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    documented_ones = [name_ for name_ in positional if name_ in known]
    assert positional[: len(documented_ones)] == documented_ones


def fields_of_a_context(entries: int = 2) -> dict[str, Any]:
    """Document 4's required fields, for states that hold nothing."""
    int32, int64 = (partial(torch.zeros, entries, dtype=dtype) for dtype in (torch.int32, torch.int64))
    return {
        "state_base_addrs": int64(),
        "state_block_strides": int64(),
        "state_elem_sizes": int32(),
        "state_inner_sizes": int64(),
        "state_conv_widths": int32(),
        "state_group_indices": int32(),
        "state_dim_row_count": int32(),
        "state_dim_row_stride": int64(),
        "block_size": 4,
        "num_layers": 1,
        "num_state_types": entries,
        "mamba_group_ids": [0],
        "num_groups": 1,
        "num_accepted_tokens_out": int32(),
        "block_table_ptrs": torch.zeros(1, dtype=torch.int64),
    }


@pytest.mark.parametrize("by_position", [False, True])
def test_a_context_is_made_of_the_documented_fields_alone(by_position: bool) -> None:
    fields, make = fields_of_a_context(), IMPL.resolve(CONTEXT)
    context = make(*fields.values()) if by_position else make(**fields)
    assert all(getattr(context, name) is value for name, value in fields.items())
    assert context.counters.tolist() == [0, 0]
    assert context.tiles.shape == (0, 8)
    assert not context.is_initialized


@pytest.mark.parametrize("layout", ["SD", "DS"])
def test_a_context_of_filled_fields_copies_as_one_that_was_initialized(layout: str) -> None:
    """A conv state of three rows and a temporal state; block 1 goes to column 1, whose block is 2."""
    table = torch.tensor([[1, 2]], dtype=torch.int32)
    conv = torch.arange(3 * 6, dtype=torch.uint8).view(3, *((3, 2) if layout == "SD" else (2, 3)))
    temporal = torch.arange(3 * 5, dtype=torch.int32).view(3, 5)
    fields = fields_of_a_context() | {
        "state_base_addrs": torch.tensor([conv.data_ptr(), temporal.data_ptr()]),
        "state_block_strides": torch.tensor([6, 20]),
        "state_elem_sizes": torch.tensor([1, 4], dtype=torch.int32),
        "state_inner_sizes": torch.tensor([2 if layout == "SD" else 1, 5]),
        "state_conv_widths": torch.tensor([3, 0], dtype=torch.int32),
        "block_table_ptrs": torch.tensor([table.data_ptr()]),
        "block_table_stride_req": 2,
        "is_initialized": True,
    }
    if layout == "DS":
        fields["state_dim_row_count"] = torch.tensor([2, 0], dtype=torch.int32)
        fields["state_dim_row_stride"] = torch.tensor([3, 0])
    context = IMPL.resolve(CONTEXT)(**fields)
    ones, zero = torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    context.run_fused_precopy(1, ones, zero, zero, zero)
    assert torch.equal(conv[2], conv[1])
    assert torch.equal(temporal[2], temporal[1])
    if layout == "DS":
        shifted = conv[1, :, 1:].clone()
        table[0, 1] = 2
        context.run_fused_precopy(1, ones, zero, ones, zero)
        assert torch.equal(conv[2, :, :2], shifted)
