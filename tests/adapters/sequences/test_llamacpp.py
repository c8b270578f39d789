"""llama.cpp as a port of sequences, where XLLAMACPP's environment or LLAMACPP_PATH is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from subjects.sequences.llamacpp.architectures import architectures
from subjects.sequences.llamacpp.server import ServerContext
from tests.adapters.sequences.libraries import libraries
from tests.helpers.processes import run_fresh

_PROGRAM = """
import json
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import load

load_properties()
subject = load("llamacpp")
context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
context.observer.was_met_before = lambda case: True
load_properties()["sequences/batches"].explore(context, seed=1, max_examples=24)
print(json.dumps({"models": subject.sequences.models, "compared": context.counts.compared}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not libraries(), reason="no environment of xllamacpp, and LLAMACPP_PATH is not set")
def test_architectures_with_recurrent_state_are_enumerated_and_compared() -> None:
    done = run_fresh("-c", _PROGRAM, env={"LLAMACPP_PATH": str(libraries()[-1])})
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert {"mamba", "mamba2", "jamba"} <= set(seen["models"])
    assert seen["compared"]


def test_a_library_that_cannot_be_loaded_is_refused_with_the_loaders_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libllama.so").write_bytes(b"no library")
    monkeypatch.setenv("LLAMACPP_PATH", str(tmp_path / "libllama.so"))
    with pytest.raises(
        ValueError, match=r"but should be a library of llama\.cpp .*: OSError: .*file too short"
    ):
        architectures()


@pytest.mark.parametrize(
    ("step", "requests", "noted"),
    [
        # Lengths of prompts, tokens that were processed.
        (8192, ((6, 6), (6, 5)), True),
        # The checkpoint of the first prompt is one token before that of the second one.
        (8192, ((5, 5), (6, 5), (6, 5)), False),
        (1, ((5, 5), (6, 5), (6, 5)), True),
    ],
)
def test_a_prompt_that_comes_again_is_held_to_a_checkpoint_with_no_earlier_one_near(
    monkeypatch: pytest.MonkeyPatch, step: int, requests: tuple[tuple[int, int], ...], noted: bool
) -> None:
    context = ServerContext(None, 1, {"checkpoints": 32, "checkpoint_step": step})
    for length, processed in requests:
        context.tokens[0] = [1] * length
        timings = {"prompt_n": processed, "cache_n": length - processed}
        answer = {"id_slot": 0, "timings": timings, "tokens": [1, 1, 1]}
        monkeypatch.setattr(context, "post", lambda path, body, answer=answer: answer)
        context.complete(0, 3)
    assert (0 in context.reused) is noted


@pytest.mark.parametrize("prompt_cache", [0, 8192])
def test_a_prompt_that_a_cached_prompt_begins_with_need_not_be_found(
    monkeypatch: pytest.MonkeyPatch, prompt_cache: int
) -> None:
    context = ServerContext(None, 2, {"prompt_cache": prompt_cache})
    for sequence, slot, tokens in ((1, 0, [1, 2, 3]), (2, 0, [4]), (0, 1, [1, 2]), (0, 1, [1, 2, 5])):
        context.tokens[sequence] = tokens
        answer = {"id_slot": slot, "timings": {}, "tokens": [1]}
        monkeypatch.setattr(context, "post", lambda path, body, answer=answer: answer)
        context.complete(sequence, 1)
    assert (0 in context.reused) is (prompt_cache == 0)


_SERVER = """
import sys
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import load

sys.path.append(sys.argv[1])
load_properties()
subject = load("llamacpp")
assert list(subject.sequences.models) == ["llama-server:mamba2"], subject.sequences.models
for name in ("any", "generate", "save"):
    # The results of a server are part of what is drawn, so that another processor draws other examples.
    seeds, compared = iter(range(1, 9)), 0
    while compared <= 3:
        context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
        load_properties()[f"sequences/{name}"].explore(context, seed=next(seeds), max_examples=12)
        compared += context.counts.compared
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not libraries() or "LLAMACPP_PATH" in os.environ,
    reason="no environment of xllamacpp, whose binding has llama-server",
)
def test_llama_server_gives_what_a_fresh_server_gives() -> None:
    environment = libraries()[-1].parents[1]
    done = run_fresh("-c", _SERVER, environment, env={"STATECHECK_MODELS": "llama-server:mamba2"})
    assert done.returncode == 0, done.stderr
