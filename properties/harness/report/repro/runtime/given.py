"""What each script states itself: the device that it runs on, and the subject that it tries."""

from __future__ import annotations

import types
from typing import Any

DEVICE = "cpu"
subject: Any = types.SimpleNamespace()
