"""The command `sanitize-gpu`: cases under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console

from statecheck.cli.folders import require_own
from statecheck.cli.options import add_only_option, location, seconds
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE

_PLAIN_WIDTH = 160
_DESCRIPTION = """Run cases on a GPU while compute-sanitizer watches each access of their kernels. It serialises the
programs of a kernel, so that the values which come out prove nothing, and nothing is compared. racecheck has to be asked
for: it watches shared memory only, and misses updates that are lost in global memory, where states are. Races there are found on
a CPU, by every search for counterexamples."""


def add_sanitize_gpu(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "sanitize-gpu", help="run cases under compute-sanitizer on a GPU", description=_DESCRIPTION
    )
    parser.add_argument(
        "cases",
        type=location,
        nargs="*",
        help="case files, or folders of them (default: those in corpus/ and reports/, and recorded examples)",
    )
    parser.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    parser.add_argument(
        "--tools",
        default="memcheck,initcheck",
        help="of memcheck, initcheck, racecheck (shared memory only) and synccheck; default memcheck,initcheck",
    )
    parser.add_argument(
        "--examples", type=int, default=3, help="recorded of each property that launches kernels (default 3)"
    )
    add_only_option(parser)
    parser.add_argument("--seed", type=int, default=None, help="record the examples of another run again")
    parser.add_argument("--timeout", default="600s", help="for each tool: 90, 60s, 5m, 8h (default 600s)")
    parser.add_argument(
        "--out",
        type=location,
        default="build/sanitize-gpu",
        help="where cases, logs and findings.json go (default build/sanitize-gpu/)",
    )
    parser.set_defaults(run=run_sanitize_gpu)


def run_sanitize_gpu(options: argparse.Namespace) -> int:
    """Run the tools; 0 without a finding, 1 with one, 2 where not every case was run to its end.

    Raises:
        ValueError: an option that cannot be, no compute-sanitizer, or no GPU.
    """
    from statecheck.workers.compute_sanitizer.start import SanitizeOptions, sanitize

    asked = SanitizeOptions(
        cases=options.cases,
        subject=options.subject,
        tools=_tools(options.tools),
        examples=_not_negative(options.examples),
        out=options.out,
        only=options.only,
        seed=options.seed,
        timeout=seconds(options.timeout),
    )
    require_own(options.out, "sanitize-gpu", "out", "sanitize-gpu")
    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)
    runs = sanitize(asked, console)
    if any(run.own for run in runs):
        return FALSIFIED
    return INCOMPLETE if any(run.trouble for run in runs) else CLEAN


def _tools(text: str) -> list[str]:
    from statecheck.workers.compute_sanitizer.start import TOOLS

    tools = list(dict.fromkeys(filter(None, text.split(","))))
    if not tools or not set(tools) <= set(TOOLS):
        raise ValueError(f"tools = {text!r}, but should be some of {', '.join(TOOLS)} [sanitize-gpu]")
    return tools


def _not_negative(examples: int) -> int:
    if examples < 0:
        raise ValueError(f"examples = {examples}, but should be >= 0 [sanitize-gpu]")
    return examples
