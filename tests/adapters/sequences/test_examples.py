"""The port of an example, on a stand-in for its library, which has the same functions and a recurrence of one line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import properties.test_sequences  # noqa: F401 - the statements
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from tests.helpers.slow import slow_after

NAME = "examples.mambapy_port"
SOURCE = Path(__file__).parents[3] / "examples" / "mambapy_port.py"
IDS = ("pieces", "batches", "fork", "save", "drop", "any")


class StandIn(torch.nn.Module):
    """A stack of layers with a state and a window, as mambapy has it: a forward over all tokens, and a step with caches."""

    forgets = False

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        config.d_inner, config.d_conv = config.d_model, 4
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(config.d_model, config.d_model) for _ in range(config.n_layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, D] as T steps."""
        empty = (None, torch.zeros(1, self.config.d_inner, self.config.d_conv - 1))
        caches: list[Any] = [empty for _ in self.layers]
        seen = []
        for at in range(x.shape[1]):
            y, caches = self._step(x[:, at], caches)
            seen.append(y)
        return torch.stack(seen, dim=1)

    def step(self, x: torch.Tensor, caches: list[Any]) -> tuple[torch.Tensor, list[Any]]:
        """[B, D], with caches that are changed in place."""
        y, after = self._step(x, caches)
        if self.forgets:
            after = [(h, torch.zeros_like(window)) for h, window in after]
        caches[:] = after
        return y, caches

    def _step(self, x: torch.Tensor, caches: list[Any]) -> tuple[torch.Tensor, list[Any]]:
        after = []
        for layer, (before, window) in zip(self.layers, caches, strict=True):
            mixed = torch.tanh(layer(x) + window.sum(2))
            state = mixed if before is None else 0.7 * before + mixed
            after.append((state, torch.cat((window[:, :, 1:], x[:, :, None]), dim=2)))
            x = state
        return x, after


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's module, with the stand-in as mambapy."""
    library = ModuleType("mambapy.mamba")
    vars(library).update(Mamba=StandIn, MambaConfig=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "mambapy", ModuleType("mambapy"))
    monkeypatch.setitem(sys.modules, "mambapy.mamba", library)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield importlib.import_module(NAME)
    sys.modules.pop(NAME, None)


def context_of(port: ModuleType) -> ExecutionContext:
    subject = adapted(port)
    return ExecutionContext(subject, ordinary_port(subject, "cpu"))


def test_the_port_has_fifty_lines_or_fewer() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 50


@pytest.mark.parametrize("name", slow_after(1, IDS))
def test_the_port_of_a_library_that_keeps_the_law_passes(port: ModuleType, name: str) -> None:
    context = context_of(port)
    load_properties()[f"sequences/{name}"].explore(context, seed=1, max_examples=25)
    assert context.counts.compared > 5


def test_a_window_that_the_step_forgets_is_found(port: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "forgets", True)
    with pytest.raises(Falsified):
        load_properties()["sequences/pieces"].explore(context_of(port), seed=1, max_examples=50)
