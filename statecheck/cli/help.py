"""The examples of `--help`, which run at the root of a checkout."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLES: Mapping[str, list[str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


def add_examples(commands: Mapping[str, argparse.ArgumentParser], program: str) -> None:
    """Show them behind the options of each command."""
    for name, command in commands.items():
        lines = "\n".join(f"  {program} {line}" for line in EXAMPLES.get(name, ()))
        command.epilog = f"examples:\n{lines}" if lines else None
        command.formatter_class = argparse.RawDescriptionHelpFormatter
