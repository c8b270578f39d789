"""`python -m tests.nightly_faults [--only NAME ...] [--write]`."""

from __future__ import annotations

import argparse
import sys

from tests.nightly_faults.ground import ground
from tests.nightly_faults.observed import Observed
from tests.nightly_faults.table import FAULTS, FILE, text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly_faults", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=sorted(FAULTS), default=sorted(FAULTS, key=list(FAULTS).index)
    )
    parser.add_argument("--write", action="store_true", help="write FAULTS.md")
    options = parser.parse_args()
    results = tried(options.only)
    print(text(results))
    if options.write:
        earlier = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
        FILE.write_text(text(results, earlier), encoding="utf-8")
    return 1 if any(one.wrong for one in results.values()) else 0


def tried(names: list[str]) -> dict[str, Observed]:
    results = {}
    with ground() as here:
        for name in names:
            results[name] = FAULTS[name].run(here)
            state = "WRONG" if results[name].wrong else "as it should be"
            print(f"{name}: {results[name].skipped or state}", file=sys.stderr, flush=True)
            for one in results[name].wrong:
                print(f"  {one}", file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
