"""What a worker is about to do is on disk before the worker gets it, and becomes a case after a kill."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.pending import running_left_by
from statecheck.case import Case
from statecheck.case.values import Let, Overwrite, Refusal, Returned, Step, call, int32
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import load_properties
from statecheck.workers.log import LogReader, State, StepLog, running_path
from statecheck.workers.port import InWorker
from statecheck.workers.recovered import UNKNOWN_OUTCOME, recover, recover_all
from subjects import load
from tests.helpers.faulty import FAULTY
from tests.helpers.modules import ROOT, module

ABOUT = {"property_name": "toys_divide", "sentence": "Toys divide.", "subject": "impl", "device": "cpu"}
FIRST, SECOND = (call("divide", x=4, y=2),), (call("divide", x=1, y=0),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pending" / "toys_divide.running"


@pytest.fixture
def log(path: Path) -> Iterator[StepLog]:
    made = StepLog(path, ABOUT)
    yield made
    made.close()


def left(path: Path) -> Path:
    """What a kill at this moment would leave: the file, without the lock."""
    return Path(shutil.copy(path, path.with_name("left.running")))


def found(path: Path) -> Case:
    case = recover(left(path))
    assert case is not None
    return case


def test_the_example_in_hand_is_recovered_with_what_the_rules_expect(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    log.note(SECOND)
    case = found(path)
    assert case.steps == FIRST + SECOND
    assert case.expected == (Returned(2), Refusal("y"))
    assert case.actual == (UNKNOWN_OUTCOME, UNKNOWN_OUTCOME)
    assert {name: getattr(case, name) for name in ABOUT} == ABOUT


def test_between_examples_nothing_is_in_hand(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    log.begin()
    assert recover(left(path)) is None


def test_a_message_whose_checksum_is_wrong_is_not_read(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    log.note(SECOND)
    torn = left(path)
    data = torn.read_bytes()
    torn.write_bytes(data[: log._end - 10] + b"0" + data[log._end - 9 :])
    case = recover(torn)
    assert case is not None
    assert case.steps == FIRST


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_a_message_that_was_not_written_to_its_end_was_not_sent(log: StepLog, path: Path, lost: int) -> None:
    log.note(FIRST)
    log.note(SECOND)
    torn = left(path)
    os.truncate(torn, log._end - lost)
    case = recover(torn)
    assert case is not None
    assert case.steps == FIRST


def test_a_file_without_a_whole_record_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.running").write_bytes(b"\x01\x00\x00")
    assert recover(tmp_path / "x.running") is None
    assert recover(tmp_path / "no_such.running") is None


def test_a_log_that_is_being_written_was_not_left_behind(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    assert recover(path) is None
    assert recover_all(path.parent) == []
    assert path.exists()


def test_two_processes_with_one_property_write_two_logs(log: StepLog, path: Path) -> None:
    other = StepLog(path, ABOUT)
    log.note(FIRST)
    other.note(SECOND)
    assert found(log.path).steps == FIRST
    assert found(other.path).steps == SECOND
    other.close()


def test_a_log_that_is_closed_is_gone(path: Path) -> None:
    log = StepLog(path, ABOUT)
    log.note(FIRST)
    log.close()
    assert not path.exists()


def test_of_a_worker_that_is_gone_both_logs_are_put_down(path: Path) -> None:
    worker = os.getpid()
    logs = [StepLog(path.with_name(f"toys_divide.{worker}.running"), ABOUT) for _ in range(2)]
    for log in logs:
        log.note(FIRST)
        # As if the worker had been killed.
        os.close(log._file)
    saved = running_left_by(path.parent, worker)
    assert saved is not None
    assert Case.load(saved).steps == FIRST
    assert list(path.parent.glob("*.running")) == []


def test_logs_that_were_left_become_cases(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    saved = left(path)
    assert recover_all(path.parent) == [path.with_name("left.unfinished.json")]
    assert Case.load(path.with_name("left.unfinished.json")).steps == FIRST
    assert not saved.exists()


def test_what_is_known_of_names_is_part_of_a_recovered_case(log: StepLog, path: Path) -> None:
    table = int32([[1, 2], [3, 4]])
    steps = (Let("table", table), Overwrite("table", (5, 6, 7, 8)), *FIRST, Let("unused", 1))
    log.note(steps)
    assert found(path).steps == steps[:-1]


class Kept(InWorker):
    """Keeps, before each example but the first, what a kill would leave of the one before."""

    kept: list[Case | None]

    def begin(self) -> None:
        if self._log is not None and self._log._end > self._log._head:
            self.kept.append(recover(left(self._log.path)))
        super().begin()


@pytest.mark.parametrize(
    ("name", "many"),
    [
        ("chunks_cover_every_token_once", 10),
        ("an_accepted_state_on_a_boundary_is_stored_in_the_column_of_its_block", 2),
        ("an_old_step_never_shows_in_a_new_one", 2),
    ],
)
def test_a_recovered_case_is_the_one_that_its_trial_would_have_made(
    name: str, many: int, trial: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Trial] = []
    begin = Bench.begin

    def remembered(bench: Bench, tested: Any) -> Trial:
        made.append(begin(bench, tested))
        return made[-1]

    monkeypatch.setattr(Bench, "begin", remembered)
    log = StepLog(tmp_path / f"{name}.running", ABOUT)
    with Kept("impl", trial.port.device, log=log) as port:
        port.kept = []
        load_properties()[name].explore(Bench(load("impl"), port), seed=1, max_examples=many)
        port.begin()
    expected = [(one._run.steps, one._run.expected) for one in made if one._run.calls]
    assert [(list(case.steps), list(case.expected)) for case in port.kept if case] == expected
    assert expected


_KILLED = """
import sys
from pathlib import Path
from statecheck.workers.log import StepLog
from statecheck.workers.port import InWorker
from statecheck.case.values import call

