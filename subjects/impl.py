"""The default subject: this repository's own implementation. No known deviations."""

from __future__ import annotations

import impl
from impl.models import PUBLISHED_MODELS
from subjects import Subject

SUBJECT = Subject("impl", impl)

__all__ = ["PUBLISHED_MODELS", "SUBJECT"]
