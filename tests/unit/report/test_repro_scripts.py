"""Scripts of cases of every kind: 1 with the defect, 0 without, and 0 for what the rules expect."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from properties.strategies.refusals import BAD_INPUTS
from statecheck.case import Case
from statecheck.case.values import (
    Let,
    Name,
    Tensor,
    call,
    int32,
)
from statecheck.execution import profiles
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.executors.in_process import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.report.markdown import subject_root, write_report
from statecheck.report.repro.script import needs_statecheck, repro_script
from subjects import load
from tests.helpers.cases import a_case, case_of
from tests.helpers.modules import ROOT, ScriptVerdict, module, run_scripts
from tests.unit.report.defects import (
    CHANNELS_FIRST,
    DEFECTS,
    falsified,
    is_right,
    source,
    unsaid,
)


@dataclass
class Recording(ExecutionContext):
    """Keeps its trials."""

    trials: list[Example] = field(default_factory=list)

    def begin(self, tested: Property) -> Example:
        trial = super().begin(tested)
        self.trials.append(trial)
        return trial


def cases_of_properties(device: str) -> Iterator[Case]:
    """An example of every property, as far as the default subject answers them by the rules."""
    subject = load("impl")
    for tested in load_properties().values():
        context = Recording(subject, InProcess(subject, device))
        if tested.not_applicable(context):
            continue
        # A property that fails does so in a test of its own.
        with contextlib.suppress(Exception):
            tested.explore(context, seed=1, max_examples=1)
        for trial in context.trials:
            # No call, no case: the example was discarded before its first one.
            with contextlib.suppress(IndexError):
                case = recorded(trial)
                if is_right(case):
                    yield case


def recorded(trial: Example) -> Case:
    with pytest.raises(Falsified) as caught:
        trial.holds(False, "recorded for a test")
    return unsaid(caught.value.case)


@contextlib.contextmanager
def unshrunk() -> Iterator[None]:
    """Hypothesis does not shrink what it finds."""
    settings.register_profile("unshrunk", phases=[Phase.generate], deadline=None)
    settings.load_profile("unshrunk")
    try:
        yield
    finally:
        profiles.load()


@dataclass(frozen=True)
class Scripts:
    """Where the reports are, how their scripts ended, and what the process had imported by then."""

    broken: dict[str, ScriptVerdict]
    intact: dict[str, ScriptVerdict]
    correct: list[tuple[Case, ScriptVerdict]]
    modules: set[str]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory, device: str) -> Scripts:
    """Every script of these tests, as far as possible run in one process."""
    folder = tmp_path_factory.mktemp("scripts")
    reports = {}
    for defect in DEFECTS:
        with module(folder, defect.module, source(defect)):
            case = falsified(defect.module, device, *defect.steps)
            reports[defect.name] = write_report(case, folder / "reports", load(defect.module).module)
    refused = {
        bad.call.function: bad.call
        for bad in BAD_INPUTS
        if len(bad.steps) == 1 and bad.device in (None, device)
    }
    correct = [unsaid(case_of(load("impl"), device, bad)) for bad in refused.values()]
    correct.append(unsaid(case_of(load("impl"), device, CHANNELS_FIRST, call("is_conv_state_dim_first"))))
    with unshrunk():
        correct += cases_of_properties(device)
    places = [folder / "correct" / str(number) / "repro.py" for number in range(len(correct))]
    for case, place in zip(correct, places, strict=True):
        place.parent.mkdir(parents=True)
        place.write_text(repro_script(case, place.parent, ROOT), encoding="utf-8")
        case.save(place.parent / "case.json")
    # These import statecheck, which compiles kernels where the others interpret them.
    apart = {place for case, place in zip(correct, places, strict=True) if needs_statecheck(case)}
    found = [directory / "repro.py" for directory in reports.values()]
    intact = {"SUBJECT": "impl", "SUBJECT_PATH": str(ROOT)}
    jobs: list[tuple[Path, dict[str, str]]] = [(script, {}) for script in found]
    jobs += [(script, intact) for script in found]
    jobs += [(place, {}) for place in places if place not in apart]
    verdicts, modules = run_scripts(folder, jobs)
    others, _ = run_scripts(folder, [(place, {}) for place in places if place in apart])
    many = len(found)
    verdict_of = {True: iter(others), False: iter(verdicts[2 * many :])}
    return Scripts(
        broken=dict(zip(reports, verdicts[:many], strict=True)),
        intact=dict(zip(reports, verdicts[many : 2 * many], strict=True)),
        correct=[
            (case, next(verdict_of[place in apart])) for case, place in zip(correct, places, strict=True)
        ],
        modules=modules,
    )


named_defects = pytest.mark.parametrize("name", [defect.name for defect in DEFECTS])


@pytest.mark.slow
@named_defects
def test_the_script_exits_1_with_the_defect_and_0_without(scripts: Scripts, name: str) -> None:
    verdict = scripts.broken[name]
    assert verdict.code == 1, verdict
    assert verdict.output.endswith("the defect is there\n")
    assert scripts.intact[name] == ScriptVerdict(0, "the defect is gone\n")


@pytest.mark.slow
def test_the_script_of_every_call_that_is_answered_by_the_rules_exits_0(scripts: Scripts) -> None:
    # These cases have no failure, so that a replay by statecheck has nothing to call fixed.
    wrong = [
        (case, verdict)
        for case, verdict in scripts.correct
        if verdict.code != 0
        and not (needs_statecheck(case) and "and the case has no failure" in verdict.output)
    ]
    assert wrong == []


@pytest.mark.slow
def test_scripts_are_made_for_every_property(scripts: Scripts, trial: ExecutionContext) -> None:
    applicable = {name for name, one in load_properties().items() if not one.not_applicable(trial)}
    assert applicable <= {case.property_name for case, _ in scripts.correct}


@pytest.mark.slow
def test_the_script_needs_neither_hypothesis_nor_the_harness(scripts: Scripts) -> None:
    loaded = {name.split(".")[0] for name in scripts.modules}
    assert not loaded & {"hypothesis", "oracle", "properties", "pytest", "statecheck", "subjects"}


@pytest.mark.parametrize("sentence", ['ends with a quote"', '"""', "a \\ backslash", "two\nlines"])
def test_any_sentence_leaves_the_script_well_formed(sentence: str) -> None:
    ast.parse(repro_script(a_case(sentence=sentence), Path(), None))


