"""In which order properties are tried first: by what they found per second among planted defects.

The order stands in `order.txt`, an id in a line. `python -m tests.hunt.learn` measures, and writes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("order.txt")


@cache
def places() -> dict[str, int]:
    """The place of each property in the order, by its id."""
    lines = FILE.read_text(encoding="utf-8").split() if FILE.exists() else ()
    return {name: number for number, name in enumerate(lines)}


def place(property_id: str) -> int:
    """The place of a property; of all that were not measured, the one behind the last."""
    return places().get(property_id, len(places()))


def write(order: Iterable[str]) -> None:
    """Make this the order."""
    FILE.write_text("".join(f"{name}\n" for name in order), encoding="utf-8")
