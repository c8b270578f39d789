"""Recorded traffic through an engine of the subject's own: what is counted, which violations count, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from properties.releases.violations import Violations
from statecheck.case.values import Record, record
from statecheck.cli.main import main
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED
from statecheck.subject import Condition, KnownDeviation, Subject, Symptom
from tests.helpers import toy_kernels

REQUESTS = 6
ENGINE = """
import dataclasses
from typing import Any

NUMBER = {number}

@dataclasses.dataclass(frozen=True)
class LiveSettings:
    kinds: tuple
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    runner: str
    block_size: int = 4
    max_num_batched_tokens: int = 16
    num_spec: int = 0
    method: str = "ngram"
    async_scheduling: bool = False
    padding: int = 0

@dataclasses.dataclass(frozen=True)
class LiveStep:
    scheduled: Any
    preempted: Any
    finished: Any
    outputs: Any
    owners: Any
    published: Any
    free: int
    idle: bool
    broken: Any
    findings: Any
    tables: Any
    accesses: Any
    held: Any

from subjects import NotOffered

class LiveEngine:
    '''Computes every prompt in one step, and says a token in each; the fourth request is hit as two blocks.'''

    def __init__(self, settings):
        if settings.runner == "V1":
            raise NotOffered("it has no V1 model runner")
        self.requests, self.steps = {{}}, 0

    def add_request(self, id, prompt, max_tokens):
        self.requests[id] = [len(prompt), max_tokens, 0]

    def step(self, turns):
        self.steps += 1
        scheduled, outputs, finished = {{}}, {{}}, []
        for name, one in self.requests.items():
            begins = not one[2]
            hit = 16 if begins and name == "r3" else 0
            scheduled[name] = dict(computed=hit if begins else one[0] + one[2] - 1, tokens=one[0] - hit if begins else 1,
                                   drafts=0, begins=begins)
            one[2] += 1
            outputs[name] = (1000 + one[2],)
            if one[2] == one[1]:
                finished.append(name)
        owners = tuple((name, group, 0, 3 * number + group + 1) for number, name in enumerate(self.requests) for group in (0, 1, 2))
        held = tuple(((name, self.requests[name][0], ()),) for name, *_ in owners)
        findings = tuple(
            ("read", "the forward of " + name + " reads no request's state", "should read its own",
             dict(request=name, tokens=4, found=(("?", 0, ()),), conv=False, group=1, block=2))
            for name in self.requests if name == NUMBER
        )
        for name in finished:
            del self.requests[name]
        if self.steps == 2 and NUMBER == "raise":
            raise IndexError("out of range")
        left = tuple(one for one in owners if one[0] in self.requests)
        kept = tuple(what for one, what in zip(owners, held) if one[0] in self.requests)
        return LiveStep(scheduled, (), tuple(finished), outputs, left, (), 9, not self.requests, None, findings, owners, (), kept)
"""


def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str = "") -> str:
    """The name of a subject with an engine of its own, which reads wrongly for the request of that name."""
    name = f"engine_{abs(hash((tmp_path, number)))}"
    (tmp_path / f"{name}.py").write_text(ENGINE.format(number=repr(number)), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    request = {"timestamp": 0, "input_length": 1500, "output_length": 200, "hash_ids": [0, 1, 2]}
    path.write_text("\n".join([json.dumps(request)] * REQUESTS), encoding="utf-8")
    return path


def replayed(trace: Path, out: Path, subject: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is in the file."""
    given = (
        "--subject",
        subject,
        "--device",
        "cpu",
        "--out",
        str(out / "replay"),
        "--max-num-seqs",
        "4",
        *options,
    )
    code = main(["replay-trace", str(trace), *given])
    path = out / "replay" / "replay.json"
    return code, json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@pytest.mark.usefixtures("on_cpu")
