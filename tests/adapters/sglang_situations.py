"""Which situations the properties of SGLang's engine come to: run in the environment of a release, it prints those that each misses."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from statecheck.kernels import triton_mode

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES = 120
"""Of a property; each situation comes up in some of so many, whatever the seed."""


def missed(names: Iterable[str]) -> dict[str, dict[str, int]]:
    """By property, behind "radix-engine/", its situations, and how many scenarios came to each."""
    triton_mode.prepare("cpu")
    from properties.engine.radix_marks import SITUATIONS
    from properties.releases.live_marks import REACHED
    from statecheck.execution import profiles
    from statecheck.execution.registry import load_properties
    from statecheck.subject import load
    from tests.helpers.hunts import hunt

    profiles.register()
    subject = load("sglang")
    tested = load_properties()
    found = {}
    for name in names or SITUATIONS:
        REACHED.clear()
        wrong = hunt(
            tested[f"radix-engine/{name}"],
            subject,
            shrink=False,
            seeds=1,
            max_examples=EXAMPLES,
            sanitized=True,
        )
        found[name] = {mark: REACHED[mark] for mark in SITUATIONS[name]}
        ended = f", and ended after {wrong.examples} scenarios: {wrong.seen}" if wrong else ""
        print(f"{name}: {found[name]}{ended}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="properties, without radix-engine/; all if none is named")
    print(json.dumps(missed(parser.parse_args().names)))
