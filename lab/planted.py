"""How many examples it takes until each planted defect is found, by each of the properties that are known to find it.

    python -m lab.planted --groups align,engines --only "first program"
    python -m lab.planted --groups vllm,sglang --examples 400
    python -m lab.planted --groups llamacpp --only infill --seeds 1,2,3

Each defect is tried in a process of its own, a defect of a release in the environment of that release. Every row is printed, and all
rows are in build/planted.md at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab.hunt.defects import ALL_GROUPS, HuntedDefect, planted_defects, release_python
from statecheck.execution import profiles
from statecheck.execution.registry import load_properties
from statecheck.kernels import triton_mode
from statecheck.rooms import FOLDER
from statecheck.subject import load
from statecheck.util.text import visible
from statecheck.workers.forkserver import kernels_of
from tests.helpers.hunts import SEEDS, hunt
from tests.helpers.planted import IN_IMPL

_HEAD = """# Planted defects

*Examples*: how many it took until the property failed, and *seconds*, which include shrinking; with `--seeds` of each seed. *Smallest input* and *failure* are of the failing example, which is shrunk with `--shrink` alone.

| group | defect | found by | examples | seconds | smallest input | failure |
|---|---|---|---|---|---|---|
"""
_NOT_FOUND = "not found"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m lab.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--groups", default=",".join(IN_IMPL), help=f"some of {','.join(ALL_GROUPS)}")
    made.add_argument("--only", default="", help="defects whose name has this in it")
    made.add_argument("--examples", type=int, default=500, help="of each property, at most (default 500)")
    made.add_argument(
        "--seeds",
        default="",
        help="each of these by itself, as 1,2,3; without it the first of three that finds it",
    )
    made.add_argument("--shrink", action="store_true", help="shrink what is found")
    made.add_argument("--out", type=Path, default=FOLDER / "build" / "planted.md")
    for hidden in ("--subject", "--properties"):
        made.add_argument(hidden, default="", help=argparse.SUPPRESS)
    return made


def _rows(defect: HuntedDefect, options: argparse.Namespace) -> list[str]:
    """The rows of a defect, which another process prints."""
    with tempfile.TemporaryDirectory(prefix="statecheck-planted-") as name:
        planted = defect.plant(Path(name))
        subject = planted.subject.partition("+")[0]
        python = release_python(subject, defect.release) if defect.release else sys.executable
        command = [str(python), "-m", "lab.planted", "--subject", planted.subject]
        command += ["--properties", ",".join(defect.found_by), "--examples", str(options.examples)]
        command += ["--seeds", options.seeds]
        printed = subprocess.run(
            [*command, *["--shrink"] * options.shrink],
            cwd=FOLDER,
            env=os.environ | planted.variables,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    # A release may print lines of its own.
    begins = tuple(f"{name} | " for name in defect.found_by)
    rows = [line for line in printed.splitlines() if line.startswith(begins)]
    return [f"| {defect.group} | {defect.name} | {row}" for row in rows]


def _hunt(options: argparse.Namespace) -> None:
    """Print a row for each of the properties, of a subject that this process has not imported."""
    if kernels_of(options.subject, "cpu"):
        triton_mode.prepare("cpu")
    profiles.register()
    subject = load(options.subject)
    tested = load_properties()
    each: list[Sequence[int]] = [[int(seed)] for seed in options.seeds.split(",") if seed] or [SEEDS]
    for name in options.properties.split(","):
        counts, seconds, first = list[str](), list[str](), None
        for seeds in each:
            started = time.monotonic()
            catch = hunt(
                tested[name],
                subject,
                shrink=options.shrink,
                seeds=seeds,
                max_examples=options.examples,
                sanitized=True,
            )
            counts.append(str(catch.examples) if catch else _NOT_FOUND)
            seconds.append(f"{time.monotonic() - started:.1f}")
            first = first or catch
        cells = [
            ", ".join(counts),
            ", ".join(seconds),
            *((first.smallest, first.seen) if first else ("", "")),
        ]
        print(f"{name} | {' | '.join(map(_cell, cells))} |", flush=True)


def _cell(text: str) -> str:
    return " ".join(visible(text).split()).replace("|", r"\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a property finds a defect no longer that it is known to find."""
    options = _parser().parse_args(arguments)
    if options.subject:
        _hunt(options)
        return 0
    rows = list[str]()
    print(_HEAD, end="")
    for defect in planted_defects(options.groups.split(","), options.only):
        for row in _rows(defect, options):
            rows.append(row)
            print(row, flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join([_HEAD.rstrip("\n"), *rows]) + "\n", encoding="utf-8")
    return 1 if any(_NOT_FOUND in row.split(" | ")[3] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
