"""Results of hunts: one JSON file for each shard, written after every hunt, so that a hunt that was ended goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from lab.hunt.trial import Hunt


def load(folder: Path) -> list[Hunt]:
    """What all shards in a folder have found, each hunt once.

    Raises:
        ValueError: a file holds no hunts.
    """
    hunts = [one for path in sorted(folder.glob("*.json")) for one in load_file(path)]
    return [*{hunt.key: hunt for hunt in hunts}.values()]


def load_file(path: Path) -> list[Hunt]:
    """What one shard has found; nothing where there is no such file. Raises as `load`."""
    if not path.exists():
        return []
    try:
        return [Hunt(**row) for row in json.loads(path.read_text(encoding="utf-8"))["hunts"]]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"out = {str(path)!r}, but should hold hunts: {error} [load_file]") from error


def save(hunts: Iterable[Hunt], path: Path, about: dict[str, str]) -> None:
    """Write the hunts of a shard, as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".tmp")
    rows = [asdict(hunt) for hunt in hunts]
    written.write_text(json.dumps({"about": about, "hunts": rows}, indent=1) + "\n", encoding="utf-8")
    written.replace(path)
