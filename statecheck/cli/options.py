"""Commands, and the options that they share: what is verified, how it is run, and how long things may take."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from statecheck.releases.start import chosen_release, go_on_in_release
from statecheck.rooms import is_checkout, working_folder
from statecheck.subject.loading import PROJECTS
from statecheck.util import limits
from statecheck.util.command_lines import near
from statecheck.util.files import MARKER

_NAMES = {
    1.0: ("", "s", "sec", "second", "seconds"),
    60.0: ("m", "min", "minute", "minutes"),
    3600.0: ("h", "hour", "hours"),
}
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names}
_MODELS = "STATECHECK_MODELS"
"""The variable by which the processes of a command learn which models of a library are tried."""
_CONTENT = {
    "bench": ("align.json",),
    "compatibility": ("*/campaign.json",),
    "corpus": ("*.json",),
    "replay-trace": ("replay.json", "violation.json"),
    "reports": ("campaigns", "campaign.json", "known", "pending", "????-??-??-*"),
}
"""By kind of folder, files of which each says that a command has written it."""
_MOST_PER_CORE = 8
F = TypeVar("F", bound=Callable[..., Any])


def location(text: str) -> Path:
    """The path that a command is given, from the root of the file system: a subject may change the working folder."""
    return working_folder() / text


def seconds(text: str) -> float:
    """A duration such as `90`, `60s`, `5m`, `5 minutes` or `8h`, in seconds.

    Raises:
        ValueError: not a positive number with one of these units.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]*)", text)
    unit = _UNITS.get(match[2]) if match is not None else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise ValueError(f"{text!r}, but should be a positive duration such as 60s, 5m or 8h")
    return float(match[1]) * unit


class Duration(click.ParamType):
    """A duration, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class OptionsCommand(click.Command):
    """A command whose function takes all of its options as one object, and runs in the environment of the release that they name."""

    def __init__(self, *arguments: Any, module: str = "statecheck", **options: Any) -> None:
        """`module`: what `python -m` runs, if the command has to go on in another environment."""
        super().__init__(*arguments, **options)
        self.module = module

    def invoke(self, context: click.Context) -> Any:
        """Call the function; its result is the exit code."""
        params = dict(context.params)
        if models := params.pop("models", ""):
            os.environ[_MODELS] = models
        releases = {name: params.pop(name) for name in _RELEASES if name in params}
        options = SimpleNamespace(**params)
        if releases:
            chosen = chosen_release(releases)
            unnamed = context.get_parameter_source("subject") is ParameterSource.DEFAULT
            if chosen and unnamed:
                options.subject = chosen.project.subject
            # A case may be replayed on `impl`; outside of a checkout a campaign on `impl` says nothing about the code there.
            elif (
                context.info_name != "replay" and options.subject == "impl" and unnamed and not is_checkout()
            ):
                raise ValueError(_no_subject())
            arguments = sys.argv[1:] if context.obj is None else context.obj
            go_on_in_release(options.subject, chosen, [self.module, *arguments])
        assert self.callback is not None
        return self.callback(options)


def _no_subject() -> str:
    """What to say in place of a campaign on the implementation that comes with statecheck, which is of no use outside of a checkout."""
    declared = re.compile(r"^STATECHECK_(PROTOCOL|SEQUENCES) *=", re.MULTILINE)
    files = sorted(working_folder().glob("*.py"))
    ports = [
        path.stem for path in files if declared.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    installed = [project.subject for project in PROJECTS.values() if find_spec(project.imports)]
    seen = (
        ", ".join(f"--subject {name}" for name in (*ports, *installed))
        or "no port in this folder, and no project that has an adapter"
    )
    project = PROJECTS["vllm"]
    return (
        f"subject = not given, but should be a module, --subject my_port, or a release, {project.option} {project.example}; "
        f"seen here: {seen}. The implementation that comes with statecheck is --subject impl"
    )


def option(*names: str, **given: Any) -> Callable[[F], F]:
    """As `click.option`; the help names a default that is a value."""
    default = given.get("default")
    return click.option(*names, show_default=bool(default) and not isinstance(default, bool), **given)


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Options that several commands have, in this order."""

    def decorate(function: F) -> F:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


def _release_options() -> list[Callable[[F], F]]:
    made = []
    for project in PROJECTS.values():
        library = ", or a library" if project.takes_library else ""
        about = f"a release of {project.name} to verify, such as {project.example}{library}"
        made.append(option(project.option, metavar="VERSION", help=about))
        about = (
            "a library in place of the release's" if library else f"a checkout of {project.name} to verify"
        )
        made.append(option(f"{project.option}-path", metavar="FILE" if library else "FOLDER", help=about))
    return made


