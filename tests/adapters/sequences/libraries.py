"""Libraries of llama.cpp that are here."""

from __future__ import annotations

import os
from pathlib import Path

from statecheck.subject.loading import PROJECTS


def libraries() -> list[Path]:
    named = os.environ.get("LLAMACPP_PATH", "")
    root = PROJECTS["llamacpp"].root
    return (
        [Path(named)] if named else sorted(root.glob("*/lib/python*/site-packages/xllamacpp/xllamacpp*.so"))
    )
