"""`python -m tests.gallery table [--write]`, and `run NAME TWIN` for one twin without a detector."""

from __future__ import annotations

import argparse

from statecheck.execution.port import choose_device
from statecheck.kernels import triton_mode


def main() -> None:
    options = _parsed()
    device = choose_device(options.device)
    triton_mode.prepare(device)
    if options.action == "run":
        from tests.gallery.runs import bare

        bare(options.name, options.twin, device)
    else:
        _table(device, options.write, options.only)


def _table(device: str, write: bool, only: list[str]) -> None:
    from tests.gallery import results, table

    found = results.merged(results.load(), results.on_this_machine(device, only))
    text = table.table(found)
    if write:
        results.save(found)
        table.FILE.write_text(text, encoding="utf-8")
    print(text, end="")


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    table = actions.add_parser("table", help="look at every exhibit with what this machine has")
    table.add_argument("--write", action="store_true", help="keep the results, and write GALLERY.md")
    table.add_argument("--only", nargs="*", default=[], help="these detectors: sanitizer, gpu, memcheck, ...")
    run = actions.add_parser("run", help="run one twin, each tensor an allocation of its own")
    run.add_argument("name")
    run.add_argument("twin", choices=("broken", "intact"))
    for one in (table, run):
        one.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
