"""The command `traces`: a given number of lives of requests, and how often each interesting moment came up."""

from __future__ import annotations

import argparse
import secrets
import sys
from typing import Any

from rich.console import Console

from properties.harness.cli_options import add_port_options, seconds, setting_of

_PLAIN_WIDTH = 160


def add_traces(commands: Any) -> None:
    """Add the command's parser."""
    traces = commands.add_parser(
        "traces", help="send generated requests through engines: so many traces, of so many steps at most"
    )
    traces.add_argument(
        "--count", type=int, default=300, help="how many traces, of all machines together (default 300)"
    )
    traces.add_argument("--steps", type=int, default=60, help="most rules of a trace (default 60)")
    traces.add_argument(
        "--budget", default="", help="how long at most: 90, 60s, 5m, 8h (default: until all are done)"
    )
    traces.add_argument("--only", default="", help="an expression over property names, as pytest's -k")
    traces.add_argument("--seed", type=int, default=None, help="repeat a run's random choices")
    traces.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    traces.add_argument("--reports", default="reports", help="where reports go (default reports/)")
    add_port_options(traces)
    traces.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    traces.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    traces.set_defaults(run=run_traces)


def run_traces(options: argparse.Namespace) -> int:
    """Run them, and print the table; the exit codes are those of a campaign.

    Raises:
        ValueError: an option that cannot be.
    """
    from properties.harness import cli, triton_mode
    from properties.harness.port import choose_device
    from properties.harness.registry import load_properties
    from properties.harness.traces import Traces, machines
    from properties.subjects import load

    for name in ("count", "steps", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}, but should be >= 1 [traces]")
    device = choose_device(options.device)
    triton_mode.prepare(device)
    tested = load_properties()
    chosen, skipped = cli.applicable(
        cli.select(machines(tested), options.only), tested, load(options.subject), device
    )
    setting = setting_of(options, device)
    budget = seconds(options.budget) if options.budget else None
    seed = secrets.randbits(31) if options.seed is None else options.seed
    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)
    traces = Traces(
        setting, chosen, options.count, options.steps, options.workers or cli.cores(), seed, budget
    )
    told = (
        f"subject {options.subject}, device {device}, {options.count:,} traces of up to {options.steps} rules"
    )
    console.print(f"{told}, {traces.workers} workers, seed {seed}", highlight=False)
    traces.run(console)
    for name, reason in skipped.items():
        console.print(f"not applicable: {name}: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(traces.table(tested))
    for failure in traces.failures:
        told = (
            f"{failure.status}: {failure.property}\n  {failure.detail}\n  report: {failure.report}/report.md"
        )
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    console.print(traces.conclusion(), markup=False, highlight=False, soft_wrap=True)
    return _exit_code(traces)


def _exit_code(traces: Any) -> int:
    from properties.harness import cli

    if any(failure.status == "falsified" for failure in traces.failures):
        return cli.FALSIFIED
    return cli.INCOMPLETE if traces.interrupted or traces.failures else cli.CLEAN
