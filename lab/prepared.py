"""Calls a function of this repository, and then runs a script or a module as `__main__`, which does not find this repository.

    python lab/prepared.py subjects.sglang.stand_ins:stand_in repro.py
    python lab/prepared.py subjects.sglang.stand_ins:stand_in pytest -q

stands in for packages that are only there for GPUs. With "" in place of the function none is called.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[1])


def prepare(name: str) -> None:
    """Call a function, named as `module:function`, "" for none."""
    module, _, function = name.partition(":")
    if module:
        sys.path.insert(0, ROOT)
        getattr(importlib.import_module(module), function)()
        sys.path.remove(ROOT)


def main() -> None:
    """Run what is named, with the arguments behind it."""
    _, function, target, *arguments = sys.argv
    # The folder of this file, where a script's own would be.
    sys.path[0] = ""
    prepare(function)
    sys.argv = [target, *arguments]
    if target.endswith(".py"):
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
