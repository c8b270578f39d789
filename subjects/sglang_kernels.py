"""SGLang's kernels of state slots from their files alone: where its packages are not installed, as on a GPU machine without a package index.

    SGLANG_KERNELS=<folder> python -m statecheck fuzz --subject subjects.sglang_kernels --device cuda --budget 3m

The folder has `sglang/` of a release with at least the files of `FILES`, and its `sglang-<version>.dist-info`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import torch

from subjects import Subject
from subjects.kit.state_slots import StateSlots

__all__ = ["SUBJECT", "StateSlots"]
VARIABLE = "SGLANG_KERNELS"
FILES = (
    "kernels/ops/mamba/mamba_state_scatter_triton.py",
    "kernels/ops/mamba/mamba_state_indices_triton.py",
    "kernels/ops/memory/ptr_table.py",
    "srt/mem_cache/mamba_slot_fused.py",
)
"""Below `sglang/`."""


def _folder() -> Path:
    folder = Path(os.environ.get(VARIABLE, ""))
    missing = [name for name in FILES if not (folder / "sglang" / name).is_file()]
    if VARIABLE not in os.environ or missing:
        rule = f"a folder with sglang/{(missing or FILES)[0]}"
        raise ValueError(f"{VARIABLE} = {os.environ.get(VARIABLE)!r}, but should be {rule} [sglang_kernels]")
    return folder


def _core_count(device: int = 0) -> int:
    """Multiprocessors of a GPU, which the release asks for when it chooses a grid."""
    return torch.cuda.get_device_properties(device).multi_processor_count if torch.cuda.is_available() else 0


def _packages(folder: Path) -> None:
    """Let the files be imported without the packages around them, whose own modules import the whole of SGLang."""
    inner = {parent for name in FILES for parent in Path("sglang", name).parents if parent.name}
    for package in sorted({*inner, Path("sglang/srt/utils")}):
        made = ModuleType(".".join(package.parts))
        made.__path__ = [str(folder / package)]
        sys.modules[made.__name__] = made
    common = ModuleType("sglang.srt.utils.common")
    common.get_device_core_count = _core_count  # type: ignore[attr-defined]
    sys.modules[common.__name__] = common


def _release(folder: Path) -> str:
    found = sorted(folder.glob("sglang-*.dist-info"))
    return found[0].name.removeprefix("sglang-").removesuffix(".dist-info") if found else ""


_FOUND = _folder()
_packages(_FOUND)
SUBJECT = Subject(__name__, sys.modules[__name__], refuses=False, release=_release(_FOUND))
