"""The default subject: this repository's own implementation. No known deviations."""

from __future__ import annotations

import impl
from subjects import Subject

SUBJECT = Subject("impl", impl)
