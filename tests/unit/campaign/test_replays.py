"""Which cases of a corpus a campaign replays, in which order, and what it says of those that it did not replay."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.corpus import Corpus, replayed
from statecheck.campaign.display import print_sections, print_verdict
from statecheck.campaign.record import CampaignRecord, CorpusRecord
from statecheck.campaign.report import markdown
from statecheck.campaign.summary import verdict
from statecheck.campaign.tasks import Explore, Replay, Replayed
from statecheck.case import Case
from statecheck.case.values import Device, Returned, call
from statecheck.diagnose.replay import FIXED, NOT_APPLICABLE, NOT_REPRODUCED, replay_case
from statecheck.subject import Subject, load
from tests.helpers.cases import a_case, toy
from tests.helpers.faulty import EXACT, PADDED
from tests.unit.campaign.pretended import Actor, passes, pretended

pytestmark = pytest.mark.usefixtures("default_signals")

DIVIDED = a_case(
    subject="impl",
    steps=(call("cdiv", x=5, y=2),),
    expected=(Returned(3),),
    actual=(Returned(2),),
    message="result = 2, but should be 3 [cdiv(x=5, y=2)]",
)
SCENARIO = a_case(
    subject="llamacpp",
    steps=(
        call("Sequences", bind="s", model="mamba2", seed=1, features={}),
        call("Sequences.drop", context=0),
    ),
    expected=(Returned(None), Returned(None)),
    actual=(Returned(None), Returned(None)),
    message="result = 2, but should be 3",
)


def corpus_of(folder: Path, count: int) -> list[str]:
    """The names of that many files, in their order."""
    names = [f"case{number:02}.json" for number in range(count)]
    for name in names:
        a_case(property_id=EXACT).save(folder / "corpus" / name)
    return names


def noting(order: list[str], verdicts: dict[str, str], seconds: float = 0.0) -> Any:
    """A worker's part that notes which cases it replays."""

    def replay(task: Replay, actor: Actor) -> None:
        name = Path(task.path).name
        order.append(name)
        time.sleep(seconds)
        case = a_case(property_id=EXACT).to_data() if verdicts.get(name) == "FAILED" else {}
        actor.say(Replayed(CorpusRecord(name, verdicts.get(name, "FIXED"), ""), case))

    return replay


def test_cases_that_failed_last_are_replayed_first(tmp_path: Path) -> None:
    names = corpus_of(tmp_path, 12)
    failing = {names[7]: "FAILED", names[11]: "FAILED"}
    pretended(tmp_path, passes, examples=30, engines=1, id="first", replay=noting([], failing))
    order: list[str] = []
    pretended(tmp_path, passes, examples=30, engines=1, id="second", replay=noting(order, failing))
    assert set(order[:2]) == set(failing)
    assert set(order) == set(names)


def test_a_case_that_no_campaign_has_replayed_comes_before_fixed_ones(tmp_path: Path) -> None:
    names = corpus_of(tmp_path, 6)
    pretended(tmp_path, passes, examples=30, engines=1, id="first", replay=noting([], {}))
    a_case(property_id=EXACT).save(tmp_path / "corpus" / "later.json")
    order: list[str] = []
    pretended(tmp_path, passes, examples=30, engines=1, id="second", replay=noting(order, {}))
    assert (order[0], len(order)) == ("later.json", len(names) + 1)


def test_a_case_that_failed_and_was_not_replayed_since_still_comes_first(tmp_path: Path) -> None:
    names = corpus_of(tmp_path, 8)
    failing = {names[5]: "FAILED"}
    pretended(tmp_path, passes, examples=30, engines=1, id="first", replay=noting([], failing))
    # Nothing is replayed: the budget is over before the first worker is asked.
    pretended(tmp_path, passes, budget=0.0, engines=1, id="second", replay=noting([], failing))
    order: list[str] = []
    pretended(tmp_path, passes, examples=30, engines=1, id="third", replay=noting(order, failing))
    assert order[0] == names[5]


def test_equal_cases_come_in_another_order_with_another_seed(tmp_path: Path) -> None:
    """The cases without time for a replay are not the same cases each time."""
    corpus_of(tmp_path, 10)
    orders = []
    for seed in (1, 2, 1):
        order: list[str] = []
        pretended(tmp_path, passes, examples=30, engines=1, replay=noting(order, {}), seed=seed)
        orders.append(order)
        shutil.rmtree(tmp_path / "reports")
    assert orders[0] == orders[2] != orders[1]


@pytest.fixture
def hurried(tmp_path: Path) -> CampaignRecord:
    """A campaign that had no time for most of its corpus."""
    corpus_of(tmp_path, 30)

    def slow(task: Explore, actor: Actor) -> None:
        time.sleep(0.2)
        passes(task, actor)

    record, _ = pretended(tmp_path, slow, budget=0.5, engines=1, replay=noting([], {}, 0.05))
    return record


def test_a_case_without_time_for_its_replay_leaves_the_campaign_incomplete(
    hurried: CampaignRecord,
) -> None:
    left = [row.file for row in hurried.corpus if row.verdict == "NOT REPLAYED"]
    assert left
    assert len(hurried.corpus) == 30
    found = verdict(hurried)
    assert (found.word, found.exit_code) == ("INCOMPLETE", 2)
    assert any(f"{len(left)} cases of the corpus were not replayed" in reason for reason in found.reasons)


