"""Files of numbers that were measured, with where they were."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from statecheck import rooms
from statecheck.report.environment import revision


def environment() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "triton": _triton(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "revision": revision(rooms.home()),
    }


def _triton() -> str | None:
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
