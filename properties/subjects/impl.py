"""The default subject: this repository's own implementation. No known deviations."""

from __future__ import annotations

from properties.harness.rooms import importable, require_own
from properties.subjects import Subject

# Where statecheck is installed, nothing else leads to it: users have modules of that name.
with importable():
    import impl
    from impl.models import PUBLISHED_MODELS
require_own(impl)

SUBJECT = Subject("impl", impl)

__all__ = ["PUBLISHED_MODELS", "SUBJECT"]