def test_cases_that_were_not_replayed_are_named_in_terminal_and_summary(
    hurried: CampaignRecord, tmp_path: Path
) -> None:
    lines: list[str] = []
    print_sections(lines.append, hurried)
    print_verdict(lines.append, hurried, tmp_path / "reports/campaigns/pretended")
    name = next(row.file for row in hurried.corpus if row.verdict == "NOT REPLAYED")
    assert any(name in line and "not replayed" in line for line in lines)
    assert sum("not replayed" in line.lower() for line in lines) == 1
    assert name in markdown(hurried, tmp_path / "reports/campaigns/pretended")


def test_a_case_that_another_file_of_its_name_hides_is_replayed_too(tmp_path: Path) -> None:
    """The corpus of the checkout and the one beside the reports may each have a case of a bucket."""
    a_case(property_id=EXACT).save(tmp_path / "corpus" / "one.json")
    a_case(property_id=EXACT, sentence="Another one.").save(tmp_path / "kept" / "one.json")
    a_case(property_id=EXACT).save(tmp_path / "corpus" / "same.json")
    a_case(property_id=EXACT).save(tmp_path / "kept" / "same.json")
    order: list[str] = []
    pretended(tmp_path, passes, examples=30, replay=noting(order, {}), kept=str(tmp_path / "kept"))
    assert sorted(order) == ["one.json", "one.json", "same.json"]


# Systems.


def engine_of(name: str) -> Subject:
    """A subject with an engine that no longer fails."""

    class Sequences:
        def __init__(self, model: str, seed: int, features: dict[str, Any]) -> None: ...

    subject = toy(Sequences=Sequences)
    subject.name = name
    return subject


def test_a_case_of_an_engine_is_not_applicable_to_another_system() -> None:
    found = replay_case(SCENARIO, engine_of("mlx_lm"), "cpu")
    assert (found.verdict, "llamacpp" in found.message) == (NOT_APPLICABLE, True)


def test_a_case_of_an_engine_belongs_to_each_release_of_its_system() -> None:
    subject = engine_of("llamacpp")
    for release in ("2026.10.11549", "2026.11.1", ""):
        subject.release = release
        assert (
            "is of llamacpp"
            not in replay_case(
                replace(
                    SCENARIO,
                    steps=SCENARIO.steps[:1],
                    expected=SCENARIO.expected[:1],
                    actual=SCENARIO.actual[:1],
                ),
                subject,
                "cpu",
            ).message
        )


def test_a_case_of_documented_functions_belongs_to_every_port_of_them() -> None:
    """The rules are the documents' for all of them."""
    found = replay_case(replace(DIVIDED, subject="another"), load("impl"), "cpu")
    assert (found.verdict, "now" in found.message) == (FIXED, False)


# Cases that say nothing.


def test_a_case_without_calls_is_refused_and_not_fixed(tmp_path: Path) -> None:
    empty = replace(DIVIDED, steps=(), expected=(), actual=(), failure=None)
    with pytest.raises(ValueError, match="but should be one at least"):
        replay_case(empty, load("impl"), "cpu")
    empty.save(tmp_path / "empty.json")
    (entry,) = Corpus(tmp_path).entries()
    assert replayed(entry, "impl", "cpu")[0].verdict == "UNREADABLE"


def test_a_case_without_a_failure_is_not_called_fixed() -> None:
    found = replay_case(replace(DIVIDED, failure=None), load("impl"), "cpu")
    assert (found.verdict, "no failure" in found.message) == (NOT_REPRODUCED, True)


def test_a_case_that_calls_the_harness_alone_is_not_called_fixed() -> None:
    harness = replace(
        DIVIDED, steps=(call("harness.canary_identity", number=3, device=Device()),), expected=(Returned(3),)
    )
    found = replay_case(harness, load("impl"), "cpu")
    assert (found.verdict, "nothing was compared" in found.message) == (NOT_APPLICABLE, True)


# Cases that cost more than they say.


def test_a_campaign_reads_no_case_before_its_workers_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file costs the time of a worker, which has a limit."""
    names = corpus_of(tmp_path, 3)
    monkeypatch.setattr(Case, "load", lambda path: pytest.fail("read"))
    order: list[str] = []
    pretended(tmp_path, passes, examples=30, replay=noting(order, {}))
    assert sorted(order) == names


def test_an_int_of_hundreds_of_digits_is_answered_by_a_correct_port() -> None:
    case = Case.from_json(replace(DIVIDED, steps=(call("cdiv", x=10**600, y=2),)).to_json())
    assert replay_case(case, load("impl"), "cpu").verdict == FIXED


# Workers that are killed.


def test_an_idle_worker_that_is_killed_is_mentioned(tmp_path: Path) -> None:
    """Where the budget is in examples, a worker waits for the others before another round begins."""

    def ends_while_another_is_busy(task: Explore, actor: Actor) -> None:
        if task.property != EXACT:
            time.sleep(1.5)
        passes(task, actor)
        if task.property == EXACT:
            time.sleep(0.2)
            actor.die(-9)

    chosen = f"{EXACT} or {PADDED}"
    record, _ = pretended(tmp_path, ends_while_another_is_busy, examples=80, engines=2, only=chosen)
    assert record.warnings == ["a worker died with exit code -9 between two tasks"]


def test_the_reports_of_a_campaign_say_that_a_worker_was_killed(tmp_path: Path) -> None:
    corpus_of(tmp_path, 1)

    def killed_once(task: Replay, actor: Actor) -> None:
        if not task.isolated:
            actor.die(-9)
        actor.say(Replayed(CorpusRecord(Path(task.path).name, "FIXED", "")))

    record, _ = pretended(tmp_path, passes, examples=30, replay=killed_once)
    lines: list[str] = []
    print_sections(lines.append, record)
    assert any("exit code -9" in line for line in lines)
    assert "exit code \\-9" in markdown(record, tmp_path) or "exit code -9" in markdown(record, tmp_path)
