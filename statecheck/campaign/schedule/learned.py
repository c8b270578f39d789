"""In which order properties are tried first: by what they found per second among planted defects.

The order stands in `order.json`, a list of ids. `python -m tests.hunt.learn` measures, and writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("order.json")


@cache
def places() -> dict[str, int]:
    """The place of each property in the order, by its id."""
    names = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: number for number, name in enumerate(names)}


def place(property_id: str) -> int:
    """The place of a property; of all that were not measured, the one behind the last."""
    return places().get(property_id, len(places()))
