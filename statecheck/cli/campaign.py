"""The commands `fuzz`, `nightly`, `exhaust` and `merge`, and what all commands that run a campaign have in common: its folder, what is shown, its
files, its exit code.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
from rich.console import Console
from rich.table import Table

from statecheck.campaign.plan import ENGINE, Plan, seed_of, shard_name, shard_of
from statecheck.campaign.record import FILE, CampaignRecord, require_id, saved_records
from statecheck.cli.options import (
    Duration,
    OptionsCommand,
    budget_option,
    campaign_options,
    cores,
    corpus_option,
    location,
    option,
    reports_option,
    require_own,
    require_processes,
    seed_option,
    together,
    workers_option,
)
from statecheck.cli.output import Unbreakable, finish
from statecheck.execution.verdict import CLEAN, INCOMPLETE
from statecheck.rooms import home
from statecheck.util import limits
from statecheck.util.command_lines import near
from statecheck.util.text import listed, said, say, visible
from statecheck.workers.commands import run_command

if TYPE_CHECKING:
    from statecheck.campaign.display import Display
    from statecheck.campaign.scheduler import Exhaustion

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
    from statecheck.campaign.display import Display, conclusion, print_sections, print_verdict
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
        where = f"GPU {','.join(mine.gpus)}" if mine.gpus else f"device {mine.device}"
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
            print_sections(display.say, record, display.width)
        else:
            record = _run_here(mine, display, more)
        with uninterrupted():
            code = print_verdict(display.say, record, mine.folder, display.width)
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
    from statecheck.campaign.display import print_sections
    from statecheck.campaign.report import write_reports

    say = display.say
    with display:
        campaign = Campaign(plan, display.watch)
        record = campaign.run()
        # Ctrl-C again while it ends would keep it from saying what it found.
        with uninterrupted():
            display.watch(campaign)
    with uninterrupted():
        print_sections(say, record, display.width)
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


def timed_plan(options: SimpleNamespace, command: str, **more: Any) -> Plan:
    """As `short_plan`, for a time (see `timed_options`), with fresh randomness.

    Raises:
        ValueError: an option that cannot be.
    """
    seed = secrets.randbits(32) if options.seed is None else options.seed
    return short_plan(options, command, seed=seed, budget=options.budget, **more)


def short_plan(options: SimpleNamespace, command: str, **more: Any) -> Plan:
    """As `plan_of`, on the cores of this machine, with failing cases beside the reports.

    Raises:
        ValueError: an option that cannot be.
    """
    from statecheck.execution.executors import choose_device

    device, workers = choose_device(options.device, options.subject, options.only), options.workers
    if workers is None:
        workers = 1 if device == "cuda" else cores()
    require_processes("workers", workers, command)
    return plan_of(options, workers, device=device, kept=str(options.reports / "corpus"), **more)


def commit_of(root: Path) -> str:
    """The commit of a checkout: 12 hexadecimal digits, "+" behind them where files were changed; "" unknown."""
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    return run_command(command, seconds=limits.COMMAND).stdout.strip()


_MOST_PER_GPU = 16
_BUDGET = 8 * 3600.0
_CAMPAIGN = "CAMPAIGN"
"""The variable that has the campaign's name where a scheduler starts its shards."""


