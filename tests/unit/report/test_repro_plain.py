"""`repro.py` of a port's plain call: a screen of lines, 1 with the defect, 0 without, 2 where it cannot be tried."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples import numpy_port
from statecheck.case import Case
from statecheck.case.values import Returned
from statecheck.diagnose.own_calls import with_own_calls
from statecheck.execution.registry import load_properties
from statecheck.report.markdown import report_text
from statecheck.report.repro.plain import is_plain, plain_script, plain_test
from statecheck.report.repro.script import repro_script, repro_test
from subjects import Subject, adapted
from tests.helpers.hunts import hunt
from tests.helpers.modules import ROOT

PROPERTIES = {
    "varlen_chunks": "varlen-chunks/ends",
    "chunk_indices": "fla-chunks/indices",
    "chunk_offsets": "fla-chunks/offsets",
    "split_batch": "split/partition",
    "state_shapes": "state-shape/formula",
    "page_size": "page-size/all-states",
}
"""By function of the protocol that takes and returns numbers and lists: a property that calls it."""
MOST_LINES = 60


def _changed(value: Any) -> Any:
    """The value with another first number."""
    if isinstance(value, (list, tuple)) and value:
        return type(value)([_changed(value[0]), *value[1:]])
    return value + 1 if isinstance(value, int) else value


def _wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any, **arguments: Any) -> Any:
        return _changed(function(*args, **arguments))

    wrong.__wrapped__ = function  # type: ignore[attr-defined]
    return wrong


def _wrong_port(name: str) -> ModuleType:
    port = ModuleType("toy_wrong_port")
    port.__file__ = numpy_port.__file__
    port.STATECHECK_PROTOCOL = 2  # type: ignore[attr-defined]
    setattr(port, name, _wrong(getattr(numpy_port, name)))
    return port


def _failing(id_: str, subject: Subject) -> Case:
    tested = next(one for one in load_properties().values() if one.id == id_)
    caught = hunt(tested, subject, shrink=True)
    assert caught is not None
    return with_own_calls(caught.case, subject)


def _ends(script: Path, monkeypatch: pytest.MonkeyPatch, subject: str) -> int:
    monkeypatch.setenv("SUBJECT", subject)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script))
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_short_script_ends_as_the_port_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = _wrong_port(name)
    subject = adapted(port)
    case = _failing(PROPERTIES[name], subject)
    text = plain_script(case, subject, str(ROOT))
    assert text
    script = tmp_path / "repro.py"
    script.write_text(text, encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert "statecheck" not in text
    monkeypatch.setitem(sys.modules, port.__name__, port)
    endings = [_ends(script, monkeypatch, one) for one in (port.__name__, "examples.numpy_port", "no_port")]
    assert endings == [1, 0, 2]
    test = plain_test(case, subject)
    assert len(test.splitlines()) <= MOST_LINES
    assert f"toy_wrong_port.{name}(" in test


@pytest.mark.parametrize(
    ("name", "id_"), [("conv_copy", "conv-copy/start"), ("temporal_copy", "temporal-copy/start")]
)
def test_a_result_of_another_form_than_the_port_s_has_the_long_script(name: str, id_: str) -> None:
    subject = adapted(_wrong_port(name))
    case = _failing(id_, subject)
    assert not is_plain(case, subject)
    assert "import_subject" in repro_script(case, Path(), None)


def test_what_one_call_does_not_show_has_the_long_script(monkeypatch: pytest.MonkeyPatch) -> None:
    port = _wrong_port("chunk_offsets")
    monkeypatch.setitem(sys.modules, port.__name__, port)
    subject = adapted(port)
    case = replace(_failing(PROPERTIES["chunk_offsets"], subject), subject=port.__name__)
    assert case.failure is not None
    (actual,) = case.actual
    assert isinstance(actual, Returned)
    others = (
        replace(case, depends_on="chance"),
        replace(case, actual=case.expected),  # type: ignore[arg-type]
        replace(case, failure=replace(case.failure, kind="memory")),
        replace(case, own_calls=("chunk_offsets(cu_seqlens=<int32[2]>, chunk_size=1)",)),
    )
    assert [is_plain(one, subject) for one in (case, *others)] == [True, False, False, False, False]
    assert "torch" not in repro_script(case, Path(), None)
    assert "it needs the port alone." in report_text(case, Path())
    assert "import_subject" in repro_script(others[0], Path(), None)
    assert "import_subject" in repro_test(others[0], Path(), None)