LINES = {
    "device": (a_case(device="cuda"), 'DEVICE = checked_device(os.environ.get("DEVICE", "cuda"))'),
    "place": (a_case(), 'import_subject("toy", "../..")'),
    "long run": (
        a_case(steps=(call("cdiv", x=int32([1, 2] + [7] * 5000), y=2),)),
        "torch.tensor([1, 2] + [7] * 5000, dtype=torch.int32",
    ),
    "names that are taken": (
        a_case(steps=(Let("x", int32([1])), call("divide", x=5, y=Name("x"), rows=2, self=1))),
        "subject.divide(x_, y, rows_, self_)",
    ),
    "no contents": (
        a_case(steps=(call("divide", x=Tensor("int8", (3, 2, 2), None, strides=(2**20, 2, 1)), y=1),)),
        "x = torch.empty(2097156, dtype=torch.int8, device=DEVICE).as_strided(",
    ),
}


@pytest.mark.parametrize(("case", "line"), LINES.values(), ids=LINES)
def test_a_script_writes_values_so(case: Case, line: str, tmp_path: Path) -> None:
    assert line in repro_script(case, tmp_path / "reports" / "one", tmp_path)


def test_the_root_of_a_subject_is_the_folder_to_import_it_from(tmp_path: Path) -> None:
    with module(tmp_path, "toy_rooted", "") as name:
        roots = [subject_root(one) for one in (load("impl").module, load(name).module, pytest)]
    assert roots == [ROOT, tmp_path.resolve(), None]
