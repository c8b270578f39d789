"""The order of properties in the first pass of a campaign, learned from planted defects.

`order.json` is a list of property ids. A property that finds many defects is in the list up to three times. `python -m tests.hunt.learn`
measures the properties and writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("order.json")


@cache
def visits() -> tuple[str, ...]:
    """The property ids in the order of the first pass, one entry for each visit."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8")))
