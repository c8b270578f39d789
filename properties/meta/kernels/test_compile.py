"""What is stored of a kernel serves copies of its package, and tells of each copy's own files."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from properties.harness.kernels.source import compile as compiling
from properties.harness.kernels.source.compile import Compiled

pytestmark = pytest.mark.usefixtures("executed")

PARTS = """
import triton
import triton.language as tl


@triton.jit
def doubled(x):
    tl.device_assert(x > 0, "not positive")
    return x * 2
"""
KERNEL = """
import triton
import triton.language as tl

from .parts import doubled


@triton.jit(debug=True)
def double_kernel(x_ptr):
    tl.store(x_ptr, doubled(tl.load(x_ptr)))
"""


class Compiling:
    """Variants that are compiled, and how many of them are lowered for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self.variants: list[Compiled] = []
        self.lowered = 0
        self._patch = monkeypatch
        monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
        self._wrap("ttir", self._count)
        self._wrap("_loaded", self.variants.append)

    def _count(self, text: str) -> None:
        assert text
        self.lowered += 1

    def _wrap(self, name: str, seen: Any) -> None:
        whole = getattr(compiling, name)

        def wrapped(*arguments: Any) -> Any:
            result = whole(*arguments)
            seen(result)
            return result

        self._patch.setattr(compiling, name, wrapped)

    def launch(self, folder: Path, package: str, kernel: str = KERNEL) -> set[Path]:
        """Launch the kernel of a new copy; the files that the variant tells of."""
        (folder / package).mkdir(parents=True)
        for name, text in {"__init__": "", "parts": PARTS, "kernel": kernel}.items():
            (folder / package / f"{name}.py").write_text(text, encoding="utf-8")
        self._patch.syspath_prepend(str(folder))
        x = torch.tensor([21])
        importlib.import_module(f"{package}.kernel").double_kernel[(1,)](x)
        assert x.tolist() == [42]
        assert repr(f"{folder / package / 'parts.py'}:8") in self.variants[-1].source
        places = [one.place for one in self.variants[-1].sites]
        return {Path(file) for one in places for file in (one.file, *(name for name, _ in one.callers))}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiling:
    return Compiling(monkeypatch, tmp_path / "cache")


def test_a_copy_of_a_package_is_not_compiled_again_and_has_its_own_files(
    made: Compiling, tmp_path: Path
) -> None:
    for number, name in enumerate(("toy_house", "toy_copy")):
        assert made.launch(tmp_path / str(number), name) == {tmp_path / str(number) / name / "kernel.py"}
    assert made.lowered == 1


def test_a_kernel_that_is_moved_within_its_file_is_another_one(made: Compiling, tmp_path: Path) -> None:
    made.launch(tmp_path / "0", "toy_above")
    made.launch(tmp_path / "1", "toy_below", f"\n{KERNEL}")
    assert [one.sites[0].place.line for one in made.variants] == [10, 11]
