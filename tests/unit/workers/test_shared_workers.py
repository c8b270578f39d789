"""Workers that several processes share: each client sees what it would see alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from statecheck.campaign.pool import start_share
from statecheck.case.values import Device, Let, Name, Raised, Returned, Tensor, call
from statecheck.execution.example import ExecutionContext
from statecheck.workers.forkserver import Forked
from statecheck.workers.port import InWorker
from statecheck.workers.shared_workers import DeviceGone
from tests.helpers.faulty import FAULTY
from tests.helpers.modules import module


@dataclass
class Shared:
    """A process that shares the workers of a subject that faults, and its address."""

    process: Forked
    subject: str
    device: str
    address: str

    @contextmanager
    def client(self, time_limit: float = 20.0) -> Iterator[InWorker]:
        with InWorker(self.subject, self.device, time_limit=time_limit, share=self.address) as port:
            yield port


@contextmanager
def sharing(folder: Path, subject: str, device: str, workers: int = 1) -> Iterator[Shared]:
    address = str(folder / "share")
    process = start_share(device, subject, workers, address, {})
    try:
        yield Shared(process, subject, device, address)
    finally:
        process.kill()


@pytest.fixture(scope="module")
def shared(trial: ExecutionContext, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("share")
    with (
        module(folder, "toy_faulty_shared", FAULTY) as name,
        sharing(folder, name, trial.port.device) as made,
    ):
        yield made


def added(port: InWorker, x: int) -> object:
    return port.execute(call("add_one", x=x))


def test_clients_have_names_of_their_own(shared: Shared) -> None:
    with shared.client() as one, shared.client() as other:
        for port, element in ((one, 1), (other, 2)):
            port.begin()
            port.execute(Let("x", Tensor("int64", (1,), (element,))))
        found = [port.execute(call("remember", x=Name("x"), observes=("x",))) for port in (one, other)]
    assert [dict(one.after)["x"].elements for one in found if isinstance(one, Returned)] == [(1,), (2,)]


def test_who_faults_is_told_and_who_does_not_never_notices(shared: Shared) -> None:
    with shared.client() as one, shared.client() as other:
        one.begin()
        other.begin()
        assert added(one, 1) == Returned(2)
        fault = other.execute(call("touch_nothing", device=Device()))
        assert isinstance(fault, Raised)
        assert fault.kind == "fault"
        assert added(one, 2) == Returned(3)
        assert (one.faults, sum(other.faults.values())) == ({}, 1)


def test_an_example_that_was_interrupted_is_run_anew_with_all_its_steps(shared: Shared) -> None:
    with shared.client() as one, shared.client() as other:
        one.begin()
        one.execute(Let("x", Tensor("int64", (1,), (7,))))
        added(one, 1)
        other.begin()
        other.execute(call("touch_nothing", device=Device()))
        found = one.execute(call("remember", x=Name("x"), observes=("x",)))
    assert isinstance(found, Returned)
    assert dict(found.after)["x"].elements == (7,)


def test_a_client_that_hangs_does_not_use_up_the_others_time(shared: Shared) -> None:
    with shared.client(time_limit=1.0) as hanging, shared.client(time_limit=1.0) as other:
        hanging.begin()
        other.begin()
        added(hanging, 1)
        thread = threading.Thread(target=hanging.execute, args=(call("never_end", device=Device()),))
        thread.start()
        time.sleep(0.2)
        assert added(other, 1) == Returned(2)
        thread.join()
        assert (dict(hanging.faults), dict(other.faults)) == ({"hang": 1}, {})


def test_a_worker_that_was_killed_is_replaced(shared: Shared) -> None:
    with shared.client() as port:
        port.begin()
        assert added(port, 1) == Returned(2)
        # It looks like a kill from outside, and happens every time, so it is reported in the end.
        found = port.execute(call("be_killed", signal=int(signal.SIGKILL)))
        assert found == Raised("worker died", "the process ended by SIGKILL", kind="fault")
        port.begin()
        assert added(port, 1) == Returned(2)


def test_clients_wait_for_who_shares_to_come_back(trial: ExecutionContext, tmp_path: Path) -> None:
    with (
        module(tmp_path, "toy_faulty_back", FAULTY) as name,
        sharing(tmp_path, name, trial.port.device) as first,
        first.client() as port,
    ):
        port.begin()
        assert added(port, 1) == Returned(2)
        first.process.kill()
        with sharing(tmp_path, name, trial.port.device):
            assert added(port, 2) == Returned(3)


def test_a_subject_that_cannot_be_imported_leaves_no_device(trial: ExecutionContext, tmp_path: Path) -> None:
    with sharing(tmp_path, "no_such_module", trial.port.device) as made, made.client() as port:
        port.begin()
        with pytest.raises(DeviceGone, match="no_such_module"):
            added(port, 1)
