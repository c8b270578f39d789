"""The order of properties in the first pass of a campaign, learned from planted defects.

`order.json` is a list of property ids, one for each random example. A property that finds many defects is in the list several times. Where an
id follows itself, the examples are run together, which takes less than one by one. `python -m lab.hunt.learn` measures the properties and
writes the file.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from pathlib import Path

FILE = Path(__file__).with_name("order.json")


@cache
def visits() -> tuple[tuple[str, int], ...]:
    """The property ids in the order of the first pass, each with the number of its random examples."""
    ids = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple((id_, len(list(same))) for id_, same in groupby(ids))
