"""Scripts of libraries of sequences: they compare with fresh runs, and say by their exit code whether the defect is there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from statecheck.case import Case
from statecheck.case.values import Name, Step, call
from statecheck.diagnose.replay import replay
from statecheck.execution.executors import ordinary_port
from statecheck.execution.run import rules_of
from statecheck.report.failure import served_text
from statecheck.report.render import write_report
from statecheck.subject import Subject
from subjects.sequences import adapted
from tests.helpers.cases import a_case

REFERENCE = Path(__file__).parents[2] / "adapters/sequences/reference_port.py"
BEGIN = call("Sequences", model="small", seed=0, features={}, bind="library")
ONE_TOKEN = call("Sequences.extend", self=Name("library"), context=0, rows=[(0, (1,))], features={})


def operation(method: str, /, **arguments: Any) -> Step:
    return call(f"Sequences.{method}", self=Name("library"), context=0, **arguments)


def extended(*rows: tuple[int, tuple[int, ...]], **features: Any) -> Step:
    return operation("extend", rows=list(rows), features=features)


FORKED = (BEGIN, ONE_TOKEN, operation("fork", source=0, target=1), extended((0, (2,))), extended((1, (3,))))
_USED = """\
    global USED
    used = globals().get('USED')
    twice = used is not None and used is not context and bool(context.states)
    USED = context if len(rows) > 1 else used
    return [_row(context, sequence, list(tokens) * (1 + twice)) for sequence, tokens in rows]"""
DEFECTS: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    "a fork shares its states": (
        "context.states[target] = list(context.states[source])",
        "context.states[target] = context.states[source]",
        FORKED,
    ),
    "a rollback that is refused drops a token": (
        "    del context.states[sequence][-n:]",
        "    del context.states[sequence][-1:]\n    return False",
        (BEGIN, extended((0, (1, 2, 3))), operation("roll_back", sequence=0, n=2), ONE_TOKEN),
    ),
    "a saved state is the last but one": (
        "    return list(context.states[sequence])",
        "    return context.states[sequence][:-1] or [EMPTY]",
        (
            BEGIN,
            extended((0, (1, 2))),
            operation("save", sequence=0, name="saved 0"),
            operation("load", sequence=1, name="saved 0"),
            extended((1, (4,))),
        ),
    ),
    "a generated token is the smallest": (
        "chosen.append(max(range(len(logits)), key=logits.__getitem__))",
        "chosen.append(min(range(len(logits)), key=logits.__getitem__))",
        (BEGIN, ONE_TOKEN, operation("generate", sequence=0, n=2, features={})),
    ),
    "a stop token is processed twice": (
        "        if chosen[-1] == stop:",
        "        if chosen[-1] == stop:\n            context.states[sequence][-1] = step(context, context.states[sequence][-1], stop)",
        (
            BEGIN,
            extended((0, (1, 2))),
            operation("generate", sequence=0, n=4, features={}, stop=2),
            extended((0, (3,))),
        ),
    ),
    "a cancelled token stays": (
        "        del context.states[sequence][before:]",
        "        del context.states[sequence][before - 1 : -1]",
        (
            BEGIN,
            extended((0, (1, 2))),
            operation("cancel", sequence=0, tokens=(3, 4), after=1),
            extended((0, (5,))),
        ),
    ),
    "a save of another model is not refused": (
        '    """A damaged save is refused."""\n    return False',
        "    context.states[sequence] = list(saved)\n    return True",
        (
            BEGIN,
            ONE_TOKEN,
            operation("save", sequence=0, name="saved 0"),
            operation("load_damaged", sequence=0, damage="another model", name="saved 0"),
        ),
    ),
    "a length is one too large": (
        "    return len(context.states.get(sequence, []))",
        "    return len(context.states.get(sequence, [])) + 1",
        (BEGIN, ONE_TOKEN),
    ),
    "a call raises": (
        "    context.states.pop(sequence, None)",
        "    raise KeyError(sequence)",
        (BEGIN, ONE_TOKEN, operation("drop", sequence=0)),
    ),
    "a feature changes the logits": (
        "    return SmallContext(weights, micro_batch)",
        "    weights[0][1][0] += micro_batch - 8\n    return SmallContext(weights, micro_batch)",
        (call("Sequences", model="small", seed=0, features={"micro_batch": 3}, bind="library"), ONE_TOKEN),
    ),
    "an earlier context is read": (
        "    return [_row(context, sequence, list(tokens)) for sequence, tokens in rows]",
        _USED,
        (BEGIN, extended((0, (1,)), (1, (2,))), BEGIN, ONE_TOKEN, ONE_TOKEN),
    ),
}


@pytest.fixture
def port_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Subject]:
    """A port with a line of the reference port replaced."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(old: str, new: str) -> Subject:
        source = REFERENCE.read_text(encoding="utf-8")
        assert source.count(old) == 1, old
        (tmp_path / "planted_sequences.py").write_text(source.replace(old, new), encoding="utf-8")
        sys.modules.pop("planted_sequences", None)
        return adapted(import_module("planted_sequences"))

    return made


