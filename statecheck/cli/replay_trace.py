"""The command `replay-trace`: recorded traffic on its way through a subject's own engine."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import click
from rich.console import Console

from statecheck.cli.options import OptionsCommand, location, option, require_own, subject_options, together

_PLAIN_WIDTH = 120
_OPTIONS: dict[str, tuple[type, object, str]] = {
    "requests": (int, 2000, "how many of the trace, at most"),
    "factor": (int, 64, "what lengths are divided by, a divisor of 512"),
    "runner": (str, "V2", "V1 keeps requests in rows, V2 in slots"),
    "block-size": (int, None, "tokens of a block (default 512 / factor)"),
    "blocks": (int, None, "how many (default: scarce)"),
    "tokens": (int, None, "most tokens of a step (default 65536 / factor)"),
    "max-num-seqs": (int, 16, "requests that run at a time"),
    "num-spec": (int, 3, "most drafts of a request in a step"),
    "method": (str, "ngram", "where drafts come from: ngram, or eagle, a model"),
    "acceptance": (float, 0.7, "how likely a draft is accepted after those before it"),
    "layout": (str, "SD", "of conv states: SD or DS"),
    "seed": (int, 0, "repeat another replay's random choices, or make others"),
}


@click.command("replay-trace", cls=OptionsCommand)
@click.argument("trace", type=location)
@subject_options(default="vllm")
@option("--out", type=location, default="build/replay", metavar="FOLDER", help="where files go")
@together(
    *(
        option(f"--{name}", type=kind, default=default, help=about)
        for name, (kind, default, about) in _OPTIONS.items()
    )
)
@option("--async-scheduling/--no-async-scheduling", default=None, help="(default: as the release chooses)")
def replay_trace(options: SimpleNamespace) -> int:
    """Send recorded traffic, a TRACE in the Mooncake format, through a release's own engine, and hold every step against the laws."""
    from statecheck.kernels import triton_mode

    require_own(options.out, "replay-trace", "out")
    # Decided before the subject is imported.
    triton_mode.prepare("cpu")
    from properties.releases.replay import ReplayOptions, replay

    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)
    return replay(ReplayOptions(**vars(options)), console)
