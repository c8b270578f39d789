"""Command lines as they are printed: each runs where it is pasted, if that is where this run was started.

They begin with this interpreter, or with the installed command, and with the import path that decides what is imported.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

from statecheck import rooms
from statecheck.rooms import working_folder

COMMAND = "STATECHECK_COMMAND"
"""How this run was started, in shell words: set by commands that are installed; else it was an interpreter."""
PYTHONPATH = "STATECHECK_PYTHONPATH"
"""PYTHONPATH as it was when this run was started; workers, and an environment of a release, may have another one."""
CHOSEN = "STATECHECK_RELEASE"
"""The options that chose the release that this run is about, in shell words, with absolute paths."""
Option = str | bool | PurePath


def program() -> str:
    """What command lines begin with, behind the variables."""
    return os.environ.get(COMMAND) or f"{python()} -m statecheck"


def python() -> str:
    """This interpreter as a word to type: its name where that is the one on the PATH."""
    here = Path(sys.executable)
    there = shutil.which(here.name)
    # Not the files: an interpreter of an environment is a link to one that knows nothing of the environment.
    is_on_path = there is not None and Path(there).parent.resolve() == here.parent.resolve()
    return here.name if is_on_path else shlex.quote(near(here))


def near(path: PurePath | str) -> str:
    """A path as one reaches it from the working folder: what lies elsewhere has its whole path."""
    here = working_folder()
    absolute = here / path
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def command_line(command: str, *given: PurePath | str, **options: Option) -> str:
    """A command of statecheck, in shell words.

    Args:
        command: such as "replay".
        given: what it is about, where it takes that without an option.
        options: by name; True is one without a value. The subject is left out where it is the usual one.
    """
    words = [command, *map(_text, given)]
    for name, value in options.items():
        words += _subject(str(value)) if name == "subject" else [f"--{name}"]
        words += [_text(value)] if value is not True and name != "subject" else []
    return " ".join([*_variables(), program(), shlex.join(words)])


def script_line(script: PurePath, *flags: str) -> str:
    """A Python script, run by this interpreter, with these flags."""
    return " ".join([*_variables(), python(), *flags, shlex.quote(near(script))])


def pip_line(*packages: str) -> str:
    """How to install what is missing into this interpreter's environment."""
    pins = rooms.FOLDER / "constraints.txt"
    # The versions that a checkout is tried with.
    pinned = ["-c", near(pins)] if pins.is_file() else []
    return f"{python()} -m pip install {shlex.join([*pinned, *packages])}"


def remembered() -> dict[str, str]:
    """Variables that say how this run was started, for its own processes and for one that goes on in place of this one."""
    return {COMMAND: program(), PYTHONPATH: _python_path()}


def _python_path() -> str:
    return os.environ.get(PYTHONPATH, os.environ.get("PYTHONPATH", ""))


def _text(value: Option) -> str:
    return near(value) if isinstance(value, PurePath) else str(value)


def _subject(subject: str) -> Iterator[str]:
    """Options that name a subject: those of its release, which say which subject it is, or --subject."""
    chosen = shlex.split(os.environ.get(CHOSEN, ""))
    project = chosen[0].removeprefix("--").removesuffix("-path").replace("-", "_") if chosen else ""
    is_released = bool(project) and subject.partition("+")[0] == project
    if subject not in ("impl", *([project] if is_released else [])):
        yield from ("--subject", subject)
    if is_released:
        yield from (near(word) if os.path.isabs(word) else word for word in chosen)  # noqa: PTH117 - words, not paths


def _variables() -> list[str]:
    path = _python_path()
    return [f"PYTHONPATH={shlex.quote(path)}"] if path else []
