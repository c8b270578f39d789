"""What a campaign begins with, and how it is told to end."""

from __future__ import annotations

import datetime as dt
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from properties.harness.nightly.gpus import device_names
from properties.harness.nightly.ledger import Ledger
from properties.harness.nightly.plan import Plan
from properties.harness.nightly.record import Record


def begun(plan: Plan) -> tuple[Record, Ledger, set[str], frozenset[str]]:
    """An empty record, what is to be known, which properties may deviate, and which are machines."""
    from properties.harness.cli import applicable, select
    from properties.harness.marks import expected, load
    from properties.harness.registry import load_properties
    from properties.harness.report import environment
    from properties.harness.traces import machines
    from properties.subjects import load as load_subject

    if (plan.budget is None) == (plan.examples is None):
        both = f"({plan.budget}, {plan.examples})"
        raise ValueError(f"(budget, examples) = {both}, but should be one of them and None [nightly]")
    load()
    subject, tested = load_subject(plan.subject), load_properties()
    names = sorted(select(sorted(tested), plan.only), key=lambda name: tested[name].launches)
    chosen, skipped = applicable(names, tested, subject, plan.device)
    ledger = Ledger(
        [tested[name] for name in names], skipped, expected(chosen, plan.device), first_seen(plan)
    )
    record = Record(
        plan.id,
        plan.subject,
        plan.device,
        plan.commit,
        plan.only,
        plan.shard,
        plan.shards,
        device_names(plan.device, plan.gpus),
        plan.engines,
        dt.datetime.now().astimezone().isoformat(timespec="seconds"),
        first_round=plan.first_round,
        budget=plan.budget,
        examples_wanted=plan.examples,
        environment=environment(),
    )
    declared = set(filter(None, (one.alone for one in subject.known_deviations)))
    return record, ledger, declared, frozenset(machines(tested))


def first_seen(plan: Plan) -> dict[str, str]:
    """The date and commit of what is found."""
    today = dt.datetime.now().astimezone().date().isoformat()
    return {"date": today, "commit": plan.commit or "unknown"}


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While it is entered, SIGTERM, with which schedulers end a job, and SIGHUP, with which a terminal goes, are Ctrl-C.

    In the main thread only, and not where they are ignored already, as under nohup.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signals = [signal.SIGTERM, signal.SIGHUP]
    signals = [one for one in signals if signal.getsignal(one) is not signal.SIG_IGN]
    before = [signal.signal(one, interrupt) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)
