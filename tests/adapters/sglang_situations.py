"""Which situations the configurations of SGLang's engine come to: run in the environment of a release, it prints those that each misses."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from statecheck.kernels import triton_mode

if TYPE_CHECKING:
    from collections.abc import Collection

EXAMPLES = 120
"""Of a configuration; each situation comes up in some of so many, whatever the seed."""


def missed(names: Collection[str]) -> dict[str, dict[str, int]]:
    """By id of the configuration its situations, and how many scenarios came to each."""
    triton_mode.prepare("cpu")
    from properties.releases.marks import REACHED
    from properties.releases.test_radix_engine import CONFIGURATIONS
    from statecheck.execution import profiles
    from statecheck.execution.registry import load_properties
    from statecheck.subject import load
    from tests.helpers.hunts import hunt

    profiles.register()
    subject = load("sglang")
    tested = load_properties()
    found = {}
    for one in CONFIGURATIONS:
        if names and one.id not in names:
            continue
        wrong = hunt(
            tested[one.id],
            subject,
            shrink=False,
            seeds=1,
            max_examples=EXAMPLES,
            sanitized=True,
        )
        found[one.id] = {mark: REACHED[one.id, mark] for mark in one.situations}
        ended = f", and ended after {wrong.examples} scenarios: {wrong.seen}" if wrong else ""
        print(f"{one.id}: {found[one.id]}{ended}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="ids of configurations; all if none is named")
    print(json.dumps(missed(parser.parse_args().names)))
