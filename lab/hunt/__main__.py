"""Hunt for planted defects from scratch, with several seeds each.

Results are written to build/hunt/, one file for each shard, and a hunt that stands there is not done again. At the end, or with
--show, a table and a survival curve of all that is there.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.hunt import page, results
from lab.hunt.defects import ALL_GROUPS, GROUPS, HuntedDefect, planted_defects
from lab.hunt.trial import ROOT, Hunt, hunt
from statecheck.campaign.plan import shard_name, shard_of
from statecheck.cli.campaign import commit_of
from statecheck.cli.options import seconds


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m lab.hunt", description=__doc__)
    made.add_argument(
        "--groups",
        default="",
        help=f"some of {','.join(ALL_GROUPS)} (default {','.join(GROUPS)})",
    )
    made.add_argument("--only", default="", help="defects whose name has this in it")
    made.add_argument("--every", type=int, default=1, help="every n-th defect of each group (default 1: all)")
    made.add_argument("--seeds", type=int, default=20, help="hunts for each defect (default 20)")
    made.add_argument("--limit", default="120s", help="of each hunt (default 120s)")
    made.add_argument("--budget", default="", help="begin no hunt after so long: 60s, 8m, 2h")
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="hunts at once")
    made.add_argument("--shard", default="", help="do a part only: 2/8 (default: the variable SHARD, or all)")
    made.add_argument("--out", type=Path, default=ROOT / "build" / "hunt", help="folder of results")
    made.add_argument("--show", action="store_true", help="show what there is, and hunt for nothing")
    made.add_argument("--before", type=Path, help="results of another version, to compare with")
    return made


class Hunters:
    """Hunts at once, each on a worker of its own, until the time is up."""

    def __init__(self, options: argparse.Namespace, done: Sequence[Hunt], path: Path) -> None:
        self._limit = seconds(options.limit)
        self._path, self._workers = path, options.workers
        self._hunts = [*done]
        self._lock = threading.Lock()
        self._about = {"commit": commit_of(ROOT), "python": platform.python_version(), "limit": options.limit}
        budget = seconds(options.budget) if options.budget else math.inf
        self._until = time.monotonic() + budget

    def run(self, chosen: Sequence[tuple[int, HuntedDefect]]) -> int:
        """Do these; how many were left out for want of time."""
        with ThreadPoolExecutor(self._workers) as pool:
            return sum(pool.map(self._one, chosen))

    def _one(self, chosen: tuple[int, HuntedDefect]) -> bool:
        if time.monotonic() > self._until:
            return True
        seed, defect = chosen
        found = hunt(defect, seed, self._limit)
        with self._lock:
            self._hunts.append(found)
            results.save(self._hunts, self._path, self._about)
            after = (
                f"{found.failure:.1f} CPU s, {found.examples:,} examples" if found.failure else "not found"
            )
            print(f"{len(self._hunts)}: {defect.group}: {defect.name}, seed {seed}: {after}", flush=True)
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: all was hunted for; 2: the time was up before."""
    options = parser().parse_args(arguments)
    shard, shards = shard_of(os.environ, options.shard)
    left = 0
    if not options.show:
        groups = tuple(filter(None, options.groups.split(",")))
        defects = planted_defects(groups, options.only, options.every)
        wanted = [(seed, defect) for seed in range(1, options.seeds + 1) for defect in defects]
        path = options.out / f"shard-{shard_name(shard, shards).replace('/', '-of-')}.json"
        done = {one.key for one in results.load(options.out)}
        own = results.load_file(path)
        chosen = [
            (seed, one)
            for number, (seed, one) in enumerate(wanted)
            if number % shards == shard and (one.group, one.name, seed) not in done
        ]
        left = Hunters(options, own, path).run(chosen)
    hunts = results.load(options.out)
    print(page.table(hunts))
    named = {"now": hunts}
    if options.before is not None:
        before = results.load(options.before)
        print(page.ratio(before, hunts))
        named = {"before": before, "now": hunts}
    (options.out / "survival.svg").write_text(page.curve(named), encoding="utf-8")
    if left:
        print(f"{left} hunts were left out, since the time was up.")
    return 2 if left else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)
