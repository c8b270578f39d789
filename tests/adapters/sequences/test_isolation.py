"""A model of a port runs in processes of its own, with limits on time and memory: what it does there ends nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from statecheck.case.raised import DIED, HANG, Faulted
from statecheck.subject.subject import NotOffered
from statecheck.workers.forkserver import CoreWaits
from subjects.sequences.library import Isolated
from subjects.sequences.protocol import PortModule
from subjects.sequences.served import PortError
from tests.adapters.sequences import isolated_port

_LONG = list(range(1, 10))


@pytest.fixture(scope="module")
def library() -> Iterator[Isolated]:
    made = Isolated(PortModule.of(isolated_port))
    yield made
    made.close()


@pytest.mark.parametrize(("model", "kind"), [("aborts", DIED), ("hangs", HANG)])
def test_a_model_that_ends_or_keeps_its_process_is_a_fault_of_that_call(
    library: Isolated, model: str, kind: str
) -> None:
    context = library.new(model, 0, {})
    assert library.call(model, "extend", context, [(0, [1, 2])])
    with pytest.raises(Faulted) as raised:
        library.call(model, "extend", context, [(0, _LONG)])
    assert raised.value.fault.kind == kind
    context = library.new(model, 0, {})
    assert library.call(model, "extend", context, [(0, [1, 2])])


def test_seconds_in_which_a_model_had_no_core_do_not_count_as_hanging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated_port, "SECONDS", 0.5)
    began = time.monotonic()
    monkeypatch.setattr(CoreWaits, "look", lambda _, most: 0.9 * (time.monotonic() - began))
    slow = Isolated(PortModule.of(isolated_port))
    context = slow.new("slow", 0, {})
    assert slow.call("slow", "extend", context, [(0, _LONG)])
    slow.close()


def test_memory_beyond_the_limit_is_not_given(library: Isolated) -> None:
    context = library.new("takes memory", 0, {})
    with pytest.raises(PortError) as raised:
        library.call("takes memory", "extend", context, [(0, _LONG)])
    assert type(raised.value).__name__ == "MemoryError"


def test_models_and_their_second_processes_have_processes_of_their_own(library: Isolated) -> None:
    for model in ("small", "hangs"):
        for process in (0, 1):
            library.new(model, 0, {}, process)
    processes = {served.pid for served in library.processes}
    assert len(processes) == len(library.processes) >= 4
    assert os.getpid() not in processes


_NOTES_ITS_IMPORTS = """\
import os
from pathlib import Path
from tests.adapters.sequences import isolated_port
globals().update({name: one for name, one in vars(isolated_port).items() if not name.startswith("_")})
with Path(__file__).with_suffix(".txt").open("a") as file:
    print(os.getpid(), file=file)
"""


def test_a_library_is_imported_once_for_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "noting_port.py").write_text(_NOTES_ITS_IMPORTS)
    made = Isolated(PortModule.of(import_module("noting_port")))
    for model in ("small", "hangs"):
        for process in (0, 1):
            made.new(model, 0, {}, process)
    models = {str(served.pid) for served in made.processes}
    made.close()
    this, *others = (tmp_path / "noting_port.txt").read_text().split()
    assert (this, len(others)) == (str(os.getpid()), 1)
    assert not models & set(others)


def test_a_state_saved_in_a_process_is_loaded_in_another_process(library: Isolated) -> None:
    library.begin("small")
    first, second = library.new("small", 0, {}), library.new("small", 0, {}, process=1)
    library.call("small", "extend", first, [(0, [1, 2, 3])])
    library.call("small", "save", first, 0, "saved")
    library.call("small", "load", second, 3, "saved")
    rows = [
        library.call("small", "extend", context, [(number, [4])])
        for context, number in ((first, 0), (second, 3))
    ]
    assert rows[0] == rows[1]


def test_a_function_that_the_port_lacks_is_not_offered(library: Isolated) -> None:
    context = library.new("small", 0, {})
    with pytest.raises(NotOffered, match="generate is not in the port"):
        library.call("small", "generate", context, 0, 2)


def test_offered_functions_are_asked_for_in_the_process_of_the_model(library: Isolated) -> None:
    assert library.features("small", "new") == {"micro_batch": (8, 1, 3)}
    assert library.features("small", "extend") == {}
