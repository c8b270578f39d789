"""Defects planted in `impl`, and how many lives of a release's own engine with it inside it takes to find each.

    .vllm/0.33.0/bin/python -m properties.meta.breakages.inside

prints the table; `--only <word>` tries those whose name has the word. The defects are some of those of `BREAKAGES.md`, which the
properties of single functions find as well.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from properties.harness.execution.variants import Breakage, broken_subject
from properties.harness.kernels import triton_mode
from properties.meta.breakages.align import ALIGN
from properties.meta.breakages.builder import BUILDERS
from properties.meta.breakages.lives import lives_until_wrong

MAX_EXAMPLES = 300
SEED = 20
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


def tried(planted: Breakage, runner: str, examples: int = MAX_EXAMPLES, seed: int = SEED) -> str:
    """Look for the defect; what was found, in a line."""
    from properties.harness.subject import load

    with tempfile.TemporaryDirectory() as folder, broken_subject(planted.variant, Path(folder)):
        subject = load(f"vllm+{planted.variant.package}")
        lives, found = lives_until_wrong(subject, f"real-engine/{runner}", examples, seed)
    return f"| {planted.name} | {runner} | {lives if found else f'not in {lives}'} | {found} |"


def main() -> None:
    """Try all of them, or those that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--runner", choices=RUNNERS, help="the release's first runner, or its second one")
    parser.add_argument("--examples", type=int, default=MAX_EXAMPLES, help="lives, at most")
    given = parser.parse_args()
    triton_mode.prepare("cpu")
    print("| planted defect | runner | lives | found |\n|---|---|---|---|", flush=True)
    for planted in PLANTED:
        for runner in CHOSEN[planted.name]:
            if given.only in planted.name and given.runner in (None, runner):
                print(tried(planted, runner, given.examples), flush=True)


if __name__ == "__main__":
    main()
