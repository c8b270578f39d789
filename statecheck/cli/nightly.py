"""The command `nightly`: a campaign that people leave running."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click

from statecheck.campaign.plan import Plan, shard_of
from statecheck.campaign.record import require_id, saved_records
from statecheck.cli.campaign import console, plan_of, run_campaign
from statecheck.cli.options import (
    Duration,
    OptionsCommand,
    campaign_options,
    cores,
    corpus_option,
    option,
    require_processes,
)

_MOST_WORKERS = 8
_BUDGET = 8 * 3600.0
_CAMPAIGN = "CAMPAIGN"
"""The variable that has the campaign's name where a scheduler starts its shards."""


@click.command(cls=OptionsCommand)
@option("--budget", type=Duration(), help="how long: 90, 60s, 5m, 8h (default 8h)")
@option("--examples", type=int, help="how much, instead: so many examples in all")
@option("--gpus", default="", metavar="0,1,2", help="such as 0,1,2,3; all (default: the first one)")
@option("--engines", type=int, help="processes that search (default: by cores)")
@option("--workers", type=int, help="processes per GPU that run the subject (default: by cores)")
@corpus_option("failing cases are kept")
@option("--id", default="", metavar="NAME", help="the campaign's name; shards of one need the same")
@option("--shard", default="", metavar="K/N", help="part of a campaign: 2/8 is the second of eight shards")
@option("--ray", default="", metavar="ADDRESS", help="run its shards as tasks of a Ray cluster")
@option("--shards", type=int, help="with --ray: how many (default: by GPUs or machines)")
@campaign_options
def nightly(options: SimpleNamespace) -> int:
    """Run a campaign over hours, GPUs and machines that begins with the cases of the corpus, and write a report."""
    plan = planned(options, os.environ)
    named = bool(options.id or os.environ.get(_CAMPAIGN))
    return run_campaign(plan, console(), named=named, ray=options.ray, shards=options.shards or 0)


def planned(options: SimpleNamespace, environment: Mapping[str, str]) -> Plan:
    """The plan that options and variables ask for.

    Raises:
        ValueError: they contradict themselves or each other.
    """
    from statecheck.execution.executors import choose_device

    _require_one_amount(options)
    # This machine may be the one of a cluster that has no GPU.
    elsewhere = options.ray and options.device == "cuda"
    device = "cuda" if elsewhere else choose_device(options.device, options.subject)
    gpus = () if options.ray else _gpus(options.gpus, device)
    isolated = device != "cpu" if options.isolated is None else options.isolated
    workers, engines = _processes(options, max(1, len(gpus)), isolated=isolated)
    shard, shards = (0, 1) if options.ray else shard_of(environment, options.shard)
    name = _name(options, environment, shards)
    plan = plan_of(
        options,
        engines,
        device=device,
        gpus=gpus,
        workers=workers,
        shard=shard,
        shards=shards,
        budget=(options.budget or _BUDGET) if options.examples is None else None,
        examples=options.examples,
        corpus=str(options.corpus),
        **({"id": name} if name else {}),
    )
    return replace(plan, first_round=_first_round(plan))


def _require_one_amount(options: SimpleNamespace) -> None:
    if options.budget is not None and options.examples is not None:
        raise ValueError(f"examples = {options.examples}, but should not be given with a budget [nightly]")
    if options.examples is not None and options.examples < 1:
        raise ValueError(f"examples = {options.examples}, but should be >= 1 [nightly]")
    for name in ("gpus", "shard"):
        if options.ray and getattr(options, name):
            raise ValueError(f"ray = {options.ray!r}, but should not be given with {name} [nightly]")
    if options.shards is not None and not (options.ray and options.shards >= 1):
        rule = ">= 1" if options.ray else "given with ray"
        raise ValueError(f"shards = {options.shards}, but should be {rule} [nightly]")


def _name(options: SimpleNamespace, environment: Mapping[str, str], shards: int) -> str:
    """The name that was given; "" for a name by the time."""
    name: str = options.id or environment.get(_CAMPAIGN, "")
    if name:
        require_id(name, "id" if options.id else _CAMPAIGN)
    if shards > 1 and not name:
        rule = "the same name on every machine, by which `merge` finds the shards of a campaign"
        raise ValueError(f"CAMPAIGN = '', but should be {rule} [nightly]")
    return name


def _gpus(text: str, device: str) -> tuple[str, ...]:
    if device == "cpu":
        if text:
            raise ValueError(f"gpus = {text!r}, but should be empty on a CPU [nightly]")
        return ()
    there = _there()
    if not text:
        return there[:1]
    chosen = there if text == "all" else tuple(part.strip() for part in text.split(","))
    if not set(chosen) <= set(there) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"gpus = {text!r}, but should be different ones of {', '.join(there)}, or all [nightly]"
        )
    return chosen


def _there() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return tuple(part.strip() for part in visible.split(","))
    import torch

    return tuple(map(str, range(torch.cuda.device_count())))


def _processes(options: SimpleNamespace, gpus: int, *, isolated: bool) -> tuple[int, int]:
    """Workers per device, and engines in all: as many engines as cores, since each waits while a worker runs its example."""
    mine = cores()
    workers = options.workers
    if workers is None:
        workers = min(_MOST_WORKERS, max(1, mine * 3 // (8 * gpus))) if isolated else 1
    engines = options.engines
    if engines is None:
        engines = max(gpus, mine)
    require_processes("workers", workers, "nightly")
    return workers, require_processes("engines", engines, "nightly")


def _first_round(plan: Plan) -> int:
    """Rounds of the same commit go on where they were: the same seeds would find the same again."""

    def kind(one: Plan) -> tuple[object, ...]:
        return one.subject, one.device, one.only, one.shard, one.shards, one.commit.rstrip("+")

    records = saved_records(Path(plan.reports))
    same = (one for one in records if one.plan.seed is None and kind(one.plan) == kind(plan))
    return max((one.plan.first_round + one.rounds for one in same), default=0)
