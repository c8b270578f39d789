"""SGLang as a subject: its own scheduler, radix tree and state pools, as the installed release has them.

The modules below this one need SGLang, torch and the standard library only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from statecheck.subject.known import known_in
from statecheck.subject.loading import PROJECTS
from statecheck.subject.profile import Profile
from subjects import Subject
from subjects.sglang.engine.core import RadixEngine, RadixSettings, RadixStep
from subjects.sglang.recurrences import Recurrences
from subjects.sglang.release import RELEASE_NAME
from subjects.sglang.shapes import MambaStateShapeCalculator
from subjects.sglang.state_slots import StateSlots
from subjects.sglang.tracking import TrackingPlan
from subjects.sglang.transfers import StateTransfer
from subjects.sglang_conditions import CONDITIONS

__all__ = [
    "SUBJECT",
    "MambaStateShapeCalculator",
    "RadixEngine",
    "RadixSettings",
    "RadixStep",
    "Recurrences",
    "StateSlots",
    "StateTransfer",
    "TrackingPlan",
]

PROJECTS["sglang"].require_supported(RELEASE_NAME)

KNOWN = Path(__file__).parents[1] / "sglang_known.toml"

SUBJECT = Subject(
    "sglang",
    sys.modules[__name__],
    known_in(KNOWN, RELEASE_NAME, CONDITIONS),
    profile=Profile(
        accumulates={
            **dict.fromkeys(("conv_update", "conv_prefill"), "input"),
            **dict.fromkeys(("ssd_prefill", "gdn_chunk", "kda_chunk", "linear_chunk"), "dot"),
        },
        without_shared_heads=("kda_chunk",),
        chunks_of_batches=("ssd_prefill",),
        large_grids=("kda_chunk",),
        lightning=("linear_recurrent", "linear_chunk"),
        state_order=dict.fromkeys(("linear_recurrent", "linear_chunk"), "KV"),
    ),
    refuses=False,
    release=RELEASE_NAME,
    is_adapter=True,
)
