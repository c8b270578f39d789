"""What all commands that run a campaign have in common: its folder, what is shown, its files, its exit code."""

from __future__ import annotations

import datetime as dt
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
from rich.console import Console

from statecheck.campaign.plan import ENGINE, Plan, seed_of, shard_name
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.campaign.terminal.output import Unbreakable, finish
from statecheck.cli.options import (
    OptionsCommand,
    budget_option,
    campaign_options,
    cores,
    option,
    require_own,
    require_processes,
    seed_option,
    together,
    workers_option,
)
from statecheck.execution.selection import listed
from statecheck.rooms import home
from statecheck.util.terminal import said
from statecheck.workers import limits
from statecheck.workers.commands import run_command

if TYPE_CHECKING:
    from statecheck.campaign.terminal.display import Display

_PLAIN_WIDTH = 120
_WIDE = 160
More = Callable[[Console, object, Path], None]


def console(*, wide: bool = False) -> Console:
    """Standard output, which is as wide as tables need where it is no terminal."""
    stream = sys.stdout if isinstance(sys.stdout, Unbreakable) else Unbreakable(sys.stdout)
    width = None if stream.isatty() else _WIDE if wide else _PLAIN_WIDTH
    return Console(file=cast("TextIO", stream), width=width)


timed_options = together(budget_option, workers_option, campaign_options)
"""Of a campaign of a minute."""


@click.command(cls=OptionsCommand)
@seed_option
@option("-x", "--exitfirst", is_flag=True, help="end when the first failure has its report")
@timed_options
def fuzz(options: SimpleNamespace) -> int:
    """Run all properties with fresh randomness until the time is up."""
    return run_campaign(timed_plan(options, "fuzz"), console())


