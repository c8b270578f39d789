"""Command lines as they are printed: each runs where it is pasted, if that is where this run was started.

They begin with this interpreter, or with a command that is installed, and with the variables of the environment that decide what
is imported; also where make started this run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath

from statecheck import rooms
from statecheck.rooms import working_folder

COMMAND = "STATECHECK_COMMAND"
"""How this run was started, in shell words: set by commands that are installed; else it was an interpreter."""
FOLDER = "STATECHECK_FOLDER"
"""The folder in which make was called, set by the Makefile; make may have changed the folder since."""
PYTHONPATH = "STATECHECK_PYTHONPATH"
"""PYTHONPATH as it was when this run was started; workers, and an environment of a release, may have another one."""
_CHOSEN_BY = {
    "vllm": ("VLLM", "VLLM_PATH"),
    "sglang": ("SGLANG", "SGLANG_PATH"),
    "transformers": ("TRANSFORMERS", "TRANSFORMERS_PATH"),
    "mlx_lm": ("MLX_LM", "MLX_LM_PATH"),
    "llamacpp": ("XLLAMACPP", "XLLAMACPP_PATH"),
}
"""By subject of which there are releases, the variables that choose a release and a checkout."""
IMPORTS = "PYTHONPATH", *(variable for variables in _CHOSEN_BY.values() for variable in variables)
"""Variables of the environment that decide what is run."""
Option = str | bool | PurePath


def project_of(subject: str | None) -> str:
    """The project that it is a release of, with the functions of another module inside or not; "" where it is none."""
    name = (subject or "").partition("+")[0]
    return name if name in _CHOSEN_BY else ""


def is_released(subject: str | None) -> bool:
    """Whether it is a release, or one with the functions of another module inside."""
    return bool(project_of(subject))


def program() -> str:
    """What command lines begin with, behind the variables."""
    return shlex.join(_program())


def _program() -> list[str]:
    return shlex.split(os.environ.get(COMMAND, "")) or [*shlex.split(python()), "-m", "statecheck"]


def by_make() -> bool:
    """Whether this run was started by make."""
    return FOLDER in os.environ


def python() -> str:
    """This interpreter as a word to type: its name where that is the one on the PATH."""
    return _word_for(sys.executable, os.environ.get("PATH", ""), working_folder())


@cache
def _word_for(executable: str, _path: str, _folder: Path) -> str:
    here = Path(executable)
    named = (name for name in dict.fromkeys(("python", "python3", here.name)) if _is_on_path(name, here))
    return next(named, shlex.quote(near(here)))


def _is_on_path(name: str, python_: Path) -> bool:
    found = shutil.which(name)
    # An interpreter of an environment is a link to one that knows nothing of the environment.
    return (
        found is not None and Path(found).parent.resolve() / name == python_.parent.resolve() / python_.name
    )


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
    wanted = {name: value for name, value in options.items() if (name, value) != ("subject", "impl")}
    words = [*_program(), command, *map(_text, given), *_options(wanted)]
    variables = (f"{name}={shlex.quote(value)}" for name, value in _variables(str(wanted.get("subject", ""))))
    return _from_here(" ".join([*variables, shlex.join(words)]))


def script_line(script: PurePath, subject: str = "impl", *flags: str, harness: bool = True) -> str:
    """A Python script about a subject, run by this interpreter, with these flags, and with what it imports.

    `harness`: the script imports statecheck.
    """
    # A checkout of a project is on the import path of the process that went on with it.
    chosen = _CHOSEN_BY.get(project_of(subject))
    moved = chosen and os.environ.get(chosen[1])
    path = _path_of_release(harness) if moved else _python_path()
    variables = [f"PYTHONPATH={shlex.quote(path)}"] if path else []
    return _from_here(" ".join([*variables, python(), *flags, shlex.quote(near(script))]))


def _path_of_release(harness: bool) -> str:
    """The import path of this process, as one types it here; without statecheck's own folder where that is not imported."""
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join(near(one) for one in folders if harness or Path(one) != rooms.FOLDER)


def option(name: str, value: str) -> str:
    """An option as one adds it to the command line that started this run."""
    return f"{name.upper()}={value}" if by_make() else " ".join(_options({name: value}))


def pip_line(*packages: str) -> str:
    """How to install what is missing into this interpreter's environment."""
    return f"{python()} -m pip install {shlex.join([*_pinned(), *packages])}"


def _pinned() -> list[str]:
    """The versions that a checkout is tried with."""
    pins = rooms.FOLDER / "constraints.txt"
    return ["-c", near(pins)] if pins.is_file() else []


def remembered() -> dict[str, str]:
    """Variables that say how this run was started, for its own processes and for one that goes on in place of this one."""
    return {COMMAND: program(), PYTHONPATH: _python_path()}


def _python_path() -> str:
    return os.environ.get(PYTHONPATH, os.environ.get("PYTHONPATH", ""))


def _text(value: Option) -> str:
    return near(value) if isinstance(value, PurePath) else str(value)


def _from_here(line: str) -> str:
    """A line for the working folder, as one types it where make was called."""
    called, here = os.environ.get(FOLDER), working_folder()
    return line if called is None or here.samefile(called) else f"cd {shlex.quote(str(here))} && {line}"


def _variables(subject: str) -> Iterator[tuple[str, str]]:
    for name in IMPORTS:
        value = _python_path() if name == "PYTHONPATH" else os.environ.get(name, "")
        if value and (name == "PYTHONPATH" or name in _CHOSEN_BY.get(project_of(subject), ())):
            yield name, value


def _options(options: dict[str, Option]) -> Iterator[str]:
    for name, value in options.items():
        yield f"--{name}"
        if value is not True:
            yield _text(value)
