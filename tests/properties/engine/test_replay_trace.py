"""Replaying recorded traffic: what is right passes, what is wrong is found, and the report says what happened."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console

from oracle.lifecycle.ledger import StateLedger
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import Geometry, ScheduledRequest
from properties.engine.flaws import Violation
from properties.engine.traffic import engines as replay_engines
from properties.engine.traffic.counts import Moves, moves_of
from properties.engine.traffic.device_states import DeviceEngine
from properties.engine.traffic.engines import ReplayOptions, make_engine
from properties.engine.traffic.replay import Serving
from properties.engine.traffic.report import Histories, Progress, draw
from properties.engine.traffic.requests import arrivals
from properties.strategies.builders import CLASSES
from properties.strategies.layout import environment
from statecheck.cli.main import main
from statecheck.execution.exit_codes import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED
from statecheck.execution.port import InProcess
from subjects import load
from subjects.impl import PUBLISHED_MODELS, SUBJECT
from tests.campaign.nightly_examples import parsed

MODELS = ("small", "tiny")
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


def served(trace: Path, device: str, **options: Any) -> Serving:
    """Traffic before its first step."""
    chosen = ReplayOptions(trace=trace, device=device, max_num_seqs=4, tokens=64, **options)
    # On a GPU as on a CPU: what is free there is free for the tests of other processes, too.
    chosen = replace(chosen, blocks=chosen.blocks or chosen.scarce_blocks)
    engine = make_engine(chosen, load("impl"), device, 150)
    return Serving(engine, arrivals(trace, factor=chosen.factor), chosen)


def serve(serving: Serving) -> None:
    while not serving.is_over:
        serving.step()


@pytest.mark.parametrize(
    ("model", "runner", "layout"),
    [("small", "V1", "SD"), ("small", "V2", "DS"), ("tiny", "V1", "DS"), ("tiny", "V2", "SD")],
)
def test_all_requests_are_served_without_a_violation(
    trace: Path, tmp_path: Path, device: str, model: str, runner: str, layout: str
) -> None:
    code, content = replayed(
        trace, tmp_path, device, "--model", model, "--runner", runner, "--layout", layout
    )
    assert (code, content["outcome"], content["violation"]) == (CLEAN, "clean", None)
    assert content["counts"]["finished"] == content["traffic"]["requests"] == REQUESTS
    assert content["counts"]["sampled"] >= content["traffic"]["tokens_out"]
    assert content["counts"]["hits"] > 0


def test_metadata_that_were_not_waited_for_are_read_as_they_are(
    trace: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a GPU small tensors have an image on the host, which a replay's calls do not fetch; here a CPU's have one, too.
    monkeypatch.setattr(InProcess, "__init__", partialmethod(InProcess.__init__, arena=True))
    serve(served(trace, device, model="tiny"))


@pytest.mark.parametrize("layout", ["SD", "DS"])
@pytest.mark.parametrize("model", PUBLISHED_MODELS, ids=lambda model: model.name)
def test_the_states_of_a_published_model_are_of_the_shapes_that_it_has(
    trace: Path, model: Any, layout: str
) -> None:
    options = ReplayOptions(trace=trace, num_spec=0, layout=layout)
    kind, states, layers = replay_engines._states(model.name, options)
    with SUBJECT.environment(environment(layout)):
        assert tuple(state.shape for state in states) == model.state_shapes()
    assert layers == model.num_layers
    assert kind in CLASSES
    rows = {state.shape[layout == "DS"] for state in states if state.kind == "conv"}
    assert rows <= {2, 3}


@pytest.mark.parametrize("model", MODELS)
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
    model: str,
    text: str,
    runner: str,
) -> None:
    name = broken(text, tmp_path, monkeypatch)
    code, content = replayed(trace, tmp_path, device, "--model", model, "--runner", runner, "--subject", name)
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
        "--model",
        "tiny",
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
    replayed(trace, tmp_path, device, "--model", "tiny", "--subject", name, "--seed", "3")
    found = json.loads((tmp_path / "replay" / "violation.json").read_text(encoding="utf-8"))
    assert found["block"] > 0
    assert found["request"] in {row["request"] for step in found["steps"] for row in step["rows"]}
    assert "--requests 2000 --seed 3" in capsys.readouterr().out


def test_the_same_seed_makes_the_same_replay_whatever_the_memory(
    trace: Path, tmp_path: Path, device: str
) -> None:
    def counts(model: str, seed: str) -> dict[str, int]:
        _, content = replayed(trace, tmp_path, device, "--model", model, "--seed", seed, "--requests", "4")
        # The models have different numbers of layers.
        return {**content["counts"], **content["marks"], "states_moved": 0}

    assert counts("small", "1") == counts("small", "1") == counts("tiny", "1") != counts("small", "2")


def test_requests_are_preempted_and_come_back_where_blocks_are_scarce(
    trace: Path, tmp_path: Path, device: str
) -> None:
    code, content = replayed(trace, tmp_path, device, "--blocks", "19", "--model", "tiny")
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
    code, content = replayed(trace, tmp_path, device, "--model", "tiny")
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
        ("--model", "gpt", "model = 'gpt', but should be one of small, tiny, Qwen3-Next-80B-A3B"),
        ("--model", "jamba", "num_spec = 3, but should be 0"),
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


def test_a_write_to_a_published_block_is_found_at_the_end(trace: Path, device: str) -> None:
    serving = served(trace, device, model="tiny")
    engine = serving.engine
    assert isinstance(engine, DeviceEngine)
    serve(serving)
    engine.check_everything()
    block, (group, _) = next(iter(engine.scheduler.pool.registered.items()))
    engine.cache.pools.poison(group, [block])
    with pytest.raises(Violation, match=f"at the end, .* in block {block}, "):
        engine.check_everything()


def test_a_block_that_is_not_what_it_was_is_found_when_it_is_hit(trace: Path, device: str) -> None:
    serving = served(trace, device, model="tiny")
    engine = serving.engine
    assert isinstance(engine, DeviceEngine)
    for _ in range(4):
        serving.step()
    for block, (group, _) in engine.scheduler.pool.registered.items():
        engine.cache.pools.poison(group, [block])
    with pytest.raises(Violation, match=r"in step \d+, (hit by|read by|before the forward)"):
        serve(serving)


@pytest.mark.parametrize(
    ("computed", "drafts", "column", "accepted", "moves"),
    [
        # Blocks of 4 tokens. From 3 computed tokens on, the state after 4 is the running column's first.
        (3, 2, 0, 1, Moves(True, 0, True)),
        (4, 2, 0, 1, Moves(True, None, False)),
        (5, 2, 1, 3, Moves(False, 1, True)),
        (5, 2, 1, 2, Moves(False, None, False)),
        (7, 0, 1, 1, Moves(False, 1, False)),
        # Speculation had gone further than what was accepted.
        (3, 0, 1, 1, Moves(True, 0, False)),
    ],
)
def test_a_move_is_counted_where_a_state_is_not_where_it_has_to_be(
    computed: int, drafts: int, column: int, accepted: int, moves: Moves
) -> None:
    ledger = StateLedger(Geometry(block_size=4, num_spec=2), Prefixes())
    length = 1 + drafts
    numbers = tuple(range(1, length + 1))
    row = ScheduledRequest("r", computed, length, numbers[:drafts], numbers, numbers, ())
    assert moves_of(ledger, row, {"r": column}, accepted) == moves


def test_a_request_that_comes_in_brings_the_column_of_its_hit() -> None:
    ledger = StateLedger(Geometry(block_size=4), Prefixes())
    fresh = ScheduledRequest("r", 0, 4, (), (1, 2, 3, 4), (1, 2, 3, 4), (), is_new=True)
    hit = ScheduledRequest("r", 4, 4, (), (1, 2, 3, 4), (1, 2, 3, 4), (), is_resumed=True, hit=1)
    assert moves_of(ledger, fresh, {}, 1) == Moves(False, 0, False)
    assert moves_of(ledger, hit, {"r": 9}, 1) == Moves(True, 1, False)


def test_the_history_of_a_resumed_request_has_a_span_for_each_block_of_a_column() -> None:
    found = Histories()
    row = ScheduledRequest("r", 0, 4, (), (), (), ())
    other = ScheduledRequest("s", 0, 4, (), (), (), ())
    again = ScheduledRequest("r", 4, 4, (), (), (), (), is_resumed=True, hit=1)
    found.step(0, row, [5, 6], 0)
    found.step(1, row, [0, 6, 7], None)
    found.step(1, other, [8, 9, 10, 11], None)
    found.preempted(2, "r")
    found.step(3, again, [5, 6], 1)
    found.end("r")
    assert found.chosen() == {
        "request": "r",
        "spans": [[0, 5, 0, 0], [1, 6, 0, 1], [2, 7, 1, 1], [0, 5, 3, 3], [1, 6, 3, 3]],
        "events": [(0, 0, "boundary"), (2, 2, "preempted"), (3, 0, "prefix hit"), (3, 1, "boundary")],
    }


TIMELINE = {"request": "r", "spans": [[0, 5, 0, 2], [9, 6, 1, 3]], "events": [(2, 0, "boundary")]}


def test_a_request_s_blocks_over_time_are_drawn(tmp_path: Path) -> None:
    assert draw({"timeline": TIMELINE}, tmp_path / "timeline.svg").startswith("drawn ")
    root = parsed((tmp_path / "timeline.svg").read_text(encoding="utf-8"))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    # Columns 0 and 9, a block in each, and an event that the legend names.
    assert [texts.count(words) for words in ("0", "9", "5", "6", "boundary", "preempted")] == [
        2,
        1,
        1,
        1,
        1,
        0,
    ]


def test_outside_a_terminal_progress_is_a_line_now_and_then(
    trace: Path, device: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("properties.engine.traffic.report._LINE_SECONDS", -1.0)
    counts = served(trace, device).counts
    with Progress(Console(width=120), REQUESTS) as progress:
        progress.show(counts)
    assert "0 of 7 requests, 0 steps" in capsys.readouterr().out
