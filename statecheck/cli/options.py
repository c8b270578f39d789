"""Options that commands share: how the subject is run, and how long things may take."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from statecheck.rooms import working_folder

_NAMES = {
    1.0: ("", "s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
}
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names}


def location(text: str) -> Path:
    """The path that a command is given, from the root of the file system: a subject may change the working folder."""
    return working_folder() / text


def seconds(text: str, name: str = "budget") -> float:
    """A duration such as `90`, `60s`, `5m`, `5 minutes` or `8h`, in seconds; `name` is that of the argument.

    Raises:
        ValueError: not a positive number with one of these units.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text)
    unit = _UNITS.get(match[2]) if match is not None else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise ValueError(
            f"{name} = {text!r}, but should be a positive duration such as 60s, 5m or 8h [seconds]"
        )
    return float(match[1]) * unit


def add_subject_options(parser: argparse.ArgumentParser) -> None:
    """What a command is about, and where it runs."""
    parser.add_argument("--subject", default="impl", help="impl, or any importable module (default impl)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")


def add_reports_option(parser: argparse.ArgumentParser) -> None:
    """Where a command leaves what it finds."""
    parser.add_argument(
        "--reports", type=location, default="reports", help="where reports go (default reports/)"
    )


def add_corpus_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Where cases are kept."""
    parser.add_argument("--corpus", type=location, default="corpus", help=f"where {what} (default corpus/)")


def add_campaign_options(parser: argparse.ArgumentParser) -> None:
    """What all campaigns are given."""
    add_subject_options(parser)
    add_only_option(parser)
    add_reports_option(parser)
    add_port_options(parser)
    parser.add_argument("--as-new", action="store_true", help="report known defects as new ones")
    add_require_options(parser)


def add_port_options(parser: argparse.ArgumentParser) -> None:
    """How a command runs the subject."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--isolated",
        action="store_true",
        default=None,
        help="run the subject in processes that can be killed (default on a GPU)",
    )
    where.add_argument(
        "--in-process",
        dest="isolated",
        action="store_false",
        help="run it in the process that searches inputs (default on a CPU); after a fault or a hang that process is replaced",
    )
    parser.add_argument(
        "--time-limit", default="30s", help="for each call of an isolated subject: 90, 60s, 5m (default 30s)"
    )
    parser.add_argument(
        "--no-sanitize", dest="sanitized", action="store_false", help="do not watch kernels on a CPU"
    )


def add_timed_options(parser: argparse.ArgumentParser) -> None:
    """Of a campaign of a minute: how long it is, and the number of its processes."""
    parser.add_argument("--budget", default="60s", help="how long: 90, 60s, 5m, 8h (default 60s)")
    add_workers_option(parser)


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """The number of processes of a campaign."""
    parser.add_argument(
        "--workers", type=int, default=None, help="processes (default: one per core; 1 on a GPU)"
    )


def add_only_option(parser: argparse.ArgumentParser) -> None:
    """Which properties a command is about."""
    meaning = "an expression over property names and ids, as pytest's -k: 'gather and not width', v1-postprocess/boundary"
    parser.add_argument("--only", default="", help=meaning)


def add_require_options(parser: argparse.ArgumentParser) -> None:
    """What a subject has to offer, and what has to be tested of it."""
    parser.add_argument(
        "--require", default="", metavar="a,b", help="fail if the subject does not offer these functions"
    )
    parser.add_argument(
        "--fail-on-untested",
        action="store_true",
        help="exit with 1 if an applicable property was not tested, for whatever reason",
    )