_RELEASES = tuple(name for one in PROJECTS for name in (one, f"{one}_path"))
"""The names of the options of releases."""


def subject_options(default: str = "impl", *, models: bool = False) -> Callable[[F], F]:
    """What a command is about, and where it runs.

    Args:
        models: it may be about some models of a library only.
    """
    chosen = option("--models", default="", metavar="A,B*", help="models of a library of sequences")
    return together(
        option(
            "--subject", default=default, metavar="MODULE", help="impl, a project, or any importable module"
        ),
        *_release_options(),
        *([chosen] if models else []),
        option("--device", default="auto", metavar="DEVICE", help="auto, cpu or cuda"),
    )


only_option = option(
    "--only",
    default="",
    metavar="EXPR",
    help="properties by id, topic or function, as pytest's -k: 'precopy and not no-sync', v1-postprocess/boundary, chunk_offsets",
)
seed_option = option("--seed", type=int, help="repeat a campaign's random choices")
workers_option = option("--workers", type=int, help="processes (default: one per core; 1 on a GPU)")
reports_option = option(
    "--reports", type=location, default="reports", metavar="FOLDER", help="where reports go"
)
time_limit_option = option(
    "--time-limit", type=Duration(), default=f"{limits.CALL:.0f}s", help="for each call of the subject"
)
budget_option = option("--budget", type=Duration(), default="60s", help="how long: 90, 60s, 5m, 8h")


def corpus_option(what: str) -> Callable[[F], F]:
    """Where cases are kept."""
    return option("--corpus", type=location, default="corpus", metavar="FOLDER", help=f"where {what}")


port_options = together(
    option(
        "--isolated/--in-process",
        default=None,
        help="run the subject in processes that can be killed (default on a GPU), or in the process that searches (on a CPU), which is replaced after a fault",
    ),
    time_limit_option,
    option(
        "--sanitize/--no-sanitize", "sanitized", default=True, help="watch kernels on a CPU (default: watch)"
    ),
)
require_options = together(
    option("--require", default="", metavar="A,B", help="fail if the subject does not offer these functions"),
    option("--fail-on-untested", is_flag=True, help="exit with 1 if an applicable property was not tested"),
)
campaign_options = together(
    subject_options(models=True),
    only_option,
    reports_option,
    port_options,
    option("--as-new", is_flag=True, help="report known defects as new ones"),
    require_options,
)
"""What all campaigns are given."""


def require_own(folder: Path, kind: str, argument: str) -> None:
    """Refuse a folder that holds something else, before anything is written into it.

    Args:
        kind: what the folder is to hold, such as "reports".
        argument: of the command, that names the folder.

    Raises:
        ValueError: it is no folder, or it has something in it that is not of that kind.
    """
    rule = f"a new or empty folder, or one of {kind}"
    if not str(folder).isprintable():
        rule = "a path without control characters, which no record of a campaign may have"
        raise ValueError(f"{argument} = {str(folder)!r}, but should be {rule}")
    try:
        names = sorted(path.name for path in folder.iterdir())
    except NotADirectoryError as error:
        raise ValueError(f"{argument} = {near(folder)!r}, but should be {rule}") from error
    except OSError:
        # It is new; or whether it can be read or written is another question, which comes up later.
        return
    others = [name for name in names if not name.startswith(".") and name not in ("lost+found", "README.md")]
    if others and not any(any(folder.glob(name)) for name in (MARKER, *_CONTENT[kind])):
        more = ", …" if len(others) > 3 else ""
        seen = f"which holds {', '.join(others[:3])}{more}"
        raise ValueError(f"{argument} = {near(folder)!r}, {seen}, but should be {rule}")


def cores() -> int:
    """The cores that this process may use, where the system can say so."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def require_processes(name: str, number: int, where: str) -> int:
    """A number of processes that a person asks for.

    Raises:
        ValueError: none, or so many that they would keep each other and the machine from working.
    """
    if number < 1:
        raise ValueError(f"{name} = {number}, but should be >= 1 [{where}]")
    most = _MOST_PER_CORE * cores()
    if number > most:
        rule = f"at most {most}, {_MOST_PER_CORE} for each of {cores()} processors"
        raise ValueError(f"{name} = {number}, but should be {rule} [{where}]")
    return number
