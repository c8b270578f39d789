"""Names that a release of SGLang lacks, or has without a caller, are not offered: no defect of the release."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from statecheck.subject.subject import NotOffered, first_offered
from subjects.kit import state_slots

SCATTER = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"
SIZES = {"tp_world_size": 1, "intermediate_size": 4, "state_size": 2, "conv_kernel": 3}


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> ModuleType:
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ModuleType(".".join(parts[:end]))
        package.__path__ = []
        monkeypatch.setitem(sys.modules, package.__name__, package)
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def adapter(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """A module of the adapter, without what the import of a release needs."""
    release = ModuleType("subjects.sglang.release")
    vars(release).update(find=first_offered, RELEASE_NAME="0.5.22")
    package = ModuleType("subjects.sglang")
    package.__path__ = [str(Path(state_slots.__file__).parents[1] / "sglang")]
    monkeypatch.setitem(sys.modules, "subjects.sglang", package)
    monkeypatch.setitem(sys.modules, "subjects.sglang.release", release)
    monkeypatch.delitem(sys.modules, f"subjects.sglang.{name}", raising=False)
    made = importlib.import_module(f"subjects.sglang.{name}")
    monkeypatch.delitem(sys.modules, made.__name__)
    return made


@pytest.mark.parametrize("kernels", [{}, {"fused_lfm_short_conv_prefill": lambda *_: "gated"}])
def test_convolutions_of_lfm2_have_the_general_kernel_without_theirs(
    monkeypatch: pytest.MonkeyPatch, kernels: dict[str, Any]
) -> None:
    made, mamba = adapter(monkeypatch, "recurrences"), "sglang.kernels.ops.mamba"
    stand_in(monkeypatch, f"{mamba}.lfm_short_conv", **kernels)
    stand_in(monkeypatch, f"{mamba}.causal_conv1d_triton", causal_conv1d_fn=lambda x, *_, **__: x)
    x, ends, first = torch.zeros(2, 3, dtype=torch.bfloat16), torch.tensor([0, 2]), torch.zeros(1)
    found = made.Recurrences.conv_prefill(x, torch.zeros(3, 3), None, None, first, first, ends, first)
    assert found == "gated" if kernels else found.equal(x)


def test_shape_of_mamba1_is_offered_where_the_release_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # The layout is a variable of the environment, which another test may have left.
    monkeypatch.delenv("VLLM_SSM_CONV_STATE_LAYOUT", raising=False)
    shapes, place = adapter(monkeypatch, "shapes"), "sglang.srt.configs.mamba_utils"
    stand_in(monkeypatch, place, Mamba2StateShape=type("Mamba2StateShape", (), {}))
    with pytest.raises(NotOffered, match="create_full_rank"):
        shapes.MambaStateShapeCalculator.mamba1_state_shape(**SIZES)
    made = SimpleNamespace(conv=[(4, 2)], temporal=(4, 1, 2))
    shape = SimpleNamespace(create_full_rank=lambda **_: made)
    stand_in(monkeypatch, place, Mamba2StateShape=shape)
    assert shapes.MambaStateShapeCalculator.mamba1_state_shape(**SIZES) == ((2, 4), (4, 2))


@pytest.mark.parametrize("text", ["", "def verify():\n    fused_commit_track_indices()\n"])
def test_kernel_of_last_accepted_drafts_is_offered_with_a_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    caller = tmp_path / "srt/speculative/spec_utils.py"
    caller.parent.mkdir(parents=True)
    caller.write_text(text, encoding="utf-8")
    release = ModuleSpec("sglang", None, is_package=True)
    release.submodule_search_locations = [str(tmp_path)]
    vars(stand_in(monkeypatch, "sglang")).update(__spec__=release)
    kernels = ModuleType(SCATTER)
    vars(kernels).update(fused_commit_track_indices=lambda *given: given)
    monkeypatch.setitem(sys.modules, SCATTER, kernels)
    if text:
        assert state_slots.StateSlots.last_accepted(1, 2, 3, 4, 5) == (1, 2, 3, 4, 5)
    else:
        with pytest.raises(NotOffered, match="a caller of fused_commit_track_indices"):
            state_slots.StateSlots.last_accepted(1, 2, 3, 4, 5)