@click.command(cls=OptionsCommand)
@option("--budget", type=Duration(), help="how long: 90, 60s, 5m, 8h (default 8h)")
@option("--examples", type=int, help="how much, instead: so many examples in all")
@option("--gpus", default="", metavar="0,1,2", help="such as 0,1,2,3; all (default: the first one)")
@option("--workers", type=int, help="processes (default: one per core, and at most 16 per GPU)")
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

    if options.budget is not None and options.examples is not None:
        raise ValueError(f"examples = {options.examples}, but should not be given with a budget [nightly]")
    if options.examples is not None and options.examples < 1:
        raise ValueError(f"examples = {options.examples}, but should be >= 1 [nightly]")
    for given in ("gpus", "shard"):
        if options.ray and getattr(options, given):
            raise ValueError(f"ray = {options.ray!r}, but should not be given with {given} [nightly]")
    if options.shards is not None and not (options.ray and options.shards >= 1):
        rule = ">= 1" if options.ray else "given with ray"
        raise ValueError(f"shards = {options.shards}, but should be {rule} [nightly]")
    # This machine may be the one of a cluster that has no GPU.
    elsewhere = options.ray and options.device == "cuda"
    device = "cuda" if elsewhere else choose_device(options.device, options.subject, options.only)
    gpus = () if options.ray else _gpus(options.gpus, device)
    workers = options.workers
    if workers is None:
        # At least one for each GPU, and no more than a GPU has memory for: two processes for each keep a context on it.
        workers = max(len(gpus), min(cores(), _MOST_PER_GPU * len(gpus) or cores()))
    require_processes("workers", workers, "nightly")
    shard, shards = (0, 1) if options.ray else shard_of(environment, options.shard)
    name: str = options.id or environment.get(_CAMPAIGN, "")
    if name:
        require_id(name, "id" if options.id else _CAMPAIGN)
    elif shards > 1:
        rule = "the same name on every machine, by which `merge` finds the shards of a campaign"
        raise ValueError(f"CAMPAIGN = '', but should be {rule} [nightly]")
    plan = plan_of(
        options,
        workers,
        device=device,
        gpus=gpus,
        shard=shard,
        shards=shards,
        budget=(options.budget or _BUDGET) if options.examples is None else None,
        examples=options.examples,
        corpus=str(options.corpus),
        **({"id": name} if name else {}),
    )

    def kind(one: Plan) -> tuple[object, ...]:
        return one.subject, one.device, one.only, one.shard, one.shards, one.commit.rstrip("+")

    # Rounds of the same commit go on where they were: the same seeds would find the same again.
    records = saved_records(Path(plan.reports))
    same = (record for record in records if record.plan.seed is None and kind(record.plan) == kind(plan))
    return replace(
        plan, first_round=max((record.plan.first_round + record.rounds for record in same), default=0)
    )


def _gpus(text: str, device: str) -> tuple[str, ...]:
    """The GPUs to use, as CUDA_VISIBLE_DEVICES names them."""
    if device == "cpu":
        if text:
            raise ValueError(f"gpus = {text!r}, but should be empty on a CPU [nightly]")
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        there = tuple(part.strip() for part in visible.split(","))
    else:
        import torch

        there = tuple(map(str, range(torch.cuda.device_count())))
    if not text:
        return there[:1]
    chosen = there if text == "all" else tuple(part.strip() for part in text.split(","))
    if not set(chosen) <= set(there) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"gpus = {text!r}, but should be different ones of {', '.join(there)}, or all [nightly]"
        )
    return chosen


@click.command(cls=OptionsCommand)
@timed_options
def exhaust(options: SimpleNamespace) -> int:
    """Try all inputs of each decision up to a bound that grows until the time is up."""
    options.seed = 0
    # A saved case is an input that is larger than the smallest.
    plan = timed_plan(options, "exhaust", exhaustive=True, replayed=False)
    return run_campaign(plan, console(wide=True), more=_bounds)