def run_campaign(
    plan: Plan,
    out: Console,
    *,
    named: bool = False,
    ray: str = "",
    shards: int = 0,
    more: More | None = None,
) -> int:
    """Run it, show what it comes to, and write its folder; the exit code.

    Args:
        named: the name was given, not made of the time.
        ray: address of a cluster that runs its shards, "" for none.
        shards: how many the cluster runs, 0 for as many as it has places for.
        more: shows what else there is to tell, from the campaign and its folder.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    from statecheck.campaign.coordinator import uninterrupted
    from statecheck.campaign.corpus import claimed
    from statecheck.campaign.terminal.display import Display, conclusion
    from statecheck.campaign.terminal.results import print_failures, print_known, print_verdict
    from statecheck.workers.forking import start_server
    from statecheck.workers.forkserver import kernels_of

    require_own(Path(plan.reports), "reports", "reports")
    if not plan.kept:
        require_own(Path(plan.corpus), "corpus", "corpus")
    if not ray:
        # Before the subject is imported here, since workers are forked from what is here by then.
        start_server(kernels_of(plan.subject, plan.device), ENGINE.partition(":")[0])
    offers = "" if ray else _offers(plan)
    display = Display(out)
    with claimed(plan, named=named) as mine:
        amount = [f"{mine.budget:,.0f} s"] if mine.budget is not None else []
        amount += [f"{mine.examples:,} examples"] if mine.examples is not None else []
        amount += [f"profile {mine.profile}"] if mine.profile else []
        gpus = f"GPU {','.join(mine.gpus)}, {mine.workers} workers each"
        where = gpus if mine.gpus else f"device {mine.device}"
        display.say(
            f"campaign {mine.id}: subject {mine.subject}, {where}, {mine.engines} workers, {', '.join(amount)}"
        )
        begins = f"round {mine.first_round}: seed {seed_of(mine, mine.first_round)}"
        shard = f", shard {shard_name(mine.shard, mine.shards)}" if mine.shards > 1 else ""
        seed = begins if mine.seed is None else f"seed {mine.seed}"
        display.say(f"commit {mine.commit or 'unknown'}{shard}, {seed}")
        if offers:
            display.say(offers)
        if ray:
            from statecheck.campaign.cluster import run_on_ray

            record = run_on_ray(mine, ray, shards, display.say)
            print_known(display.say, record.known)
            print_failures(display.say, record)
        else:
            record = _run_here(mine, display, more)
        with uninterrupted():
            code = print_verdict(display.say, record, mine.folder)
            display.say(conclusion(record))
    finish()
    return code


def _offers(plan: Plan) -> str:
    """What the subject offers; machines of a cluster may be the only ones that have it.

    Raises:
        ValueError: not what the plan requires.
    """
    from statecheck.campaign.coordinator import loaded
    from statecheck.execution.selection import Offers

    subject = loaded(plan.subject, plan.device)
    offers = Offers(subject)
    offers.require(plan.require)
    if subject.sequences is None:
        return offers.sentence
    # The first list of a library's models may take a minute, which is no part of the budget.
    return f"{offers.sentence}\nmodels: {len(subject.sequences.models)}"


def _run_here(plan: Plan, display: Display, more: More | None) -> CampaignRecord:
    """Run the campaign on this machine, show what it comes to, and write its record and pages, as far as the disk takes them."""
    from statecheck.campaign.coordinator import Campaign, uninterrupted
    from statecheck.campaign.corpus import not_written
    from statecheck.campaign.pages.page import write_reports
    from statecheck.campaign.terminal.display import kernels, summary
    from statecheck.campaign.terminal.results import print_failures, print_known

    say = display.say
    with display:
        campaign = Campaign(plan, display.watch)
        record = campaign.run()
        # Ctrl-C again while it ends would keep it from saying what it found.
        with uninterrupted():
            display.watch(campaign)
    with uninterrupted():
        display.console.print(summary(record))
        if launched := kernels(record):
            say(launched)
        print_known(say, record.known)
        print_failures(say, record)
        known = len(record.warnings)
        write_reports(record, plan.folder)
        for warning in record.warnings[known:]:
            say(f"warning: {said(warning)}")
        latest = Path(plan.reports) / FILE
        try:
            # The latest record, under a name that does not change.
            record.save(latest)
        except OSError as error:
            say(f"warning: {said(not_written(latest, error))}")
        if more is not None:
            more(display.console, campaign, plan.folder)
    return record


def plan_of(options: SimpleNamespace, engines: int, **more: Any) -> Plan:
    """The plan that the options of all campaigns describe.

    Args:
        engines: processes that search.
        more: other fields of `Plan`.

    Raises:
        ValueError: an option that cannot be.
    """
    commit, now = commit_of(home()), dt.datetime.now().astimezone()
    plan = Plan(
        # People look for a campaign by its time.
        id=f"{now:%Y-%m-%d-%H%M%S}-{commit.rstrip('+')[:7] or 'unknown'}",
        subject=options.subject,
        only=options.only,
        device=options.device,
        engines=engines,
        commit=commit,
        reports=str(options.reports),
        isolated=options.isolated,
        time_limit=options.time_limit,
        sanitized=options.sanitized,
        as_new=options.as_new,
        require=listed(options.require),
        fail_on_untested=options.fail_on_untested,
        exit_first=getattr(options, "exitfirst", False),
    )
    return replace(plan, **more)


def timed_plan(options: SimpleNamespace, command: str, device: str = "", **more: Any) -> Plan:
    """As `short_plan`, for a time (see `timed_options`), with fresh randomness.

    Raises:
        ValueError: an option that cannot be.
    """
    seed = secrets.randbits(32) if options.seed is None else options.seed
    return short_plan(options, command, device, seed=seed, budget=options.budget, **more)


def short_plan(options: SimpleNamespace, command: str, device: str = "", **more: Any) -> Plan:
    """As `plan_of`, on the cores of this machine, with failing cases beside the reports.

    Args:
        device: "" for the one that the options choose.

    Raises:
        ValueError: an option that cannot be.
    """
    from statecheck.execution.executors import choose_device

    device, workers = device or choose_device(options.device, options.subject), options.workers
    if workers is None:
        workers = 1 if device == "cuda" else cores()
    require_processes("workers", workers, command)
    return plan_of(options, workers, device=device, kept=str(options.reports / "corpus"), **more)


def commit_of(root: Path) -> str:
    """The commit of a checkout: 12 hexadecimal digits, "+" behind them where files were changed; "" unknown."""
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    return run_command(command, seconds=limits.COMMAND).stdout.strip()
