"""The command `traces`: so many scenarios of requests, what it says of them, and how it ends."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from properties.engine.marks import MARKS
from statecheck.campaign.processes.tasks import Explore
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.cli import main as cli
from statecheck.cli.traces import shares_of
from statecheck.execution.example import Tally
from statecheck.execution.registry import load_properties
from statecheck.execution.selection import heading, machines
from tests.campaign.pretended import Actor, passes, pretended, stage

pytestmark = pytest.mark.usefixtures("executed")

# From the command line.


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str
    folder: Path

    @property
    def table(self) -> dict[str, str]:
        """What stands beside each moment."""
        cells = [line.split("│") for line in self.output.splitlines() if "│" in line]
        return {one[0].strip(): one[1].strip() for one in cells if one[0].strip() in MARKS}

    @property
    def record(self) -> CampaignRecord:
        return CampaignRecord.load(self.folder / "reports" / FILE)


def traces(folder: Path, *options: str) -> Ended:
    """Run the command in this process, with a worker of its own."""
    printed = io.StringIO()
    command = ["traces", "--device", "cpu", "--workers", "1", "--seed", "7", "--only", "without_copies"]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(folder / "hypothesis"))
        code = cli.main([*command, "--reports", str(folder / "reports"), *options])
    return Ended(code, printed.getvalue(), folder)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return traces(tmp_path_factory.mktemp("clean"), "--count", "5", "--steps", "12")


def test_traces_in_which_nothing_is_wrong_exit_0(clean: Ended) -> None:
    assert clean.code == 0, clean.output
    passed = re.search(r"^1 passed; (\d+) examples in \d+ s$", clean.output, re.MULTILINE)
    # Hypothesis adds an example for each that it cannot use.
    assert passed is not None
    assert int(passed[1]) == clean.record.examples >= 5
    assert clean.record.complete
    assert clean.record.properties[0].compared > 0
    first, second, *_ = clean.output.splitlines()
    assert first.endswith(": subject impl, device cpu, 1 workers, 5 examples")
    assert second.endswith(", seed 7")


def test_the_table_has_a_share_for_every_moment_and_a_column_for_each_machine(clean: Ended) -> None:
    moments = clean.table
    assert list(moments) == list(MARKS)
    assert all(re.fullmatch(r"\d+\.\d%", share) for share in moments.values())
    assert len(set(moments.values())) > 1
    assert re.search(r"┃ +no copies\n", clean.output)
    assert re.search(r"┃ +\d+ traces\n", clean.output)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--count", "0"], "count = 0, but should be >= 1 [traces]"),
        (["--steps", "0"], "steps = 0, but should be >= 1 [traces]"),
        (
            ["--only", "chunks"],
            "only = 'chunks', but should match a property; there are lifecycle/v1-provenance",
        ),
    ],
)
def test_traces_that_cannot_be_run_as_given_are_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    ended = traces(tmp_path, *options)
    assert ended.code == 3
    assert said in capsys.readouterr().err


def test_a_subject_without_the_functions_gets_the_reason(tmp_path: Path) -> None:
    with stage(passes):
        ended = traces(tmp_path, "--subject", "math")
    assert "not applicable: lifecycle/no-copies: math has no Mamba1AttentionMetadataBuilder" in ended.output
    assert "Nothing was compared" in ended.output
    assert ended.code == 2


# How traces are shared, and put together.


def test_the_machines_are_the_properties_with_a_heading() -> None:
    tested = load_properties()
    found = [heading(tested[name]) for name in machines(tested)]
    assert found == ["rows", "slots", "no copies", "greedy rows", "greedy slots"]


@pytest.mark.parametrize("count", [1, 20, 103])
def test_as_many_traces_are_run_as_were_asked_for(tmp_path: Path, count: int) -> None:
    record, given = pretended(tmp_path, passes, only="", scenarios=True, examples=count, seed=7, engines=2)
    shares = Counter[str]()
    for task in given:
        shares[task.property] += task.max_examples
    assert shares.total() == record.examples == count
    assert {row.name for row in record.properties} == set(machines(load_properties()))
    # Four each in a round, as long as there are any.
    assert max(shares.values()) - min((*shares.values(), 0) if count < 20 else shares.values()) <= 4
    assert len({task.seed for task in given}) == len(given)


def test_a_run_has_as_many_steps_as_the_option_says(tmp_path: Path) -> None:
    steps_seen: list[int | None] = []

    def note_steps(task: Explore, actor: Actor) -> None:
        steps_seen.append(actor.setting.steps)
        passes(task, actor)

    pretended(tmp_path, note_steps, only="", scenarios=True, examples=5, steps=3)
    assert set(steps_seen) == {3}


def test_shares_are_those_of_each_property_s_own_traces() -> None:
    shares = shares_of(
        [Tally(scenarios, 0, Counter(finished=2) if scenarios else Counter()) for scenarios in (4, 8, 0)]
    )
    assert shares["finished"] == [0.5, 0.25, 0.0]
    assert shares["preemption"] == [0.0, 0.0, 0.0]


def test_scenarios_of_several_explorations_add_up(tmp_path: Path) -> None:
    def scenarios(task: Explore, actor: Actor) -> None:
        tally = Tally(task.max_examples, 7, Counter(finished=task.max_examples))
        actor.passes(task, task.max_examples, tally=tally)

    printed = io.StringIO()
    with stage(scenarios), contextlib.redirect_stdout(printed), contextlib.chdir(tmp_path):
        cli.main(["traces", "--device", "cpu", "--count", "40", "--workers", "1", "--only", "without_copies"])
    assert re.search(r"^ +┃ +40 traces$", printed.getvalue(), re.MULTILINE)
    assert re.search(r"^finished +│ +100.0%$", printed.getvalue(), re.MULTILINE)
