"""The reference port in processes of its own, with models that end their process, hang, or take all memory at a long prompt."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from tests.adapters.sequences import reference_port as reference
from tests.adapters.sequences.reference_port import (
    SmallContext,
    drop,
    features,
    fork,
    length,
    load,
    roll_back,
    save,
)

STATECHECK_SEQUENCES = 1
ISOLATED = True
SECONDS = 2.0
MEGABYTES = 256
_LONG = 7
_FAULTS = {
    "aborts": os.abort,
    "hangs": lambda: time.sleep(60),
    "slow": lambda: time.sleep(1.5),
    "takes memory": lambda: bytearray(1 << 30),
}
__all__ = ["drop", "features", "fork", "length", "load", "roll_back", "save"]


class NamedContext(SmallContext):
    """A context that knows its model."""

    model = "small"


def models() -> Sequence[str]:
    """A good model, and those with a fault."""
    return ("small", *_FAULTS)


def new(model: str, seed: int, *, micro_batch: int = 8) -> NamedContext:
    """A context of the reference port."""
    made = reference.new("small", seed, micro_batch=micro_batch)
    context = NamedContext(made.weights, made.micro_batch)
    context.model = model
    return context


def extend(context: NamedContext, rows: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
    """Logits, or the fault."""
    if context.model in _FAULTS and any(len(tokens) > _LONG for _, tokens in rows):
        _FAULTS[context.model]()
    return reference.extend(context, rows)
