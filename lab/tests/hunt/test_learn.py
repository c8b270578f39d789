"""In which order properties are tried first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lab.hunt import learn
from lab.hunt.costs import FIRST, KINDS, PAIR, Costs, Visit, visits
from lab.hunt.learn import Attempt, attempts, order
from statecheck.campaign import scheduler
from statecheck.execution.registry import load_properties
from statecheck.subject import load
from tests.helpers.planted import broken_subject, planted


def test_the_learned_order_has_examples_of_properties_that_exist() -> None:
    assert {name for name, _ in scheduler.visits()} <= set(load_properties())


def costs(
    seconds: Mapping[str, float],
    variants: Mapping[str, Sequence[str]] | None = None,
    compiling: float = 0.0,
    *,
    further: float = 1.0,
) -> Costs:
    """Costs of properties by name. The variants of a property take `compiling` seconds each where no process has compiled them.

    Args:
        further: what a further example in the same visit takes, as a share of a visit.
    """
    variants, known, found = variants or {}, set[str](), list[Visit]()
    for name, cost in seconds.items():
        launched = tuple(variants.get(name, ()))
        new = [one for one in launched if one not in known]
        known.update(new)
        for kind in KINDS:
            taken = cost * (1 + further * (kind == PAIR))
            waits = compiling * len(new) * (kind == FIRST)
            found += [Visit(name, 1, kind, False, taken + waits, launched)]
            found += [Visit(name, 1, kind, True, taken, launched)]
    return Costs(found)


def test_what_finds_most_per_second_comes_first_and_what_it_found_counts_no_more() -> None:
    tried = [
        *(Attempt(defect, "a", 5, 5) for defect in "123"),
        *(Attempt(defect, "b", 5, 5) for defect in "12"),
        Attempt("4", "c", 5, 5),
    ]
    assert order(tried, costs({"a": 1.0, "b": 1.0, "c": 1.0, "d": 3.0})) == ["a", "c", "b", "d"]


def test_a_property_that_finds_many_defects_by_chance_is_tried_again() -> None:
    tried = [*(Attempt(str(number), "often", 2, 5) for number in range(20)), Attempt("20", "seldom", 1, 5)]
    names = ("often", "seldom", "never")
    chances = Counter(order(tried, costs(dict.fromkeys(names, 0.1))))
    assert [chances[name] for name in names] == [6, 1, 1]


def test_a_further_example_comes_at_once_where_that_is_cheaper_than_a_visit_later() -> None:
    tried = [
        *(Attempt(str(number), "often", 9, 10) for number in range(20)),
        *(Attempt(f"other {number}", "others", 9, 10) for number in range(4)),
    ]
    seconds = dict.fromkeys(("often", "others", "never"), 0.1)
    assert order(tried, costs(seconds))[:3] == ["often", "others", "often"]
    assert order(tried, costs(seconds, further=0.2))[:3] == ["often", "often", "others"]


def test_a_further_visit_costs_what_further_visits_have_cost() -> None:
    tried = [Attempt(str(number), "often", 9, 10) for number in range(20)]
    measured = [
        Visit(name, 1, kind, True, 9.0 if name == "often" and kind != FIRST else 0.1)
        for name in ("often", "never")
        for kind in KINDS
    ]
    found = Costs([replace(one, seconds=2 * one.seconds) if one.kind == PAIR else one for one in measured])
    assert order(tried, found) == ["often", "never"]
    assert found.of("often", is_first=True) < 0.2
    assert found.of("often", is_first=False) > 9.0
    assert found.further("often") == 9.0


def test_the_first_property_that_launches_a_variant_has_to_wait_for_the_compiler() -> None:
    tried = [*(Attempt(defect, "launches", 5, 5) for defect in "123"), Attempt("4", "computes", 5, 5)]
    seconds = dict.fromkeys(("computes", "launches", "launches too"), 0.1)
    launched = {"launches": ["kernel#1"], "launches too": ["kernel#1"]}
    assert order(tried, costs(seconds, launched, 2.0)) == ["computes", "launches", "launches too"]
    assert order(tried, costs(seconds, launched)) == ["launches", "computes", "launches too"]


def test_only_the_variants_that_were_not_compiled_before_are_waited_for() -> None:
    found = costs(dict.fromkeys("abc", 0.1), {"a": ["k#1"], "b": ["k#1", "k#2"]}, 2.0)
    missing: dict[str, float] = {}
    assert [found.compiling(name, missing) for name in "abc"] == pytest.approx([2.0, 4.0, 0.0])
    found.compile("a", missing)
    assert [found.compiling(name, missing) for name in "abc"] == pytest.approx([0.0, 2.0, 0.0])
    missing["k#1"] = 0.25
    assert found.compiling("a", missing) == pytest.approx(0.5)


def test_visits_are_measured_with_the_variants_that_they_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = {
        name: one
        for name, one in load_properties().items()
        if one.id in ("cdiv/tensor", "copy-meta/kernel-launch", "real-engine/v1")
    }
    monkeypatch.setattr("lab.hunt.costs.load_properties", lambda: chosen)
    first, *others = visits(load("impl"), 1, cached=False)
    assert [one.kind for one in (first, *others)] == [kind for kind in KINDS for _ in range(2)]
    assert all(one.seconds > 0 for one in (first, *others))
    launched = {other.property_id: {name.partition("#")[0] for name in other.variants} for other in others}
    assert launched == {"cdiv/tensor": set(), "copy-meta/kernel-launch": {"batch_memcpy_kernel"}}


def test_the_first_examples_of_properties_are_tried_on_a_broken_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {
        name: one for name, one in load_properties().items() if one.id in ("cdiv/either-sign", "cdiv/tensor")
    }
    monkeypatch.setattr(learn, "load_properties", lambda: chosen)
    defect = next(one for one in planted("stateless") if "cdiv/tensor" in one.found_by)
    with broken_subject(defect.variant, tmp_path) as subject:
        tried = {attempt.property_id: attempt for attempt in attempts(subject, defect.name, 3)}
    assert tried["cdiv/tensor"].found
    assert set(tried) == {"cdiv/either-sign", "cdiv/tensor"}
    assert all(one.seeds == 3 for one in tried.values())


def test_the_order_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [asdict(Attempt("1", "a", 1, 5)), asdict(Attempt("1", "b", 5, 5))]
    measured = [asdict(Visit(name, 1, kind, True, 0.1)) for name in "ab" for kind in KINDS]
    written = json.dumps({"attempts": attempts, "visits": measured})
    (tmp_path / "learn.json").write_text(written, encoding="utf-8")
    monkeypatch.setattr(scheduler, "ORDER", tmp_path / "order.json")
    scheduler.visits.cache_clear()
    try:
        assert learn.main(["--write", "--out", str(tmp_path / "learn.json")]) == 0
        assert scheduler.visits() == (("b", 1), ("a", 1))
    finally:
        scheduler.visits.cache_clear()
