"""The examples of `--help`, which run at the root of a checkout."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "bisect": (
        "bisect 519227bdfe --subject vllm --releases 0.25.1,0.33.0",
        "bisect 519227bdfe --subject vllm --all --time-limit 5m",
    ),
    "compatibility": ("compatibility --releases 0.25.1,0.33.0 --budget 3m",),
    "exhaust": ("exhaust --budget 60s --only 'chunks or split'",),
    "fuzz": (
        "fuzz --budget 60s",
        "fuzz --subject examples.numpy_port --device cpu --only 'chunks and not refused'",
        "fuzz --budget 20s --seed 637988904 --workers 2",
    ),
    "merge": ("merge reports/campaigns --id 2026-11-21-night",),
    "mutants": ("mutants --files impl/chunks.py --sample 20", "mutants --shard 1/4 --budget 8m"),
    "nightly": ("nightly --budget 8h", "nightly --examples 1000 --only chunks"),
    "prove": ("prove --only preprocess", "prove --subject vllm --time-limit 30m"),
    "reach": ("reach --budget 60s", "reach --subject examples.numpy_port --only chunks"),
    "replay": ("replay 0cf9c118dc", "replay 0cf9c118dc --subject examples.numpy_port --device cpu"),
    "replay-trace": ("replay-trace conversation.jsonl --requests 2000 --factor 64",),
    "sanitize": ("sanitize shift_window.py", "sanitize shift_window.py --order reversed"),
    "vectors": ("vectors --out build/vectors --only chunks",),
}


def add_examples(commands: Mapping[str, argparse.ArgumentParser], program: str) -> None:
    """Show them behind the options of each command."""
    for name, command in commands.items():
        lines = "\n".join(f"  {program} {line}" for line in EXAMPLES.get(name, ()))
        command.epilog = f"examples:\n{lines}" if lines else None
        command.formatter_class = argparse.RawDescriptionHelpFormatter