def failing(subject: Subject, steps: tuple[Step, ...]) -> Case:
    case = a_case(steps=steps, expected=(), actual=(), subject=subject.name)
    found = replay(case, ordinary_port(subject, "cpu"), subject, rules_of(subject.profile))
    assert found is not None, "the planted defect does not show"
    return found


def run_script(script: Path, folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, os.path.relpath(script, folder), *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def reported(subject: Subject, case: Case, folder: Path) -> Path:
    return write_report(case, folder / "reports", subject) / "repro.py"


@pytest.mark.parametrize("name", DEFECTS)
def test_a_script_exits_1_with_the_defect_and_0_without(
    name: str, port_of: Callable[[str, str], Subject], tmp_path: Path
) -> None:
    old, new, steps = DEFECTS[name]
    subject = port_of(old, new)
    script = reported(subject, failing(subject, steps), tmp_path)
    for folder in (tmp_path, script.parent):
        code, printed = run_script(script, folder)
        assert code == 1, printed
        assert printed.endswith("the defect is there\n")
    correct = tmp_path / "correct"
    correct.mkdir()
    (correct / "planted_sequences.py").write_text(REFERENCE.read_text(encoding="utf-8"), encoding="utf-8")
    code, printed = run_script(script, tmp_path, SUBJECT_PATH=str(correct))
    # A rollback that was refused is done by the correct port.
    assert code == (2 if "refused" in name else 0), printed


def test_lengths_and_tokens_that_are_processed_again_are_compared_even_where_a_port_writes_scripts(
    port_of: Callable[[str, str], Subject], tmp_path: Path
) -> None:
    counted = "    return len(context.states.get(sequence, []))"
    processed = f"{counted}\n\n\ndef reuse(context, sequence):\n    return [], length(context, sequence) + "
    for old, new, correct, words in (
        (*DEFECTS["a length is one too large"][:2], counted, "counts other tokens"),
        (counted, processed + "1", processed + "0", "computes tokens again"),
    ):
        subject = port_of(old, new)
        assert subject.sequences is not None
        of_library = replace(subject.sequences, script=lambda *_: "compare('nothing', [0.0], [0.0])\n")
        case = failing(subject, (BEGIN, ONE_TOKEN))
        assert words in served_text(case)
        script = reported(replace(subject, sequences=of_library), case, tmp_path)
        assert run_script(script, tmp_path)[0] == 1
        module = tmp_path / "planted_sequences.py"
        module.write_text(module.read_text(encoding="utf-8").replace(new, correct), encoding="utf-8")
        assert run_script(script, tmp_path)[0] == 0


def test_a_failure_that_depends_on_earlier_examples_has_their_calls_in_its_script(
    port_of: Callable[[str, str], Subject], tmp_path: Path
) -> None:
    old, new, steps = DEFECTS["an earlier context is read"]
    subject = port_of(old, new)
    case = failing(subject, steps)
    assert [call_.function for call_ in case.calls].count("Sequences") == 2
    script = reported(subject, case, tmp_path).read_text(encoding="utf-8")
    assert "rows = port.extend(c0, [(0, [1]), (1, [2])])" in script
    assert "c1 = port.new(model, seed)\n    rows = port.extend(c1, [(0, [1])])" in script


def test_a_script_exits_2_where_the_port_cannot_be_imported(
    port_of: Callable[[str, str], Subject], tmp_path: Path
) -> None:
    subject = port_of(*DEFECTS["a fork shares its states"][:2])
    script = reported(subject, failing(subject, FORKED), tmp_path)
    (tmp_path / "planted_sequences.py").unlink()
    code, printed = run_script(script, tmp_path)
    assert code == 2
    assert printed.endswith(
        "it cannot be tried here: ModuleNotFoundError: No module named 'planted_sequences'\n"
    )
    assert run_script(script, tmp_path, "--bisect")[0] == 125


def test_a_script_is_straight_line_code(port_of: Callable[[str, str], Subject], tmp_path: Path) -> None:
    subject = port_of(*DEFECTS["a fork shares its states"][:2])
    script = reported(subject, failing(subject, FORKED), tmp_path).read_text(encoding="utf-8")
    lines = script.partition("model, seed, given =")[2].partition("\n\n\n")[0].splitlines()[1:]
    assert [line.strip() for line in lines] == [
        "c0 = port.new(model, seed)",
        "rows = port.extend(c0, [(0, [1])])",
        'compare("sequence 0 of c0", numbers(rows[0]), fresh([1]))',
        "happened(port.fork(c0, 0, 1))",
        "rows = port.extend(c0, [(0, [2])])",
        'compare("sequence 0 of c0", numbers(rows[0]), fresh([1, 2]))',
        "rows = port.extend(c0, [(1, [3])])",
        'compare("sequence 1 of c0", numbers(rows[0]), fresh([1, 3]))',
    ]
    assert len(script.splitlines()) < 110
