"""What the command about adapters makes of systems that pass, fail or cannot be set up."""

from __future__ import annotations

import pytest

from lab import adapters
from lab.adapters import AdapterResult, newest, verified
from statecheck.cli.main import run_command
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.subject.loading import PROJECTS

PASSED = AdapterResult("vLLM 1.0", tests="3 passed", profile="engines: 4 passed", seconds=5)
FAILED = AdapterResult("SGLang 1.0", tests="1 failed", profile="engines: 4 passed", failed=True)
LEFT_OUT = AdapterResult("mlx-lm", left_out="pip failed")


@pytest.mark.parametrize(
    ("results", "code", "last"),
    [
        ((PASSED, LEFT_OUT), CLEAN, "1 passed, 0 failed, 1 left out (mlx-lm: the reason is above)"),
        ((PASSED, FAILED), FALSIFIED, "1 passed, 1 failed, 0 left out"),
        ((FAILED, LEFT_OUT), FALSIFIED, "0 passed, 1 failed, 1 left out (mlx-lm: the reason is above)"),
        (
            (LEFT_OUT, LEFT_OUT),
            INCOMPLETE,
            "0 passed, 0 failed, 2 left out (mlx-lm, mlx-lm: the reason is above)",
        ),
    ],
)
def test_a_failure_decides_and_a_system_left_out_alone_does_not(
    results: tuple[AdapterResult, ...],
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = iter(results)
    monkeypatch.setattr(adapters, "verified", lambda *_, **__: next(found))
    names = ["vllm", "sglang"]
    assert run_command(adapters.adapters, names, "python -m lab.adapters") == code
    assert capsys.readouterr().out.endswith(f"adapters: {last}\n")


def test_a_system_that_cannot_be_set_up_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise ValueError("no index\nanswers")

    monkeypatch.setattr(adapters, "enter", refuse)
    assert verified(PROJECTS["vllm"], "engines", published=False).line == "vLLM: LEFT OUT: no index answers"


def test_the_newest_release_is_the_newest_that_the_adapter_is_tried_with() -> None:
    assert newest(PROJECTS["sglang"], published=False) == PROJECTS["sglang"].compared[-1]
