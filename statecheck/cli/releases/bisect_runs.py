"""Runs a bisection: what is asked for, what it will take, each verdict as it comes, and at the end a line and a table."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import InvalidVersion, Version
from rich.table import Table

from statecheck.campaign.corpus import path_of
from statecheck.case import Case
from statecheck.cli.campaign import console
from statecheck.cli.options import seconds
from statecheck.execution.port import choose_device
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.releases.bisect import search
from statecheck.releases.command import PROGRAM
from statecheck.releases.environment import ROOT, Maker, this_base
from statecheck.releases.pip import releases_of
from statecheck.releases.replays import Replays
from statecheck.releases.start import wanted_by, wanted_release
from statecheck.report.bisection import FILE, RIGHT, WRONG, Bisection, TriedRelease
from statecheck.report.markdown import add_bisection
from statecheck.text.command_lines import RELEASED, command_line, option
from statecheck.text.terminal import cell, said, say

OLDEST = "0.20.2"
"""The oldest release that there are adapters and rules for."""
_MEGABYTES = 300
"""Of a release, as it is downloaded."""


def run_bisect(options: argparse.Namespace, program: Sequence[str] = PROGRAM) -> int:
    """Bisect, show it, and keep it in the case's report, if it stands in one; also what is known when it is interrupted.

    Args:
        program: what replays the case on a release.

    Raises:
        ValueError: an option that cannot be, or a case that cannot be read.
    """
    path = path_of(options.case, options.corpus)
    case = _case_in(path)
    subject = options.released or case.subject
    if subject != RELEASED:
        raise ValueError(f"subject = {subject!r}, but should be {RELEASED}, which has releases [bisect]")
    seconds(options.time_limit, "time_limit")
    replays = Replays(path, choose_device(options.device), options.time_limit, program)
    found = _bisected(options, replays)
    _show(found, path, options)
    # What is known when it is interrupted replaces nothing that may be whole.
    if _is_report_of(path) and not (found.interrupted and (path.parent / FILE).exists()):
        add_bisection(path.parent, found)
        say(f"report: {path.parent / 'report.md'}")
    if found.interrupted:
        return INCOMPLETE
    state = found.newest.state if found.newest else None
    return {RIGHT: CLEAN, WRONG: FALSIFIED}.get(state or "", INCOMPLETE)


def _case_in(path: Path) -> Case:
    try:
        return Case.load(path)
    except OSError as error:
        raise ValueError(f"case = {str(path)!r}, but should be a readable file [bisect]: {error}") from error


def _is_report_of(path: Path) -> bool:
    return path.name == "case.json" and (path.parent / "report.md").is_file()


def _bisected(options: argparse.Namespace, replays: Replays) -> Bisection:
    if os.environ.get("VLLM_PATH"):
        rule = "not set: releases are tried; `git bisect run python repro.py --bisect` goes through commits"
        raise ValueError(f"VLLM_PATH = {os.environ['VLLM_PATH']!r}, but should be {rule} [bisect]")
    wanted, maker = wanted_by(os.environ), Maker(this_base(ROOT), ROOT)
    asked = _listed(options.releases)
    names = asked or _of_index()
    ready = [name for name in names if maker.is_ready(wanted_release(name))]
    # The one that the case was seen with is the one that is known to be wrong.
    first = [*([wanted.version] if wanted else []), *ready]
    bisection = Bisection(tuple(names), complete=not asked)
    many = f"{len(names)} releases, {names[0]} to {names[-1]}; {len(ready)} are set up in {maker.root}"
    if len(ready) < len(names):
        many += f"; each other one that is tried downloads about {_MEGABYTES} MB once, and takes a minute to set up"
    say(many)
    if not asked:
        say(f"{option('releases', '0.25.1,0.33.0')} tries only these")
    return search(bisection, _saying(replays.on_release), first, everything=options.all)


def _listed(text: str) -> list[str]:
    """The releases that are asked for, oldest first."""
    named = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    for one in named:
        wanted_release(one)
    try:
        return sorted(named, key=Version)
    except InvalidVersion as error:
        raise ValueError(
            f"releases = {text!r}, but should be versions such as 0.25.1,0.33.0 [bisect]: {error}"
        ) from None


def _of_index() -> list[str]:
    found = releases_of(Path(sys.executable), RELEASED)
    names = [one for one in found if Version(one) >= Version(OLDEST)]
    if not names:
        raise ValueError(f"releases = none in the index, but should be some since {OLDEST} [bisect]")
    return names


def _saying(try_release: Callable[[str], TriedRelease]) -> Callable[[str], TriedRelease]:
    def try_and_say(name: str) -> TriedRelease:
        found = try_release(name)
        say(f"{name}: {found.verdict} ({found.seconds:.0f} s): {said(found.message)}")
        return found

    return try_and_say


def _show(found: Bisection, path: Path, options: argparse.Namespace) -> None:
    table = Table("release", "verdict", "", box=None, pad_edge=False)
    for row in found.rows:
        table.add_row(*map(cell, row))
    out = console()
    out.print()
    out.print(table)
    for remark in found.remarks:
        say(said(remark))
    if found.untried and not any(release.state == WRONG for release in found.tried):
        say(
            "None of the releases that were tried is wrong: VLLM=<release> names the one that the case was seen with."
        )
    if found.untried:
        given = {"releases": options.releases} if options.releases else {}
        line = command_line("bisect", path, subject=RELEASED, device=options.device, all=True, **given)
        say(f"{line} tries all of them.")
    say(said(found.line))
