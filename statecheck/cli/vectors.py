"""The command `vectors`: conformance vectors for ports in any language and on any hardware."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from statecheck.cli.folders import require_own
from statecheck.cli.options import add_only_option, location
from statecheck.data.marked import mark
from statecheck.execution.verdict import CLEAN

_DESCRIPTION = """Write a corpus of conformance vectors: inputs, and what the rules expect of them, drawn by the properties
themselves. JSON for values, NPZ for bytes; README.md and schema.json in the folder say how to read them, and
check.js shows it. The same sources, seed and number of examples make the same files."""
EXAMPLES = 40


def add_vectors(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "vectors",
        help="write inputs and expected results for ports to other languages",
        description=_DESCRIPTION,
    )
    parser.add_argument("--out", type=location, required=True, metavar="DIR", help="where the corpus goes")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, help=f"drawn of each property (default {EXAMPLES})"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default 0)")
    add_only_option(parser)
    parser.set_defaults(run=run_vectors)


def run_vectors(options: argparse.Namespace) -> int:
    """Draw, choose and write.

    Raises:
        ValueError: an option that cannot be, or properties that call no function with vectors.
    """
    from statecheck.execution.selection import select
    from statecheck.vectors.choose import Recording
    from statecheck.vectors.record import recordable, recorded
    from statecheck.vectors.topics import FUNCTIONS
    from statecheck.vectors.write import Origin, write

    if options.examples < 1:
        raise ValueError(f"examples = {options.examples}, but should be >= 1 [vectors]")
    require_own(options.out, "vectors", "out", "vectors")
    tested = {name.name: name for name in recordable(FUNCTIONS)}
    chosen = [tested[name] for name in select(list(tested), options.only, tested)]
    recording = Recording()
    recorded(chosen, recording.note, seed=options.seed, examples=options.examples)
    vectors = recording.chosen()
    mark(options.out, "vectors")
    index = write(vectors, options.out, Origin(options.seed, options.examples, options.only))
    _tell(index, options.out)
    return CLEAN


def _tell(index: dict[str, Any], folder: Path) -> None:
    for file in index["files"]:
        counts = file["functions"]
        print(f"{file['file']}: {sum(counts.values())} vectors of {len(counts)} functions")
    print(
        f"{index['vectors']} vectors, {len(index['marks'])} marks, in {folder}/; check: node {folder}/check.js"
    )
