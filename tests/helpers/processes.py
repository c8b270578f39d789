"""Python processes for tests of commands and scripts: forked from one that has imported torch, which takes seconds elsewhere.

What a test says of an interpreter's own start (its flags, PYTHONHASHSEED, its locale) needs `subprocess`.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from statecheck.workers.forkserver import Fork, server_for
from tests.helpers.modules import ROOT

_LIMIT_SECONDS = 500.0
SCRIPTS, COMMANDS = "", "cpu"
"""Processes of `SCRIPTS` have torch imported and nothing of ours; those of `COMMANDS` also the harness, for campaigns on a CPU."""


class Started:
    """The same as `subprocess.Popen([sys.executable, *arguments], ...)` with a pipe to and from it: a script, `-c` or `-m`, and arguments."""

    def __init__(
        self,
        *arguments: str | Path,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        like: str = SCRIPTS,
    ) -> None:
        self.arguments = [str(argument) for argument in arguments]
        server = server_for(like, "torch", "numpy")
        values = (self.arguments, str(cwd), dict(os.environ if env is None else env))
        what = Fork(f"{__name__}:main", values, name="test", forks=like == COMMANDS)
        (theirs, to), (output, mine), (errors, told_to) = os.pipe(), os.pipe(), os.pipe()
        process = server.fork(what, theirs, mine, told_to)
        for descriptor in (theirs, mine, told_to):
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(to, "w"), os.fdopen(output, errors="replace")
        self._stderr = os.fdopen(errors, errors="replace")
        assert process is not None, "the server that forks test processes is gone"
        self.process = process

    def communicate(self) -> tuple[str, str]:
        """The rest of the standard output, and the whole standard error; the process has ended then."""
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self._stderr.read()), daemon=True)
        reader.start()
        with self.stdout, self.stdin, self._stderr:
            self.stdin.close()
            rest = self.stdout.read()
            reader.join()
        self.process.join(_LIMIT_SECONDS)
        self.process.kill()
        return rest, errors[0]


def run_python(
    *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None, like: str = SCRIPTS
) -> subprocess.CompletedProcess[str]:
    """The result of `subprocess.run([sys.executable, *arguments], ...)`."""
    started = Started(*arguments, cwd=cwd, env=env, like=like)
    written = started.communicate()
    assert started.process.exitcode is not None
    return subprocess.CompletedProcess(started.arguments, started.process.exitcode, *written)


def run_fresh(
    *arguments: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """The result of an interpreter of its own, where a fork would differ; `env` is added to the environment."""
    line = [str(python), *map(str, arguments)]
    variables = os.environ | (env or {})
    return subprocess.run(
        line, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS
    )


def run_pytest(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A pytest session of its own on the repository."""
    # pytest warns of plugins whose assertions it cannot rewrite, since they are imported.
    usual = ["-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore:Module already imported so cannot"]
    # The server that it is forked from executes kernels on the CPU, also where there is a GPU.
    usual += [] if "--device" in arguments else ["--device", "cpu"]
    return run_python(*usual, *arguments, env=env, like=COMMANDS)


def main(
    nothing: int, output: int, errors: int, arguments: Sequence[str], folder: str, environment: dict[str, str]
) -> None:
    """The process's life."""
    for number, descriptor in enumerate((nothing, output, errors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *(path for path in sys.path if path not in inherited)]
    _run(list(arguments))


def _run(arguments: list[str]) -> None:
    first, *rest = arguments
    if first == "-c":
        sys.argv[:] = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - the test's own
    elif first == "-m":
        sys.argv[:] = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = arguments
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


def alive(pid: int) -> bool:
    """Whether the process runs; one that was not asked for yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone(pids: list[int], seconds: float) -> bool:
    """Whether the processes end in time; those that do not are killed."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    found = [pid for pid in pids if alive(pid)]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not found