def test_all_requests_are_served_by_the_subject_s_own_engine(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, content = replayed(trace, tmp_path, own(tmp_path, monkeypatch))
    counts = content["counts"]
    assert (code, content["outcome"]) == (CLEAN, "clean")
    assert (counts["arrived"], counts["finished"], counts["sampled"]) == (REQUESTS, REQUESTS, 4 * REQUESTS)
    assert (counts["hits"], counts["hit_tokens"], counts["violations"]) == (1, 16, 0)
    output = capsys.readouterr().out
    assert "its own engine, runner V2" in output
    assert "async scheduling, 3 drafts" in output
    assert "steps/s" in output


@pytest.mark.usefixtures("on_cpu")
def test_a_violation_that_is_not_declared_is_told_once(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, content = replayed(trace, tmp_path, own(tmp_path, monkeypatch, "r1"))
    assert (code, content["outcome"]) == (FALSIFIED, "violation")
    assert content["counts"]["finished"] == REQUESTS
    assert (content["counts"]["violations"], content["counts"]["declared_violations"]) == (1, 0)
    (row,) = content["violations"]
    assert (row["law"], row["request"], row["defect"], row["step"]) == ("read", "r1", "", 0)
    assert "VIOLATION in step 0, read: the forward of r1 reads no request's state" in capsys.readouterr().out


@pytest.mark.usefixtures("on_cpu")
def test_an_engine_that_raises_ends_the_replay(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, content = replayed(trace, tmp_path, own(tmp_path, monkeypatch, "raise"))
    assert (code, content["outcome"]) == (FALSIFIED, "violation")
    assert content["violations"][0]["message"] == "LiveEngine.step raises IndexError: out of range"


@pytest.mark.usefixtures("on_cpu")
def test_an_interrupted_replay_leaves_its_results(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from properties.releases.replay import ReleaseServing

    step = ReleaseServing.step

    def interrupted(self: ReleaseServing) -> None:
        if self.counts.steps == 2:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(ReleaseServing, "step", interrupted)
    code, content = replayed(trace, tmp_path, own(tmp_path, monkeypatch))
    assert (code, content["outcome"], content["counts"]["steps"]) == (INCOMPLETE, "interrupted", 2)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--runner", "V1"), "runner = 'V1', but should be one that the release has [replay-trace]: it has no V1 model runner"),
        (("--blocks", "15"), "blocks = 15, but should be >= 16, those of the longest request [replay-trace]"),
        (("--method", "mtp"), "method = 'mtp', but should be eagle or ngram [replay-trace]"),
        (
            ("--runner", "V1", "--async-scheduling"),
            "method = 'ngram', but should be eagle with async_scheduling = True and runner = 'V1' [replay-trace]",
        ),
        (("--requests", "0"), "requests = 0, but should be >= 1"),
        (("--factor", "3"), "factor = 3, but should be a divisor of 512"),
        (("--runner", "V3"), "runner = 'V3', but should be V1 or V2"),
        (("--layout", "sd"), "layout = 'sd', but should be SD or DS"),
        (("--block-size", "3"), "block_size = 3, but should be >= 4"),
        (("--tokens", "8"), "tokens = 8, but should be >= 24"),
        (("--acceptance", "1.5"), "acceptance = 1.5, but should be from 0 to 1"),
        (("--subject", "no_such"), "subject = 'no_such', but should be"),
        (("--subject", "impl"), "subject = 'impl', but should be a subject with an engine of its own"),
        (("--device", "cuda"), "device = 'cuda', but should be cpu"),
    ],
)  # fmt: skip
def test_a_trace_that_cannot_be_replayed_is_refused(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:  # fmt: skip
    code, content = replayed(trace, tmp_path, own(tmp_path, monkeypatch), *options)
    assert (code, content) == (MISCONFIGURED, {})
    assert message in capsys.readouterr().err


SETTINGS = record("LiveSettings", kinds=("gdn",))


def seen(*findings: tuple[Any, ...], tables: tuple[Any, ...] = (), begins: tuple[str, ...] = ()) -> Record:
    scheduled = {name: {"computed": 0, "tokens": 4, "drafts": 0, "begins": True} for name in begins}
    return record("LiveStep", scheduled=scheduled, tables=tables, findings=findings)


def finding(law: str, request: str = "", block: int = 2, group: int = 1) -> tuple[Any, ...]:
    about = {"request": request, "tokens": 4, "found": (), "conv": False, "group": group, "block": block}
    return law, f"{law} of {request}", "should not", about


def violations(*known: KnownDeviation) -> Violations:
    return Violations(Subject("toy", toy_kernels, known), "real-engine/v2", SETTINGS)


def laws_of(found: Violations, *steps: Record) -> list[tuple[int, str, str]]:
    for number, step in enumerate(steps):
        found.look(number, step)
    return [(row.step, row.law, row.request) for row in found.found]


def test_a_request_that_came_to_a_wrong_state_is_counted_once() -> None:
    wrong = (finding("read", "r0"), finding("output", "r0"), finding("published", "r0", 5))
    assert laws_of(violations(), seen(*wrong), seen(*wrong), seen(finding("read", "r1"))) == [
        (0, "read", "r0"),
        (2, "read", "r1"),
    ]


def test_a_wrong_block_is_counted_once_and_so_is_what_continues_from_it() -> None:
    wrong = finding("published", "r0", 5)
    hit = seen(wrong, finding("read", "r1", 7), tables=(("r1", 1, 0, 5), ("r1", 1, 1, 7)), begins=("r1",))
    assert laws_of(violations(), seen(wrong), seen(wrong), hit) == [(0, "published", "r0")]


def test_blocks_that_are_lost_are_counted_once() -> None:
    lost: tuple[Any, ...] = ("free", "free blocks = 3", "should be 4", {})
    assert laws_of(violations(), seen(lost), seen(lost)) == [(0, "free", "")]


def test_a_violation_is_of_the_defect_that_is_declared_for_it() -> None:
    read = Symptom("value", "LiveEngine.step", "result.broken.read")
    known = KnownDeviation("real-engine/*", "https://example.org", read, id="reads-wrongly")
    found = violations(known)
    found.look(0, seen(finding("read", "r0"), finding("read", "r1"), finding("published", "r2", 9)))
    assert [row.defect for row in found.found] == ["reads-wrongly", "reads-wrongly", ""]


def test_a_declaration_that_asks_how_often_a_request_began_is_told() -> None:
    asked: list[int] = []

    def again(case: Any) -> bool:
        steps = [outcome.value for outcome in case.actual if isinstance(outcome.value, Record)]
        asked.append(sum("r0" in step["scheduled"] for step in steps))
        return True

    asks = Condition(lambda case, _: again(case))
    read = Symptom("value", "LiveEngine.step", "result.broken.read", condition=asks)
    known = KnownDeviation("real-engine/*", "https://example.org", read)
    found = violations(known)
    found.look(0, seen(begins=("r0",)))
    found.look(9, seen(finding("read", "r0"), begins=("r0",)))
    assert asked == [2]
