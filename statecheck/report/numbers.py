"""Files of numbers that were measured, with where they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from statecheck.report import environment as where


def environment() -> dict[str, Any]:
    """Where the numbers come from."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return where.environment() | {"threads": torch.get_num_threads(), "gpu": gpu}


def save(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
