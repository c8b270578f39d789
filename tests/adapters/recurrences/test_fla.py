"""The adapter of fla, on an operation in plain PyTorch with fla's arguments: states are gathered from slots and written back to them."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch

from examples import recurrences_port
from properties.strategies.recurrences import RECURRENT
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import Subject
from subjects.plain import adapted

LAWS = ("recurrence", "alone", "pieces", "padding")


def fused_recurrent_simple_gla(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    g_gamma: Any,
    scale: float,
    initial_state: Any,
    cu_seqlens: Any,
    **rest: Any,
) -> tuple[Any, Any]:
    def turned(states: Any) -> Any:
        return states if rest["state_v_first"] else states.transpose(-1, -2)

    after = turned(initial_state).clone()
    slots = torch.arange(len(after), dtype=torch.int32)
    gates = g[0] if g is not None else None if g_gamma is None else g_gamma.expand(q.shape[1], -1)
    out = recurrences_port.linear_recurrent(q[0], k[0], v[0], gates, scale, after, slots, cu_seqlens, None)
    return out[None], turned(after)


@pytest.fixture
def fla(monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    """The adapter, of a library that has one operation."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.6.0")
    for name in ("fla", "fla.utils", "fla.utils.hardware", "fla.ops", "fla.ops.simple_gla"):
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    vars(sys.modules["fla.ops.simple_gla"])["fused_recurrent_simple_gla"] = fused_recurrent_simple_gla
    monkeypatch.delitem(sys.modules, "subjects.fla", raising=False)
    yield adapted(import_module("subjects.fla"), "fla")
    sys.modules.pop("subjects.fla", None)


def explore(subject: Subject, law: str) -> ExecutionContext:
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    load_properties()[f"recurrent-kernels/{law}"].explore(context, seed=1, max_examples=150)
    return context


@pytest.mark.parametrize("law", LAWS)
def test_states_of_rows_are_gathered_and_written_back(fla: Subject, law: str) -> None:
    context = explore(fla, law)
    assert set(context.counts.configurations) == {"linear_recurrent"}
    assert any("none of fla.ops.kda:" in reason for reason in context.counts.not_offered)


def test_drafts_are_not_applicable_where_no_function_takes_them(fla: Subject) -> None:
    fla.profile = replace(fla.profile, without_drafts=tuple(sorted(RECURRENT)))
    context = explore(fla, "drafts")
    assert set(context.counts.not_offered) == {"a function that takes drafts"}
    assert context.counts.not_offered.total() == context.counts.examples
