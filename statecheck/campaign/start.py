"""What a campaign begins with, and the signals that end it."""

from __future__ import annotations

import datetime as dt
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statecheck.campaign.conformance import profile_of, unsupported, with_xfails
from statecheck.campaign.corpus import Keeper, kept_in
from statecheck.campaign.known_defects import KnownDefects
from statecheck.campaign.plan import Plan
from statecheck.campaign.processes.pool import device_names
from statecheck.campaign.processes.tasks import unit_name
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.state import CampaignState
from statecheck.subject import BUILT_IN, Subject, load
from statecheck.subject.identity import SOURCE, source_of


def begin(plan: Plan) -> tuple[CampaignState, KnownDefects, Keeper, Mapping[str, int]]:
    """The empty state, the declared defects, the keeper of failing cases, and the number of examples that a profile has of each property.

    Raises:
        ValueError: a plan that cannot be carried out.
    """
    from statecheck.campaign.marks import effects, expected
    from statecheck.execution.enumerations import enumerated
    from statecheck.execution.registry import load_properties
    from statecheck.execution.selection import applicable, require_declared_properties, select

    if plan.budget is None and plan.examples is None and not plan.profile:
        raise ValueError("(budget, examples) = (None, None), but should be one of them at least [campaign]")
    subject, tested = with_xfails(plan, loaded(plan.subject, plan.device)), load_properties()
    require_declared_properties(subject)
    offered = enumerated(tested, plan.device) if plan.exhaustive else sorted(tested)
    examples = profile_of(plan.profile).examples(subject) if plan.profile else {}
    if plan.profile:
        offered = [name for name in offered if tested[name].id in examples]
    names = sorted(select(offered, plan.only), key=lambda name: tested[name].launches)
    chosen, skipped = applicable(names, tested, subject, plan.device)
    refused = unsupported(plan, tested)
    skipped = {name: why for name, why in refused.items() if name in names} | skipped
    explored = [name for name in chosen if name not in skipped]
    # The models of a library of sequences, each for itself; those that the port, or the plan's file, declares as unsupported have a reason.
    configurations: dict[str, Sequence[str]] = {}
    choices = subject.sequences
    if choices is not None:
        configurations = {name: choices.all_models for name in explored if tested[name].held}
        for model in choices.all_models if configurations else ():
            reasons = unsupported(plan, tested, model)
            if why := choices.why_unsupported(model):
                reasons |= dict.fromkeys(configurations, f"declared as unsupported: {why}")
            skipped |= {unit_name(name, model): reasons[name] for name in configurations if name in reasons}
    every, _ = applicable(sorted(tested), tested, subject, plan.device)
    record = CampaignRecord(
        plan,
        release=subject.release,
        devices=device_names(plan.device, plan.gpus),
        began=dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        applicable=sum(name not in refused for name in every),
    )
    state = CampaignState(
        record,
        [tested[name] for name in names],
        skipped,
        lambda: [
            *expected(explored, plan.device),
            *effects(subject, (tested[name].id for name in explored)),
        ],
        first_seen(plan, subject),
        # A corpus that is replayed says for itself which cases it has.
        kept_before=kept_in(Path(plan.kept)) if plan.kept else frozenset(),
        configurations=configurations,
    )
    for name in names:
        if name not in chosen:
            state.property_states[name].record.lacks = tested[name].lacking(subject)
    keeper = Keeper(Path(plan.keeps_in), Path(plan.reports), lambda: subject.module, state.trouble)
    state.keeper = keeper
    defects = KnownDefects(
        subject.known_deviations,
        selected=plan.is_selective,
        tolerates_fixed=plan.tolerates_fixed,
        profile=subject.profile,
    )
    record.known = [*defects.all.values()]
    return state, defects, keeper, examples


def loaded(name: str, device: str) -> Subject:
    """The subject, of whose import nothing reaches the output of the campaign; see `subject.load`.

    Raises:
        ValueError: nothing of that name can be imported, or the import ends the process, or does not end.
    """
    from statecheck.campaign.processes.output import output_dropped
    from statecheck.workers.port import InWorker

    with output_dropped():
        if name.partition("+")[0] not in BUILT_IN and name not in sys.modules:
            with InWorker(name, device, spare=False) as port:
                port.require_import()
        return load(name)


def first_seen(plan: Plan, subject: Subject) -> dict[str, str]:
    """The date and commit of what is found, and which source of the subject it is found in."""
    today = dt.datetime.now().astimezone().date().isoformat()
    return {"date": today, "commit": plan.commit or "unknown", SOURCE: source_of(subject)}


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Take SIGTERM, with which schedulers end a job, and SIGHUP, of a closed terminal, for Ctrl-C.

    Not where they are ignored already, as under nohup.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    with _handled([one for one in numbers if signal.getsignal(one) is not signal.SIG_IGN], interrupt):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore signals that ask the campaign to end: it is ending, and writes down what it found."""
    with _handled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIG_IGN):
        yield


@contextmanager
def _handled(numbers: list[signal.Signals], handler: Any) -> Iterator[None]:
    """Set the handler of these signals for a while; outside of the main thread nothing is set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, previous in zip(numbers, before, strict=True):
            signal.signal(number, previous)
