"""Names that a release of SGLang lacks, or has without a caller, are not offered: no defect of the release."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

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


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The adapter's shapes, without what the import of a release needs."""
    release = ModuleType("subjects.sglang.release")
    vars(release).update(find=first_offered)
    package = ModuleType("subjects.sglang")
    package.__path__ = [str(Path(state_slots.__file__).parents[1] / "sglang")]
    monkeypatch.setitem(sys.modules, "subjects.sglang", package)
    monkeypatch.setitem(sys.modules, "subjects.sglang.release", release)
    monkeypatch.delitem(sys.modules, "subjects.sglang.shapes", raising=False)
    import subjects.sglang.shapes as made

    monkeypatch.delitem(sys.modules, "subjects.sglang.shapes")
    return made.MambaStateShapeCalculator


def test_shape_of_mamba1_is_not_offered_without_its_name(
    monkeypatch: pytest.MonkeyPatch, shapes: Any
) -> None:
    stand_in(monkeypatch, "sglang.srt.configs.mamba_utils", Mamba2StateShape=type("Mamba2StateShape", (), {}))
    with pytest.raises(NotOffered, match="create_full_rank"):
        shapes.mamba1_state_shape(**SIZES)


def test_shape_of_mamba1_is_taken_where_the_release_has_it(
    monkeypatch: pytest.MonkeyPatch, shapes: Any
) -> None:
    # The layout is a variable of the environment, which another test may have left.
    monkeypatch.delenv("VLLM_SSM_CONV_STATE_LAYOUT", raising=False)
    made = SimpleNamespace(conv=[(4, 2)], temporal=(4, 1, 2))
    shape = SimpleNamespace(create_full_rank=lambda **_: made)
    stand_in(monkeypatch, "sglang.srt.configs.mamba_utils", Mamba2StateShape=shape)
    assert shapes.mamba1_state_shape(**SIZES) == ((2, 4), (4, 2))


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
