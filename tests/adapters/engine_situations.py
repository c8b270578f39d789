"""Which situations the configurations of an engine reach: run in the environment of a release, it prints how many scenarios reached each."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

from statecheck.kernels import triton_mode

if TYPE_CHECKING:
    from collections.abc import Collection

TURN = 10
"""Scenarios of one seed: other seeds follow until each wanted situation was reached."""


def reached(name: str, wanted: Collection[str], subject_name: str, examples: int) -> dict[str, int]:
    """By situation, how many of at most `examples` scenarios of the property came to it."""
    triton_mode.prepare("cpu")
    from lab.marks import drawing_only
    from statecheck.execution.example import ExecutionContext, Falsified
    from statecheck.execution.executors import ordinary_port
    from statecheck.execution.registry import load_properties
    from statecheck.subject import load

    subject = load(subject_name)
    tested, counts = load_properties()[name], Counter[str]()
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    with drawing_only():
        for seed in range(examples // TURN):
            try:
                tested.explore(context, seed=seed, max_examples=TURN)
            except Falsified as error:
                # A campaign says what is wrong.
                print(f"{name}: {error}", file=sys.stderr)
            counts = context.counts.situations
            if all(counts[situation] for situation in wanted):
                break
    print(f"{name}: {context.counts}", file=sys.stderr)
    return dict(counts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject")
    parser.add_argument("examples", type=int)
    parser.add_argument("wanted", type=json.loads, help="by id of a configuration, situations, as JSON")
    given = parser.parse_args()
    print(
        json.dumps(
            {
                name: reached(name, wanted, given.subject, given.examples)
                for name, wanted in given.wanted.items()
            }
        )
    )
