"""In which order properties are tried first, and how often: by what they found per second among planted defects.

The order stands in `order.json`, a list of ids; a property that finds much has several places. `python -m tests.hunt.learn` measures, and
writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("order.json")


@cache
def visits() -> tuple[str, ...]:
    """The ids of properties in the order in which they are tried, each as often as it is tried."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8")))
