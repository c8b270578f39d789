"""The command `compatibility`: campaigns on several releases of vLLM, and the table of what came of them."""

from __future__ import annotations

import argparse
from typing import Any

from statecheck.cli.options import add_only_option, location
from statecheck.releases.start import go_on_in_release

__all__ = ["add_compatibility", "go_on_in_release"]

RELEASES = "0.20.2,0.22.1,0.24.0,0.25.1,0.26.0,0.27.1,0.28.0,0.29.0,0.31.0,0.32.0,0.33.0"


def add_compatibility(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "compatibility", help="campaigns on releases of vLLM, and a table: releases x properties"
    )
    parser.add_argument("--releases", default=RELEASES, help=f"versions (default {RELEASES})")
    parser.add_argument("--budget", default="3m", help="for each release: 90, 60s, 5m (default 3m)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    add_only_option(parser)
    parser.add_argument("--seed", type=int, default=None, help="repeat the campaigns' random choices")
    parser.add_argument(
        "--reports",
        type=location,
        default="reports/compatibility",
        help="where reports go, a folder for each release (default reports/compatibility/)",
    )
    parser.add_argument(
        "--from",
        dest="saved",
        type=location,
        metavar="FOLDER",
        help="make the table from saved campaigns only",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep the table, and put it into README.md and docs/compatibility.md",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from statecheck.cli.releases.compatibility_runs import run_compatibility

    return run_compatibility(options)
