"""Replaying recorded traffic: what is right passes, what is wrong is found, and the report says what happened."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from properties.engine.traffic.counts import ServedCounts
from properties.engine.traffic.report import Progress
from statecheck.cli.main import main
from statecheck.execution.exit_codes import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED

REQUESTS = 7
IDLE_PRECOPY = """
class MambaSpecDecodeGPUContext(impl.MambaSpecDecodeGPUContext):
    def run_fused_precopy(self, *arguments, **keywords):
        pass
"""
IDLE_POSTPROCESS = """
class MambaSpecDecodeGPUContext(impl.MambaSpecDecodeGPUContext):
    def run_fused_postprocess_align(self, num_accepted_tokens_gpu, *arguments, **keywords):
        pass
"""
IDLE_PREPROCESS = """
def preprocess_mamba(scheduler_output, kv_cache_config, cache_config, mamba_state_idx, input_batch, *rest, **more):
    for request, length in scheduler_output.num_scheduled_tokens.items():
        mamba_state_idx[request] = 0
"""
BLIND_BUILDER = """
class GDNAttentionMetadataBuilder(impl.GDNAttentionMetadataBuilder):
    def build(self, *arguments, **keywords):
        found = super().build(*arguments, **keywords)
        if found.has_initial_state is not None:
            found.has_initial_state.zero_()
        return found
"""
RAISING_BUILDER = """
class GDNAttentionMetadataBuilder(impl.GDNAttentionMetadataBuilder):
    def build(self, *arguments, **keywords):
        raise RuntimeError("out of order")
"""
RAISING_CONSTRUCTOR = """
class GDNAttentionMetadataBuilder(impl.GDNAttentionMetadataBuilder):
    def __init__(self, *arguments, **keywords):
        raise RuntimeError("out of order")
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations of a few rounds, whose prompts begin like those before."""
    path, rng = tmp_path_factory.mktemp("trace") / "trace.jsonl", Random(0)
    lines = []
    for number in range(REQUESTS):
        known = [0, *range(100 * (number % 3) + 1, 100 * (number % 3) + 2 + number // 3)]
        length = 512 * (len(known) - 1) + rng.randint(1, 512)
        request = {
            "timestamp": number,
            "input_length": length,
            "output_length": rng.randint(64, 640),
            "hash_ids": known,
        }
        lines.append(json.dumps(request))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def replayed(trace: Path, out: Path, device: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is in the file."""
    # A folder of its own: the subject may stand beside it. Few blocks, as on a CPU: others use the GPU, too.
    given = (
        "--blocks",
        "29",
        "--device",
        device,
        "--out",
        str(out / "replay"),
        "--max-num-seqs",
        "4",
        "--tokens",
        "64",
        *options,
    )
    code = main(["replay-trace", str(trace), *given])
    return code, json.loads((out / "replay" / "replay.json").read_text(encoding="utf-8"))


