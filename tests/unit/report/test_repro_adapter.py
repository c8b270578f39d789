"""Scripts that carry the part of an adapter that their case needs, and run where there is nothing else of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.values import Function, Returned, call, record
from statecheck.report.markdown import report_text
from statecheck.report.repro.adapter import adapter_source
from statecheck.report.repro.script import repro_script
from subjects import Subject, load
from tests.helpers.cases import a_case
from tests.helpers.processes import run_python

ENGINE = """
def divide(x, y):
    return x // y + 1


def forgotten():
    raise RuntimeError("this is never called")
"""
ADAPTER = {
    "__init__": """
import sys
from subjects import Subject
from toy_adapter.arithmetic import divide, Pair
from toy_adapter.rest import unused
SUBJECT = Subject("toy_adapter", sys.modules[__name__], release="1.2", carried=__name__)
""",
    "finding": '''
"""Where things are."""
import os
import importlib

# Asked for when the engine is imported.
os.environ["TOY_QUIET"] = "1"


def find(name: str):  # noqa: ANN201
    """What the engine calls that."""
    return getattr(importlib.import_module("toy_engine"), name, None)


def version() -> str:
    return "1.2"
''',
    "arithmetic": '''
"""Numbers."""
import os
from toy_adapter.finding import find, version

__all__ = ["Pair", "absent", "divide", "launch"]

_released = find("divide")
_NEGATIVE = -1
"""What is never divided by."""
absent = find("absent")


def divide(x: int, y: int) -> int:
    """In the words of the documents."""
    assert os.environ["TOY_QUIET"] == "1"
    return _released(x, y)


class Pair:
    def __init__(self, one: int) -> None:
        self.one = one


def launch() -> int:
    return _NEGATIVE
''',
    "rest": '''
"""What scripts cannot have."""
from subjects import Outside

__all__ = ["unused"]


def unused() -> type:
    return Outside
''',
}


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Subject]:
    """A subject that is an adapter of an engine, both in folders of their own."""
    write(tmp_path / "adapter" / "toy_adapter", ADAPTER)
    write(tmp_path / "engine", {"toy_engine": ENGINE})
    monkeypatch.syspath_prepend(tmp_path / "adapter")
    monkeypatch.syspath_prepend(tmp_path / "engine")
    yield load("toy_adapter")
    for name in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[name]


def write(folder: Path, modules: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source.lstrip("\n"), encoding="utf-8")


def a_division(**changes: object) -> Case:
    """A case in which 6 / 2 is 4."""
    fields = {
        "subject": "toy_adapter",
        "steps": (call("divide", x=6, y=2),),
        "expected": (Returned(3),),
        "actual": (Returned(4),),
        "message": "result = 4, but should be 3",
    }
    return a_case(**fields | changes)


def run(folder: Path, case: Case, engine: str | None) -> subprocess.CompletedProcess[str]:
    """Run the script of a case beside an engine, or beside nothing, where there is no harness."""
    place = folder / "script"
    place.mkdir(exist_ok=True)
    (place / "repro.py").write_text(repro_script(case, place, None), encoding="utf-8")
    write(folder / "other", {} if engine is None else {"toy_engine": engine})
    hidden = ("PYTHONPATH", "SUBJECT", "SUBJECT_PATH", "DEVICE")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = variables | {"PYTHONPATH": str(folder / "other")}
    return run_python(place / "repro.py", env=environment, cwd=Path("/"))


@pytest.mark.usefixtures("adapter")
def test_a_script_with_its_adapter_shows_the_defect_of_the_engine_alone(tmp_path: Path) -> None:
    done = run(tmp_path, a_division(), ENGINE)
    assert (done.returncode, done.stdout) == (1, "result = 4, but should be 3\nthe defect is there\n"), (
        done.stderr
    )


@pytest.mark.usefixtures("adapter")
def test_a_script_with_its_adapter_says_when_the_defect_is_gone(tmp_path: Path) -> None:
    done = run(tmp_path, a_division(), ENGINE.replace(" + 1", ""))
    assert (done.returncode, done.stdout) == (0, "the defect is gone\n"), done.stderr


@pytest.mark.usefixtures("adapter")
def test_a_script_with_its_adapter_says_when_the_engine_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, a_division(), None)
    assert (done.returncode, "toy_engine" in done.stdout) == (2, True), done.stderr


@pytest.mark.usefixtures("adapter")
def test_what_a_release_lacks_is_missing_and_no_defect(tmp_path: Path) -> None:
    done = run(tmp_path, a_division(steps=(call("absent"),)), ENGINE)
    assert (done.returncode, done.stdout) == (2, "there is no absent\n"), done.stderr


@pytest.mark.parametrize("argument", [3, record("Pair", one=1), [{"key": (Function("launch"),)}]])
def test_a_script_carries_the_modules_that_its_case_comes_to_and_no_more(
    adapter: Subject, argument: object
) -> None:
    text = adapter_source(a_division(steps=(call("divide", x=argument, y=2),)), adapter)
    carried: dict[str, object] = {}
    exec(text, carried)  # noqa: S102 - the text of a function and of modules
    modules = carried["MODULES"]
    assert isinstance(modules, dict)
    assert list(modules) == ["toy_adapter.finding", "toy_adapter.arithmetic"]


def test_what_cannot_be_carried_is_refused_by_its_place(adapter: Subject) -> None:
    with pytest.raises(ValueError, match=r"import = 'subjects', but should be .* \[toy_adapter.rest\]"):
        adapter_source(a_division(steps=(call("unused"),)), adapter)


@pytest.mark.parametrize(
    "name", ["LiveEngine", "GDNAttentionMetadataBuilder", "MambaBuffers", "preprocess_mamba"]
)
def test_what_adapts_a_release_can_be_carried(adapter: Subject, name: str) -> None:
    adapter.carried = "subjects.vllm"
    assert f'"{name}": "subjects.vllm.' in adapter_source(a_division(steps=(call(name),)), adapter)


def test_a_case_with_an_adapter_that_cannot_be_carried_imports_it(adapter: Subject) -> None:
    text = repro_script(a_division(steps=(call("unused"),)), Path(), None)
    assert f'subject = import_subject("{adapter.name}", "")' in text


@pytest.mark.usefixtures("adapter")
def test_reports_and_scripts_name_the_release() -> None:
    assert report_text(a_division(), Path()).startswith("# toy_adapter 1.2: toys divide\n")
    assert "Seen with toy_adapter 1.2: result = 4" in repro_script(a_division(), Path(), None)


def test_the_script_of_a_subject_that_cannot_be_imported_here_imports_it() -> None:
    assert 'subject = import_subject("toy_elsewhere", "")' in repro_script(
        a_division(subject="toy_elsewhere"), Path(), None
    )
