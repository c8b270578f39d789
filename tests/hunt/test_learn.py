"""In which order properties are tried first."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from statecheck.campaign.schedule import learned
from statecheck.execution.registry import load_properties
from tests.breakages.table import BREAKAGES
from tests.breakages.variants import broken_subject
from tests.hunt import learn
from tests.hunt.learn import Attempt, attempts, order


def test_the_learned_order_has_properties_that_exist_each_a_few_times() -> None:
    visits = Counter(learned.visits())
    assert set(visits) <= {one.id for one in load_properties().values()}
    assert set(visits.values()) == {1, 2, 3}


def test_what_finds_most_per_second_comes_first_and_what_it_found_counts_no_more() -> None:
    tried = [
        *(Attempt(defect, "a", 5, 5, 0.1) for defect in "123"),
        *(Attempt(defect, "b", 5, 5, 0.1) for defect in "12"),
        Attempt("4", "c", 5, 5, 0.1),
        *(Attempt("5", name, 0, 5, cost) for name, cost in (("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 3.0))),
    ]
    assert order(tried) == ["a", "c", "b", "d"]


def test_a_property_that_finds_many_defects_by_chance_is_tried_again() -> None:
    tried = [
        *(Attempt(str(number), "often", 2, 5, 0.1) for number in range(20)),
        Attempt("20", "seldom", 1, 5, 0.1),
        *(Attempt("21", name, 0, 5, 0.1) for name in ("often", "seldom", "never")),
    ]
    assert order(tried) == ["often", "often", "often", "seldom", "never"]


def test_the_first_property_that_launches_a_kernel_has_to_wait_for_the_compiler() -> None:
    tried = [
        *(Attempt(defect, "launches", 5, 5, 0.1, 2.1, ("kernel",)) for defect in "123"),
        *(Attempt("5", name, 0, 5, 0.1, 2.1, ("kernel",)) for name in ("launches", "launches too")),
        Attempt("4", "computes", 5, 5, 0.1, 0.1),
        Attempt("5", "computes", 0, 5, 0.1, 0.1),
    ]
    assert order(tried) == ["computes", "launches", "launches too"]
    assert order([replace(one, first=one.cost) for one in tried]) == ["launches", "computes", "launches too"]


def test_the_first_examples_of_properties_are_tried_on_a_broken_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {
        name: one for name, one in load_properties().items() if one.id in ("cdiv/either-sign", "cdiv/tensor")
    }
    monkeypatch.setattr(learn, "load_properties", lambda: chosen)
    defect = next(one for one in BREAKAGES if "cdiv/tensor" in one.caught_by)
    with broken_subject(defect.variant, tmp_path) as subject:
        tried = {one.property_id: one for one in attempts(subject, defect.name, 3)}
    assert tried["cdiv/tensor"].found
    assert set(tried) == {"cdiv/either-sign", "cdiv/tensor"}
    assert all(one.seeds == 3 and one.cost > 0 for one in tried.values())


def test_the_order_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = [Attempt("1", "a", 1, 5, 0.1), Attempt("1", "b", 5, 5, 0.1)]
    (tmp_path / "learn.json").write_text(json.dumps([asdict(one) for one in tried]), encoding="utf-8")
    monkeypatch.setattr(learned, "FILE", tmp_path / "order.json")
    learned.visits.cache_clear()
    try:
        assert learn.main(["--write", "--out", str(tmp_path / "learn.json")]) == 0
        assert learned.visits() == ("b", "a")
    finally:
        learned.visits.cache_clear()