def broken(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a subject that is as `impl`, but for this."""
    name = f"subject_{abs(hash((text, folder)))}"
    (folder / f"{name}.py").write_text(f"import impl\nfrom impl import *\n{text}", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    return name


@pytest.mark.parametrize(("runner", "layout"), [("V1", "SD"), ("V2", "DS")])
def test_all_requests_are_served_without_a_violation(
    trace: Path, tmp_path: Path, device: str, runner: str, layout: str
) -> None:
    code, content = replayed(trace, tmp_path, device, "--runner", runner, "--layout", layout)
    assert (code, content["outcome"], content["violation"]) == (CLEAN, "clean", None)
    assert content["counts"]["finished"] == content["traffic"]["requests"] == REQUESTS
    assert content["counts"]["sampled"] >= content["traffic"]["tokens_out"]
    assert content["counts"]["hits"] > 0


@pytest.mark.parametrize(
    ("text", "runner"),
    [
        (IDLE_PRECOPY, "V2"),
        (IDLE_POSTPROCESS, "V2"),
        (IDLE_PREPROCESS, "V1"),
        (BLIND_BUILDER, "V2"),
        (RAISING_BUILDER, "V1"),
    ],
    ids=["precopy", "postprocess", "preprocess", "blind builder", "raising builder"],
)
def test_a_subject_that_is_wrong_is_found_out(
    trace: Path,
    tmp_path: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    runner: str,
) -> None:
    name = broken(text, tmp_path, monkeypatch)
    code, content = replayed(trace, tmp_path, device, "--runner", runner, "--subject", name)
    found = json.loads((tmp_path / "replay" / "violation.json").read_text(encoding="utf-8"))
    assert (code, content["outcome"], content["counts"]["violations"]) == (FALSIFIED, "violation", 1)
    assert found["message"] == content["violation"]
    assert found["moments"]
    assert (tmp_path / "replay" / "violation.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_subject_that_cannot_be_set_up_is_found_out(
    trace: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = broken(RAISING_CONSTRUCTOR, tmp_path, monkeypatch)
    given = (
        "--device",
        device,
        "--blocks",
        "29",
        "--out",
        str(tmp_path / "out"),
        "--subject",
        name,
    )
    assert main(["replay-trace", str(trace), *given]) == FALSIFIED
    found = json.loads((tmp_path / "out" / "violation.json").read_text(encoding="utf-8"))
    assert "out of order" in found["message"]


def test_a_violation_says_where_it_is_and_how_it_comes_again(
    trace: Path,
    tmp_path: Path,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = broken(IDLE_PRECOPY, tmp_path, monkeypatch)
    replayed(trace, tmp_path, device, "--subject", name, "--seed", "3")
    found = json.loads((tmp_path / "replay" / "violation.json").read_text(encoding="utf-8"))
    assert found["block"] > 0
    assert found["request"] in {row["request"] for step in found["steps"] for row in step["rows"]}
    assert "--requests 2000 --seed 3" in capsys.readouterr().out


def test_the_same_seed_makes_the_same_replay(trace: Path, tmp_path: Path, device: str) -> None:
    def counts(seed: str) -> dict[str, int]:
        _, content = replayed(trace, tmp_path, device, "--seed", seed, "--requests", "4")
        return {**content["counts"], **content["marks"]}

    assert counts("1") == counts("1") != counts("2")


def test_requests_are_preempted_and_come_back_where_blocks_are_scarce(
    trace: Path, tmp_path: Path, device: str
) -> None:
    code, content = replayed(trace, tmp_path, device, "--blocks", "19")
    counts = content["counts"]
    assert code == CLEAN
    assert counts["resumptions"] == counts["preemptions"] > counts["wished_preemptions"]
    assert counts["evictions"] > 0


def test_what_is_interrupted_leaves_its_report(
    trace: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show(self: Progress, counts: Any) -> None:  # noqa: ARG001
        if counts.steps == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "show", show)
    code, content = replayed(trace, tmp_path, device)
    assert (code, content["outcome"], content["counts"]["steps"]) == (INCOMPLETE, "interrupted", 2)


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--requests", "0", "requests = 0, but should be >= 1"),
        ("--factor", "3", "factor = 3, but should be a divisor of 512"),
        ("--runner", "V3", "runner = 'V3', but should be V1 or V2"),
        ("--layout", "sd", "layout = 'sd', but should be SD or DS"),
        ("--block-size", "3", "block_size = 3, but should be >= 4"),
        ("--tokens", "8", "tokens = 8, but should be >= 24"),
        ("--blocks", "12", "blocks = 12, but should be >= 13"),
        ("--acceptance", "1.5", "acceptance = 1.5, but should be from 0 to 1"),
        ("--subject", "no_such", "subject = 'no_such', but should be"),
        ("--device", "tpu", "device = 'tpu', but should be auto, cpu or cuda"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    trace: Path,
    tmp_path: Path,
    device: str,
    capsys: pytest.CaptureFixture[str],
    option: str,
    value: str,
    rule: str,
) -> None:
    given = ("--device", device, "--out", str(tmp_path / "out"), "--max-num-seqs", "4", option, value)
    assert main(["replay-trace", str(trace), *given]) == MISCONFIGURED
    assert rule in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_outside_a_terminal_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("properties.engine.traffic.report._LINE_SECONDS", -1.0)
    with Progress(Console(width=120), REQUESTS) as progress:
        progress.show(ServedCounts())
    assert "0 of 7 requests, 0 steps" in capsys.readouterr().out
