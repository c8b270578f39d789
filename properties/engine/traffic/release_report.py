"""What a replay through a release's own engine shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from properties.engine.traffic.report import print_text
from properties.strategies.releases.live import LiveWorld
from statecheck.subject import Subject

_SHOWN = 10


def release_line(world: LiveWorld, subject: Subject) -> str:
    """The release's engine."""
    return (
        f"{subject.name} {subject.release}, its own engine, runner {world.runner}, layout {world.layout}, "
        f"attention + {' + '.join(world.kinds)}, {world.num_blocks:,} blocks of {world.block_size} tokens, "
        f"{world.max_num_batched_tokens:,} tokens a step, "
        f"{'async' if world.async_scheduling else 'no async'} scheduling"
    )


def tell_violations(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    """Print what broke a law."""
    declared = Counter(one["defect"] for one in found if one["defect"])
    for name, count in sorted(declared.items()):
        print_text(console, f"known: {name}, {count:,} violation{'s' if count > 1 else ''}")
    new = [one for one in found if not one["defect"]]
    for one in new[:_SHOWN]:
        print_text(console, f"VIOLATION in step {one['step']}, {one['law']}: {one['message']}")
    if len(new) > _SHOWN:
        print_text(console, f"and {len(new) - _SHOWN:,} more, in replay.json")
