"""The table of docs/kernel-operations.md: kernels of releases, the operations of their IR, and whether the executor knows them.

`pytest -p lab.docs.kernel_operations` notes every variant of a kernel that a session's launches compile, and adds it to
docs/results/kernel-operations.json, under the name of the release in the variable KERNELS_OF, such as "fla-core 0.6.0". With the variable
COMPILE_ONLY no launch is run, so that most tests fail and none takes long.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.sources import ROOT
from statecheck.util import markdown
from statecheck.util.files import write_whole
from statecheck.util.markdown import code

RECORD = ROOT / "docs/results/kernel-operations.json"
_OPERATION = re.compile(
    r'^\s*(?:%[^=]*= )?"?((?:tt|arith|math|scf|cf|ub|llvm|ttg|gpu)\.[\w.]+)"?', re.MULTILINE
)
_SYMBOL = re.compile(r'symbol = "(\w+)"')
_UBIQUITOUS = frozenset(
    """tt.func tt.return tt.load tt.store tt.addptr tt.splat tt.broadcast tt.expand_dims tt.make_range tt.get_program_id arith.constant arith.addi
    arith.subi arith.muli arith.cmpi arith.andi arith.extsi arith.select arith.addf arith.subf arith.mulf arith.extf arith.truncf scf.for
    scf.yield scf.if tt.reduce.return tt.scan.return""".split()  # noqa: SIM905 - a list of fifty words
)
"""Nearly every kernel has them."""

Rows = dict[str, dict[str, Any]]


def operations_of(ir: str) -> list[str]:
    """The operations in a module's text; functions of libdevice by their symbols."""
    return sorted({*_OPERATION.findall(ir), *_SYMBOL.findall(ir)})


def pytest_configure() -> None:
    """Note what is compiled from now on."""
    import triton

    from statecheck.kernels import launch
    from statecheck.kernels.launch_counts import place_of
    from statecheck.kernels.source.compile import ttir
    from statecheck.kernels.source.ir import NotUnderstoodError

    plain = vars(launch)["compiled"]
    rows = _ROWS

    def compiled(source: Any, options: Any, backend: Any) -> Any:
        row = rows.setdefault(
            f"{source.fn.__name__} {place_of(source.fn.fn)}", {"operations": [], "unknown": [], "variants": 0}
        )
        row["variants"] += 1
        try:
            text = ttir(source, options, backend)
        except triton.CompilationError as error:
            reason = str(error).strip().splitlines()[-1]
            row["unknown"] = [f"Triton {triton.__version__} does not compile it: {reason}"]
            raise NotUnderstoodError(row["unknown"][0]) from error
        row["operations"] = sorted({*row["operations"], *operations_of(text)})
        try:
            return plain(source, options, backend)
        except NotUnderstoodError as unknown:
            row["unknown"] = sorted({*row["unknown"], str(unknown)})
            raise

    vars(launch)["compiled"] = compiled
    if os.environ.get("COMPILE_ONLY"):
        launch.Kernel.run = lambda *_: None  # type: ignore[method-assign]


_ROWS: Rows = {}


def pytest_sessionfinish() -> None:
    """Add the session's rows to the record."""
    release = os.environ["KERNELS_OF"]
    record = loaded(RECORD)
    known = record.setdefault(release, {})
    for kernel, row in _ROWS.items():
        before = known.get(kernel, {"operations": [], "unknown": [], "variants": 0})
        known[kernel] = {
            "operations": sorted({*before["operations"], *row["operations"]}),
            # The latest session knows what the executor knows.
            "unknown": row["unknown"],
            "variants": max(before["variants"], row["variants"]),
        }
    write_whole(RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")


def loaded(path: Path) -> dict[str, Rows]:
    """What has been recorded, by release."""
    record: dict[str, Rows] = json.loads(path.read_text()) if path.exists() else {}
    return record


def table() -> str:
    """A summary of all releases, how often each operation occurs, and a table of kernels for each release."""
    return "\n".join(_lines(loaded(RECORD)))


def _lines(record: dict[str, Rows]) -> Iterator[str]:
    rows = [
        (
            release,
            str(len(kernels)),
            str(sum(not row["unknown"] for row in kernels.values())),
            ", ".join(sorted({why for row in kernels.values() for why in row["unknown"]})) or "none",
        )
        for release, kernels in record.items()
    ]
    yield from markdown.table(("release", "kernels", "executed", "not known"), rows)
    yield ""
    counts = Counter(
        operation
        for kernels in record.values()
        for row in kernels.values()
        for operation in row["operations"]
        if operation not in _UBIQUITOUS
    )
    yield (
        "Operations beyond those that nearly every kernel has, and how many kernels have them: "
        + ", ".join(f"{code(operation)} {count}" for operation, count in counts.most_common())
    )
    for release, kernels in record.items():
        yield f"\n### {release}\n"
        yield from markdown.table(
            ("kernel", "file", "operations", "executed"),
            [
                _row(kernel, row)
                for kernel, row in sorted(kernels.items(), key=lambda item: item[0].split()[1])
            ],
        )


def _row(kernel: str, row: dict[str, Any]) -> tuple[str, str, str, str]:
    name, _, place = kernel.partition(" ")
    shown = [operation for operation in row["operations"] if operation not in _UBIQUITOUS]
    return (
        code(name),
        place,
        ", ".join(shown),
        "no: " + ", ".join(row["unknown"]) if row["unknown"] else "yes",
    )
