"""The command `replay-trace`: recorded traffic on its way through a subject's own engine."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console

from statecheck.cli.folders import require_own
from statecheck.cli.options import location

_PLAIN_WIDTH = 120
_OPTIONS: tuple[tuple[str, type, object, str], ...] = (
    ("requests", int, 2000, "how many of the trace, at most"),
    ("factor", int, 64, "what lengths are divided by, a divisor of 512"),
    ("runner", str, "V2", "V1 keeps requests in rows, V2 in slots"),
    ("block-size", int, None, "tokens of a block (default 512 / factor)"),
    ("blocks", int, None, "how many (default: scarce)"),
    ("tokens", int, None, "most tokens of a step (default 65536 / factor)"),
    ("max-num-seqs", int, 16, "requests that run at a time"),
    ("num-spec", int, 3, "most drafts of a request in a step"),
    ("method", str, "ngram", "where drafts come from: ngram, or eagle, a model"),
    ("acceptance", float, 0.7, "how likely a draft is accepted after those before it"),
    ("layout", str, "SD", "of conv states: SD or DS"),
    ("seed", int, 0, "repeat another replay's random choices, or make others"),
)


def add_replay_trace(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "replay-trace",
        help="send recorded traffic through a release's own engine, and hold every step against the laws",
    )
    parser.add_argument(
        "trace", type=location, help="recorded requests in the Mooncake format, one JSON object a line"
    )
    parser.add_argument(
        "--subject", default="vllm", help="one with an engine of its own, such as vllm (default vllm)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, where the engine runs (default cpu)")
    parser.add_argument(
        "--out", type=location, default="build/replay", help="where files go (default build/replay/)"
    )
    for name, kind, default, what in _OPTIONS:
        usual = "" if default is None else f" (default {default})"
        parser.add_argument(f"--{name}", type=kind, default=default, help=what + usual)
    parser.add_argument(
        "--async-scheduling",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="(default: with it, as vLLM chooses, but for V1 with ngram)",
    )
    parser.set_defaults(run=run_replay_trace)


def run_replay_trace(options: argparse.Namespace) -> int:
    """Replay, and leave the files; the exit codes are those of a campaign.

    Raises:
        ValueError: an option that cannot be.
    """
    from statecheck.kernels import triton_mode

    require_own(options.out, "replay-trace", "out", "replay-trace")
    # Decided before the subject is imported.
    triton_mode.prepare("cpu")
    from properties.engine.traffic.options import ReplayOptions
    from properties.engine.traffic.release import replay

    given = {name: value for name, value in vars(options).items() if name != "run"}
    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)
    return replay(ReplayOptions(**given), console)
