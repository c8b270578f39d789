"""Dependencies of a failure: none, earlier calls of the process, or chance."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.case import CHANCE, EARLIER_CALLS
from statecheck.case.values import Step, call, int32
from statecheck.diagnose.diagnosis import (
    Confirmation,
    Diagnosis,
    Scene,
    diagnose,
    note_of,
    with_earlier_calls,
)
from statecheck.diagnose.replay import FAILED, FIXED, NOT_REPRODUCED, replay, replay_file
from statecheck.execution.example import EarlierExamples
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import rules_of
from statecheck.report.scripts.script import repro_script
from statecheck.subject.known import Condition, KnownDeviation, Symptom
from statecheck.workers.port import InWorker
from subjects import Subject, load
from tests.helpers.cases import a_case, subject_of
from tests.helpers.modules import module
from tests.helpers.processes import run_python
from tests.helpers.slow import slow_after

PORT = '''\
import os
from pathlib import Path

STATECHECK_PROTOCOL = 2
FOLDER = Path(__file__).parent
memo, flags = {{}}, set()


def right(cu_seqlens, chunk_size):
    offsets = [0]
    for start, end in zip(cu_seqlens, cu_seqlens[1:]):
        offsets.append(offsets[-1] + -(-(end - start) // chunk_size))
    return offsets


def every_third():
    """Whether it is the first of three calls of all processes together."""
    with (FOLDER / "calls").open("a+") as file:
        file.write("x")
    return (FOLDER / "calls").stat().st_size % 3 == 1


def chunk_offsets(cu_seqlens, chunk_size):
    {body}
'''
MEMO_BY_LENGTH = "return memo.setdefault(len(cu_seqlens), right(cu_seqlens, chunk_size))"
MENDED = "return right(cu_seqlens, chunk_size)"
WRONG = "return [0] * len(cu_seqlens)"
POISONED = (
    "was = len(flags); flags.update({7} & set(cu_seqlens)); return [was, *right(cu_seqlens, chunk_size)[1:]]"
)
POISONS_ITSELF = (
    "flags.update({7} & set(cu_seqlens)); return [len(flags), *right(cu_seqlens, chunk_size)[1:]]"
)
OF_THIS_PROCESS = "return right(cu_seqlens, chunk_size) if not flags else [9] * len(cu_seqlens)"
EVERY_THIRD = "return [9] * len(cu_seqlens) if every_third() else right(cu_seqlens, chunk_size)"


def offsets(*starts: int) -> tuple[Step, ...]:
    return (call("prepare_chunk_offsets", cu_seqlens=int32(starts), chunk_size=1),)


EXAMPLES = (offsets(0, 0), offsets(0, 2, 3), offsets(0), offsets(0, 7), offsets(0, 4), offsets(0, 1, 1, 1))


class Found:
    """A port, the examples that ran in this process, and what came of the last one."""

    def __init__(self, subject: Subject, examples: Sequence[tuple[Step, ...]]) -> None:
        self.subject, self.earlier = subject, EarlierExamples()
        self.port = InProcess(self.subject, "cpu")
        self.fresh = partial(InWorker, subject.name, "cpu", spare=False)
        for steps in examples:
            self.earlier.begin(steps)
            failed = self._ran(steps)
            if failed is not None:
                self.earlier.note_failure()
                self.case = failed

    def _ran(self, steps: tuple[Step, ...]) -> Case | None:
        asked = a_case(subject=self.subject.name, steps=steps, expected=(), actual=())
        return replay(asked, self.port, expect=rules_of(self.subject.profile))

    def diagnosis(self, seconds: float = 300.0) -> Diagnosis:
        return diagnose(self.case, Scene(self.subject, self.port, self.fresh, self.earlier, seconds))


@contextmanager
def found_on(folder: Path, body: str, *, flags: bool = False) -> Iterator[Found]:
    """The failure of a port whose function has this body."""
    with module(folder, "toy_remembers", PORT.format(body=body)) as name:
        found = load(name)
        if flags:
            sys.modules[name].flags.add(1)
        yield Found(found, EXAMPLES)


def script_code(case: Case, folder: Path, *arguments: str) -> tuple[int, str]:
    script = folder / "repro.py"
    script.write_text(repro_script(case, folder, subject_of(case)), encoding="utf-8")
    done = run_python(script, *arguments)
    return done.returncode, done.stdout


def replay_verdict(case: Case, folder: Path, device: str) -> str:
    """The verdict of a replay in this process, which runs kernels in one way only; `device` is that of the session."""
    path = case.save(folder / "case.json")
    return replay_file(path, case.subject, device).verdict


def test_a_failure_of_the_case_alone_depends_on_nothing(tmp_path: Path) -> None:
    with found_on(tmp_path, WRONG) as found:
        diagnosis = found.diagnosis()
        assert (diagnosis.depends_on, diagnosis.case) == ("", found.case)
        assert diagnosis.note == "Repeated in 3 of 3 fresh workers."


@pytest.mark.parametrize(
    "body", slow_after(1, [POISONED, MEMO_BY_LENGTH]), ids=["a flag that stays", "a memo by length"]
)
def test_the_shortest_sequence_of_earlier_calls_is_found(tmp_path: Path, body: str, device: str) -> None:
    with found_on(tmp_path, body) as found:
        diagnosis = found.diagnosis()
        case = diagnosis.case
        assert (case.depends_on, case.history, len(case.calls)) == (EARLIER_CALLS, 1, 2)
        assert bucket_of(case) == bucket_of(found.case)
        assert "Depends on 1 earlier call" in diagnosis.note
        assert Case.from_json(case.to_json()) == case
        assert replay_verdict(case, tmp_path, device) == FAILED
        assert script_code(case, tmp_path)[0] == 1
    # The sequence holds all that it takes: once it passes, the defect is gone.
    with found_on(tmp_path, WRONG), module(tmp_path, "toy_remembers", PORT.format(body=MENDED)):
        assert replay_verdict(case, tmp_path, device) == FIXED
        assert script_code(case, tmp_path)[0] == 0


def test_an_earlier_example_that_fails_alone_takes_the_case_s_place(tmp_path: Path) -> None:
    with found_on(tmp_path, POISONS_ITSELF) as found:
        assert "7" not in repr(found.case.calls)
        diagnosis = found.diagnosis()
    assert (diagnosis.case.steps, diagnosis.depends_on) == (offsets(0, 7), "")
    assert diagnosis.note == "Repeated in 3 of 3 fresh workers."


def test_an_earlier_example_of_a_declared_defect_of_another_property_takes_no_case_s_place(
    tmp_path: Path,
) -> None:
    of_seven = Condition(inputs=lambda case, _: "7" in repr(case.calls))
    symptom = Symptom("value", "prepare_chunk_offsets", "result", condition=of_seven)
    declared = (KnownDeviation("another/property", "https://example.org/1", symptom),)
    with found_on(tmp_path, POISONS_ITSELF) as found:
        found.subject.known_deviations = declared
        found.earlier.forget_failure()
        diagnosis = found.diagnosis()
    assert (diagnosis.case.steps, diagnosis.depends_on) == (found.case.steps, EARLIER_CALLS)


@pytest.mark.parametrize(
    ("body", "flags", "depends_on"),
    [(OF_THIS_PROCESS, True, EARLIER_CALLS), (EVERY_THIRD, False, CHANCE)],
    ids=["the state of one process", "every third call"],
)
@pytest.mark.slow
def test_a_failure_that_cannot_be_shown_again_is_never_said_to_be_gone(
    tmp_path: Path, body: str, flags: bool, depends_on: str, device: str
) -> None:
    with found_on(tmp_path, body, flags=flags) as found:
        case = found.diagnosis().case
    assert (case.depends_on, case.history, case.is_decisive) == (depends_on, 0, False)
    with module(tmp_path, "toy_remembers", PORT.format(body=MENDED)):
        assert replay_verdict(case, tmp_path, device) == NOT_REPRODUCED
        code, output = script_code(case, tmp_path)
        assert (code, "gone" in output) == (2, False)
        assert script_code(case, tmp_path, "--bisect")[0] == 125


def test_a_subject_that_no_other_process_can_import_is_not_confirmed(tmp_path: Path) -> None:
    with found_on(tmp_path, WRONG) as found:
        scene = Scene(found.subject, found.port, partial(InWorker, "toy_of_no_file", "cpu"), found.earlier)
        diagnosis = diagnose(found.case, scene)
    assert (diagnosis.case, diagnosis.depends_on, diagnosis.note) == (found.case, "", "")


@pytest.mark.parametrize("wrong", [{"depends_on": "the moon"}, {"history": -1}, {"history": 1}], ids=str)
def test_a_dependency_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Case.from_data(a_case().to_data() | wrong)


def test_earlier_examples_are_the_last_ones_and_none_is_long() -> None:
    earlier = EarlierExamples()
    for number in range(1000):
        earlier.begin(offsets(0, number))
        earlier.begin(offsets(0) * 500)
    earlier.begin(offsets(0))
    assert earlier.lately == (*(offsets(0, number) for number in range(1000 - 255, 1000)), offsets(0))


def test_arguments_of_earlier_calls_may_be_lists() -> None:
    earlier = EarlierExamples()
    for _ in range(2):
        earlier.begin((call("gather", block_ids=[1, 2]),))
    # Without time, no sequence is tried.
    subject = load("impl")
    port = partial(InWorker, "impl", "cpu", spare=False)
    rules, known = rules_of(subject.profile), subject.known_defects
    assert with_earlier_calls(a_case(), earlier, port, rules, 0.0, known) is None


@pytest.mark.parametrize(
    ("repeated", "flaky", "words"),
    [
        (3, False, "Repeated in 3 of 3 fresh workers."),
        (3, True, "Repeated in 3 of 3 fresh workers. In the process that found it,"),
        (0, True, "**This failure did not repeat when the same input was run again.**"),
    ],
)
def test_a_note_says_one_thing_about_whether_a_failure_repeats(
    repeated: int, flaky: bool, words: str
) -> None:
    confirmation = Confirmation(repeated, 3 if repeated else 0, ())
    note = note_of(Diagnosis(a_case(), confirmation, confirmation), flaky=flaky)
    assert note.startswith(words)
    assert ("did not repeat" in note) == (repeated == 0)
