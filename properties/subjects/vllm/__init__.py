"""vLLM as a subject: the documents' names, as the installed release has them.

Each module adapts one topic, and each difference between releases 0.20 and 0.33 stands there in a place of its own. The
modules below this one need vLLM, torch and the standard library only, since `repro.py` carries those that it needs.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from properties.harness.subject.known import known_in
from properties.subjects import Subject
from properties.subjects.vllm import outside_align, outside_builders
from properties.subjects.vllm.profile import profile_of
from properties.subjects.vllm.release import RELEASE
from properties.subjects.vllm_conditions import CONDITIONS

TOPICS = (
    "types",
    "batch",
    "chunks",
    "layout",
    "shapes",
    "builders",
    "align_buffers",
    "align_context",
    "align_kernels",
    "align_runner",
    "live_engine",
)

for _topic in TOPICS:
    _module = importlib.import_module(f"{__name__}.{_topic}")
    # What a release does not have is None there.
    globals().update(
        {name: value for name in _module.__all__ if (value := getattr(_module, name)) is not None}
    )

KNOWN = Path(__file__).parents[1] / "vllm_known.toml"
_NAME = ".".join(map(str, RELEASE))

SUBJECT = Subject(
    "vllm",
    sys.modules[__name__],
    known_in(KNOWN, _NAME, CONDITIONS),
    profile=profile_of(RELEASE),
    outside=(*outside_builders.outside_of(RELEASE), *outside_align.outside_of(RELEASE)),
    refuses=False,
    release=_NAME,
    carried=__name__,
)
