"""Defects planted in `impl`, and how many scenarios of a release's own engine with it inside it takes to find each.

    .vllm/0.33.0/bin/python -m tests.breakages.inside

prints the table; `--only <word>` tries those whose name has the word, `--where v1` those of one runner. The defects are some of those of `BREAKAGES.md`, which the
properties of single functions find as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from statecheck.subject import Subject
from tests.breakages.align import ALIGN
from tests.breakages.builder import BUILDERS
from tests.breakages.scenarios import LiveTrial, print_table
from tests.breakages.variants import Breakage, broken_subject

MAX_EXAMPLES = 300
RUNNERS = ("v1", "v2")
CHOSEN = {
    "every prefill has an initial state": RUNNERS,
    "the starts of prefills count the tokens of decodes": RUNNERS,
    "a boundary that the sampled token reaches is not stored": RUNNERS,
    "the temporal state of a rejected draft is taken": RUNNERS,
    "states of all groups are found in the first group's table": RUNNERS,
    "a request is in a new block as soon as the old one is full": ("v2",),
}
"""By name, the runners that call what is broken."""
PLANTED = tuple(one for one in (*BUILDERS, *ALIGN) if one.name in CHOSEN)


@contextmanager
def _inside(planted: Breakage) -> Iterator[Subject]:
    """The release's engine with a broken copy of `impl` in it."""
    from statecheck.subject import load

    with tempfile.TemporaryDirectory() as folder, broken_subject(planted.variant, Path(folder)):
        yield load(f"vllm+{planted.variant.package}")


TRIALS = tuple(
    LiveTrial(planted.name, runner, f"real-engine/{runner}", partial(_inside, planted))
    for planted in PLANTED
    for runner in CHOSEN[planted.name]
)

if __name__ == "__main__":
    print_table("tests.breakages.inside", __doc__, "runner", TRIALS, MAX_EXAMPLES)