def _bounds(out: Console, campaign: Any, _: Path) -> None:
    """A row for each decision, and what its bound counts and leaves out."""
    out.print()
    out.print(table_of(campaign.exhaustion))
    # Of decisions of one meaning: what a bound counts, which inputs stand for others, and what no bound reaches.
    decisions: dict[tuple[str, str, str], list[str]] = {}
    for progress in campaign.exhaustion.progress.values():
        one = progress.enumeration
        decisions.setdefault((one.bound, one.symmetry, one.left_out), []).append(one.decision)
    for (bound, symmetry, left_out), names in decisions.items():
        lines = [f"{', '.join(names)}: a bound counts {bound}"]
        lines += [f"  tried once: {symmetry}"] if symmetry else []
        lines += [f"  left out: {left_out}"] if left_out else []
        for line in lines:
            out.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def table_of(exhaustion: Exhaustion) -> Table:
    """The last bound of each decision of which all inputs were tried, their number, and how far the next one came."""
    table = Table(show_edge=False, pad_edge=False)
    for name in ("decision", "property", "bound", "inputs", "of the next bound"):
        table.add_column(name, justify="right" if name in ("bound", "inputs") else "left")
    for progress in exhaustion.progress.values():
        if progress.property_state.reason:
            reached = ("", "0", f"not applicable: {progress.property_state.reason}")
        else:
            state = "falsified" if progress.falsified else "incomplete"
            next_bound = f"{progress.bound}: {state}, {progress.begun:,} inputs"
            reached = (
                str(progress.bound - 1) if progress.bound else "none",
                f"{progress.complete:,}",
                next_bound,
            )
        table.add_row(progress.enumeration.decision, progress.enumeration.property, *reached)
    return table


@dataclass
class _Found:
    """Records of one campaign by their files, and sentences about what is not among them."""

    records: dict[Path, CampaignRecord] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


@click.command(cls=OptionsCommand)
@click.argument("folders", nargs=-1, required=True, type=location, metavar="FOLDER...")
@option("--id", default="", metavar="NAME", help="the campaign's name, where the folders hold several")
@reports_option
@corpus_option("failing cases are kept")
def merge(options: SimpleNamespace) -> int:
    """Add up the shards of a campaign that lie below the FOLDERs, and write its report; of a whole campaign, the report again."""
    from statecheck.campaign.display import print_verdict
    from statecheck.campaign.merge import merge_records, write_merged

    require_own(options.reports, "reports", "reports")
    require_own(options.corpus, "corpus", "corpus")
    if options.id:
        require_id(options.id, "id")
    found = _found(options.folders, options.id)
    for sentence in found.left_out:
        say(f"left out: {said(sentence)}", sys.stderr)
    if not found.records:
        what = f"campaign {options.id}" if options.id else "campaign"
        raise ValueError(
            f"folders = {', '.join(map(near, options.folders))}, but should hold a {what} in {FILE} [merge]"
        )
    whole = merge_records(list(found.records.values()), list(map(str, found.records)))
    whole.warnings += found.left_out
    whole = write_merged(whole, options.reports, options.corpus)
    for warning in whole.warnings:
        say(f"warning: {said(warning)}")
    code = print_verdict(say, whole, options.reports / "campaigns" / whole.plan.id)
    return code or (INCOMPLETE if found.left_out else CLEAN)


def _found(folders: Iterable[Path], wanted: str) -> _Found:
    """The records of one campaign in the folders.

    Raises:
        ValueError: several campaigns, of which none was chosen.
    """
    found = _Found()
    # Everything that is called as a record is, whatever it is; each once, though folders may be given twice or lie in each other.
    paths: dict[str, Path] = {}
    for given in folders:
        below = [given] if given.is_file() else []
        for place, inner, files in os.walk(given):
            below += [Path(place, FILE)] if FILE in (*inner, *files) else []
        paths |= {os.path.realpath(path): path for path in sorted(below)}
    for path in paths.values():
        try:
            record = CampaignRecord.load(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            found.left_out.append(f"{near(path)} cannot be read: {why}")
            continue
        if not wanted or record.plan.id == wanted:
            found.records[path] = record
    if any(record.plan.shards > 1 for record in found.records.values()):
        # What an earlier merge made of shards is none of them, nor is another campaign that never had any.
        found.records = {path: record for path, record in found.records.items() if record.plan.shards > 1}
    names = sorted({record.plan.id for record in found.records.values()})
    if len(names) > 1:
        rule = "the name of one of the campaigns in the folders"
        raise ValueError(f"id = {wanted!r}, but should be {rule}, {', '.join(names)} [merge]")
    return found
