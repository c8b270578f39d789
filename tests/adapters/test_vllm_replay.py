"""Recorded traffic through the engine of a released vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecheck.execution.verdict import CLEAN
from tests.helpers.processes import run_fresh
from tests.helpers.releases import PYTHON, needs_release

REQUESTS = 6


@pytest.mark.slow
@needs_release
@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_the_engine_of_a_release_serves_all_recorded_requests(runner: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    request = {"timestamp": 0, "input_length": 1500, "output_length": 200, "hash_ids": [0, 1, 2]}
    trace.write_text("\n".join([json.dumps(request)] * REQUESTS), encoding="utf-8")
    options = ("--subject", "vllm", "--device", "cpu", "--runner", runner, "--out", tmp_path / "replay")
    done = run_fresh("-m", "statecheck", "replay-trace", trace, *options, python=PYTHON)
    assert done.returncode == CLEAN, done
    content = json.loads((tmp_path / "replay" / "replay.json").read_text(encoding="utf-8"))
    counts = content["counts"]
    assert (counts["finished"], counts["sampled"], counts["violations"]) == (REQUESTS, 4 * REQUESTS, 0)
    assert counts["hits"] > 0
