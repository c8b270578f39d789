"""The process that forks workers: nothing outlives its parent, and Ctrl-C costs no answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from statecheck.workers.forkserver import CoreWaits, Fork, fork, server_for
from tests.helpers.faulty import FAULTY
from tests.helpers.modules import ROOT, module
from tests.helpers.processes import alive, gone

_LEFT_BEHIND = """
import sys
from statecheck.workers.forkserver import server_for
from statecheck.workers.port import InWorker
from statecheck.case.values import Device, call

with InWorker(sys.argv[1], sys.argv[2], time_limit=600.0) as port:
    port.begin()
    port.execute(call("add_one", x=1))
    print(*port.pids, server_for(sys.argv[2]).pid, flush=True)
    port.execute(call("never_end", device=Device()))
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[str]:
    with module(tmp_path, "toy_faulty_left", FAULTY) as name:
        yield name


@pytest.mark.slow
def test_no_process_outlives_one_that_is_killed(faulty: str, device: str) -> None:
    path = os.pathsep.join((str(ROOT), *filter(None, sys.path)))
    command = [sys.executable, "-c", _LEFT_BEHIND, faulty, device]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(alive, pids))
        time.sleep(0.2)
        parent.kill()
    assert gone(pids, seconds=60.0)


def test_a_request_that_ctrl_c_has_cut_short_leaves_the_next_one_its_own_answer(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_for(device)
    for step in ("send", "recv"):
        monkeypatch.setattr(Connection, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.fork(Fork("sys:exit", (7,)))
        monkeypatch.undo()
    process = server.fork(Fork("sys:exit", (5,)))
    assert process is not None
    process.join(60.0)
    assert process.exitcode == 5


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def forks_another(descriptor: int, device: str) -> None:
    """Write the server and another process, which sleeps, to the descriptor, and wait."""
    process = fork(device, Fork("time:sleep", (600.0,)))
    os.write(descriptor, f"{server_for(device).pid} {process.pid}\n".encode())
    time.sleep(600.0)


def test_a_process_forked_by_a_forked_process_has_the_same_server_and_ends_with_it(device: str) -> None:
    reading, writing = os.pipe()
    what = Fork(f"{__name__}:forks_another", (device,), forks=True)
    process = fork(device, what, writing)
    os.close(writing)
    with os.fdopen(reading) as output:
        server, other = map(int, output.readline().split())
    assert server == server_for(device).pid
    assert alive(other)
    process.kill()
    assert gone([other], seconds=60.0)


def test_a_process_that_is_forked_for_this_one_outlives_one_that_ends(device: str) -> None:
    lasting, ending = (fork(device, Fork("time:sleep", (seconds,), forks=True)) for seconds in (600.0, 0.0))
    ending.join(30.0)
    assert (ending.exitcode, alive(lasting.pid)) == (0, True)
    assert lasting.kill() == -signal.SIGKILL


def test_the_wait_for_a_core_is_of_the_thread_of_a_process_and_its_children_that_waits_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(pid: int, parent: int, **threads: float) -> None:
        """Say how many seconds threads have waited, by the last digits of their ids."""
        for thread, seconds in threads.items():
            folder = tmp_path / str(pid) / "task" / f"{pid}{thread}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "schedstat").write_text(f"1000 {int(seconds * 1e9)} 7\n")
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1\n")

    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    wait(10, 1, t0=5.0, t1=70.0)
    wait(99, 1, t0=8.0)
    waits = CoreWaits(10, proc=tmp_path)
    wait(10, 1, t0=6.0, t1=70.5)
    wait(99, 1, t0=1000.0)
    assert waits.look(most=100.0) == 0.0  # it has looked at this moment
    now = 1.0
    assert waits.look(most=100.0) == 1.0
    # A compiler that the process started, and a program of the compiler's.
    wait(11, 10, t0=0.25)
    wait(12, 11, t0=3.0)
    now = 2.0
    assert waits.look(most=100.0) == 4.0
    assert waits.look(most=2.0) == 2.0
    assert CoreWaits(10, proc=tmp_path / "none").look(most=100.0) == 0.0
