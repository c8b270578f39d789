"""The properties of a subject as a test of a user's own suite, one item each."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import Executor, choose_device, ordinary_port
from statecheck.execution.registry import load_properties, put_at
from statecheck.execution.selection import Offers, require_declared_properties
from statecheck.kernels import triton_mode
from statecheck.subject import Subject, adapted, load
from statecheck.suite.summary import examples_wanted, run_missing
from statecheck.workers.port import InWorker
from statecheck.workers.supervised import import_limited

MOST = "--statecheck-max-examples"


def suite_of(
    subject: ModuleType | str,
    place: tuple[str, int],
    *,
    device: str,
    known: str | Path | None,
    require: Sequence[str],
    max_examples: int | None,
) -> Callable[..., None]:
    """See `statecheck.properties`.

    Args:
        place: file and line of the test module, which pytest shows as where the test stands.
    """
    if max_examples is not None and max_examples < 1:
        raise ValueError(f"max_examples = {max_examples}, but should be >= 1 [properties]")
    device = choose_device(device)
    triton_mode.prepare(device)
    with import_limited(str(subject)):
        chosen = load(subject) if isinstance(subject, str) else adapted(subject)
    if known is not None:
        # A module's own SUBJECT may be that of other tests, too.
        chosen = copy(chosen)
        if not isinstance(known, (str, Path)):
            raise ValueError(f"known = {known!r}, but should be the path of a file [properties]")
        chosen.known_deviations = chosen.declared_in(Path(place[0]).parent / known)
    require_declared_properties(chosen)
    Offers(chosen).require(tuple(require))
    context = ExecutionContext(chosen, _port(chosen, device))
    tested = load_properties()

    @pytest.mark.parametrize("property_id", sorted(tested))
    def test(property_id: str, request: pytest.FixtureRequest) -> None:
        one, most = tested[property_id], request.config.getoption(MOST, None) or max_examples
        one.search(context, most or examples_wanted(context, one, settings().max_examples))
        if most is None:
            run_missing(context, one)

    test.context, test.properties = context, tested  # type: ignore[attr-defined]
    put_at(test, *place)
    return test


def _port(subject: Subject, device: str) -> Executor:
    if device == "cpu":
        return ordinary_port(subject, device)
    port = InWorker(subject.name, device)
    atexit.register(port.close)
    return port
