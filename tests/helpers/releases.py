"""The release that tests run, where its environment is there."""

from __future__ import annotations

import pytest

from statecheck import rooms

RELEASE = "0.33.0"
PYTHON = rooms.FOLDER / ".vllm" / RELEASE / "bin" / "python"
needs_release = pytest.mark.skipif(
    not PYTHON.exists(), reason=f"statecheck fuzz --vllm {RELEASE} makes the environment"
)
