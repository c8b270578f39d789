"""The command `prove`: lemmas hold on impl, a planted defect is refuted by a case that fails, and what it exits with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lab.prove.__main__ import code_of, main
from statecheck.case import Case
from statecheck.case.values import Let
from statecheck.diagnose.replay import FAILED, replay_file
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED
from statecheck.subject import load

if importlib.util.find_spec("z3") is None:
    pytest.skip("z3-solver is not installed (the extra `prove`)", allow_module_level=True)

from lab.prove.lemmas import KNOWN, OUT_OF_REACH, PROVED, REFUTED, SCENES, LemmaVerdict, prove
from lab.prove.memory import ADDRESS, EQUAL, OVERFLOW
from lab.prove.scenes import PREPROCESS

DEFECTIVE = "lab.tests.prove.defective"
SECONDS = 500.0


def states(verdicts: list[LemmaVerdict]) -> dict[str, str]:
    return {one.lemma: one.state for one in verdicts}


def test_the_preprocess_kernel_of_impl_does_what_the_oracle_says_for_every_int32() -> None:
    found = states(prove(load("impl"), PREPROCESS, "SD", SECONDS))
    assert set(found.values()) == {PROVED}, found
    assert len(found) == 3


@pytest.mark.slow
def test_the_precopy_kernel_of_impl_does_what_the_oracle_says_for_every_int32() -> None:
    """The cheapest of the kernels that copy; `python -m lab.prove` has all, and takes minutes."""
    scene, model = next(one for one in SCENES if one[1] == "fewer states")
    found = states(prove(load("impl"), scene, model, SECONDS))
    assert set(found.values()) == {PROVED}, found


def named(case: Case) -> dict[str, Any]:
    return {step.name: step.value for step in case.steps if isinstance(step, Let)}


@pytest.fixture(scope="module")
def refuted() -> dict[str, LemmaVerdict]:
    verdicts = prove(load(DEFECTIVE), PREPROCESS, "SD", SECONDS)
    return dict(zip((EQUAL, ADDRESS, OVERFLOW), verdicts, strict=True))


@pytest.mark.parametrize("about", [EQUAL, ADDRESS])
def test_a_planted_defect_is_refuted_by_a_case_that_fails(
    refuted: dict[str, LemmaVerdict], about: str, tmp_path: Path
) -> None:
    verdict = refuted[about]
    assert (verdict.state, verdict.known) == (REFUTED, ""), verdict
    assert verdict.case is not None
    path = verdict.case.save(tmp_path / "case.json", durable=False)
    assert replay_file(path, DEFECTIVE, "cpu").verdict == FAILED


def test_the_case_has_the_smallest_numbers(refuted: dict[str, LemmaVerdict]) -> None:
    case = refuted[EQUAL].case
    assert case is not None
    launch = case.calls[-1].named
    lets = named(case)
    numbers = {name: lets[name].elements[0] for name in ("mapping", "computed", "counts")}
    # The shortest step that comes to the end of a block: of no token.
    assert numbers == {"mapping": 0, "computed": 0, "counts": 0}
    assert launch["constexprs"]["MAMBA_BLOCK_SIZE"] == 16
    assert lets["starts"].elements[:2] == (0, 0)


def test_an_overflow_is_refuted_by_numbers_that_overflow(refuted: dict[str, LemmaVerdict]) -> None:
    verdict = refuted[OVERFLOW]
    assert verdict.state == REFUTED, verdict
    assert verdict.case is not None
    lets = named(verdict.case)
    begin, end = lets["starts"].elements[:2]
    assert 2 * (lets["computed"].elements[0] + end - begin) >= 2**31


def verdict(state: str, known: str = "") -> LemmaVerdict:
    return LemmaVerdict("a lemma", state, 1.0, 1, known=known)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([verdict(PROVED)], CLEAN),
        ([verdict(PROVED), verdict(OUT_OF_REACH)], INCOMPLETE),
        ([verdict(OUT_OF_REACH), verdict(REFUTED)], FALSIFIED),
        ([verdict(PROVED), verdict(KNOWN, "a-declared-defect")], CLEAN),
        ([verdict(OUT_OF_REACH, "a-declared-defect")], INCOMPLETE),
    ],
)
def test_the_exit_code_is_that_of_the_worst_lemma(verdicts: list[LemmaVerdict], code: int) -> None:
    assert code_of(verdicts) == code


def test_the_command_prints_a_table_and_saves_cases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["--subject", DEFECTIVE, "--only", "preprocess", "--reports", str(tmp_path)]
    assert main(options) == FALSIFIED
    printed = capsys.readouterr().out
    assert "refuted" in printed
    assert "replay" in printed
    assert list(tmp_path.glob("*.json"))


def test_without_z3_the_command_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.prove.__main__.find_spec", lambda name: None)
    assert main([]) == MISCONFIGURED
    assert "z3-solver" in capsys.readouterr().err


def test_a_subject_without_the_calls_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--subject", "math"]) == MISCONFIGURED
    assert "should have a call of a lemma" in capsys.readouterr().err


def test_a_lemma_out_of_time_is_out_of_reach() -> None:
    found: list[Any] = prove(load("impl"), PREPROCESS, "SD", 0.0)
    assert {(one.state, one.paths, one.why) for one in found} == {(OUT_OF_REACH, 1, "more than 0 s")}
