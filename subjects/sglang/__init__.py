"""SGLang as a subject: its own scheduler, radix tree and state pools, as the installed release has them.

The modules below this one need SGLang, torch and the standard library only, since `repro.py` carries those that it needs.
"""

from __future__ import annotations

import sys

from subjects import Subject
from subjects.sglang.engine.core import RadixEngine, RadixSettings, RadixStep
from subjects.sglang.release import RELEASE_NAME

__all__ = ["SUBJECT", "RadixEngine", "RadixSettings", "RadixStep"]

SUBJECT = Subject(
    "sglang",
    sys.modules[__name__],
    refuses=False,
    release=RELEASE_NAME,
    carried=__name__,
)