about = {"property_name": "toys_sleep", "sentence": "", "subject": sys.argv[1], "device": sys.argv[2], "seed": 7}
with InWorker(sys.argv[1], sys.argv[2], time_limit=600.0, log=StepLog(Path(sys.argv[3]), about)) as port:
    port.begin()
    port.execute(call("cdiv", x=5, y=2))
    print("sleeps", flush=True)
    port.execute(call("divide", x=600, y=1))
"""
SLEEPS = f"{FAULTY}\ncdiv = lambda x, y: 3\ndivide = lambda x, y: sleep(x)\n"


@pytest.mark.slow
def test_what_was_in_hand_survives_a_kill(tmp_path: Path, trial: Bench) -> None:
    reports = tmp_path / "reports"
    log = running_path(reports / "pending", "toys_sleep")
    with module(tmp_path, "toy_sleeping", SLEEPS) as name:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path)))}
        command = [sys.executable, "-c", _KILLED, name, trial.port.device, str(log)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"sleeps\n"
            time.sleep(0.2)
            running.kill()
    (saved,) = recover_all(reports / "pending")
    case = Case.load(saved)
    assert (case.property_name, case.subject, case.seed) == ("toys_sleep", "toy_sleeping", 7)
    assert case.steps == (call("cdiv", x=5, y=2), call("divide", x=600, y=1))
    assert case.expected == (Returned(3), Returned(600))


def test_what_a_process_is_doing_is_seen_from_outside(log: StepLog, path: Path) -> None:
    reader = LogReader(path)
    seen = [reader.read().state]
    for change in (log.begin, log.enter, log.leave, log.rest):
        change()
        seen.append(reader.read().state)
    assert seen == [State.IDLE, State.BETWEEN_CALLS, State.CALL, State.BETWEEN_CALLS, State.IDLE]
    assert reader.read().examples == 1
    reader.close()


def test_a_header_that_is_being_written_is_not_read(log: StepLog, path: Path) -> None:
    reader, torn = LogReader(path), struct.pack("<8sQIId", b"steps\0\0\1", 99, State.CALL, 7, 1.0)
    log.begin()
    before = reader.read()
    log._memory[: len(torn)] = torn
    assert reader.read() == before
    reader.close()


def test_a_log_grows_with_its_steps(log: StepLog, path: Path) -> None:
    steps: list[Step] = [Let("a", bytes([number]) * 50_000) for number in range(8)]
    log.begin()
    for step in (*steps, *FIRST):
        log.note((step,))
    assert found(path).steps == (*steps, *FIRST)


def test_steps_that_cannot_be_recorded_leave_no_part_of_the_example(log: StepLog, path: Path) -> None:
    log.begin()
    log.note(FIRST)
    log.note((Let("a", lambda: 0),))
    assert recover(left(path)) is None
    assert "lambda" in log.problem


def test_a_log_of_a_process_that_has_ended_is_read_also_if_its_lock_is_held(log: StepLog, path: Path) -> None:
    log.note(FIRST)
    assert recover(path) is None
    case = recover(path, owner_ended=True)
    assert case is not None
    assert case.steps == FIRST
