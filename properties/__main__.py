"""`python -m properties`, the former name of `python -m statecheck`, and of `python -m tools.bench` and `tools.docs`."""

from __future__ import annotations

import runpy
import sys

_TOOLS = {"bench": "tools.bench", "table": "tools.docs"}

if __name__ == "__main__":
    _module = _TOOLS.get(sys.argv[1], "") if len(sys.argv) > 1 else ""
    if _module:
        del sys.argv[1]
    _module = _module or "statecheck"
    print(
        f"python -m properties is now python -m {_module}; this name goes with the next version",
        file=sys.stderr,
    )
    runpy.run_module(_module, run_name="__main__", alter_sys=True)
