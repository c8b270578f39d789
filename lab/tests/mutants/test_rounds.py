"""Rounds of mutants of a small module: what becomes of them, resumed rounds, shards, reasons and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.mutants.__main__ import code_of, main
from lab.mutants.mutant import Mutant, Source, difference
from lab.mutants.page import PAGE, TEXT, Judged, judged, write_page
from lab.mutants.plan import MutantPlan, judge, pending, possible, unjudged, valid
from lab.mutants.reasons import Reason, read_reasons, require_current
from lab.mutants.results import (
    EQUIVALENT,
    KILLED,
    SURVIVED,
    TIMEOUT,
    UNREACHED,
    MutantResult,
    Shard,
    merged,
)
from lab.mutants.run import Settings
from lab.mutants.targets import Target, targets
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE, MISCONFIGURED
from statecheck.rooms import FOLDER, variables

TOY = """LEAST = 0


def clamp(x):
    if x < LEAST:
        return LEAST
    if x == 7:
        return 8
    while x > 10:
        x -= 1
    return x


def unused(x):
    return x + 1


def doubled(x):
    return x * 2
"""
TESTS = """import pytest
from toy import clamp, doubled


def test_small():
    assert (clamp(-1), clamp(0), clamp(3)) == (0, 0, 3)


def test_large():
    assert clamp(12) == 10


def test_that_fails_on_the_source_judges_nothing():
    assert clamp(7) == 7


def test_that_shows_a_known_defect_still_judges():
    assert doubled(3) == 6
    pytest.xfail("known: one word is missing")
"""
MORE_TESTS = """from toy import clamp


def test_that_notices_nothing():
    clamp(0)
"""


@pytest.fixture(scope="module")
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutantPlan]:
    # Its processes would be forked from one that compiles kernels.
    request.getfixturevalue("executed")
    home = tmp_path_factory.mktemp("toy")
    (home / "toy.py").write_text(TOY)
    (home / "test_toy.py").write_text(TESTS)
    (home / "test_more.py").write_text(MORE_TESTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        judges = (str(home / "test_toy.py"), str(home / "test_more.py"))
        options = ("--noconftest", f"--rootdir={home}", "-o", "addopts=")
        target = Target("toy", home, ("toy.py",), judges, options, home=home)
        made = MutantPlan([target], Settings(examples=5, workers=2), home / "results")
        judge(made, lambda _: None)
        yield made


def of(plan: MutantPlan) -> dict[str, set[str]]:
    """The changed lines of the mutants by what became of them."""
    [target] = plan.targets
    results, source = valid(target, merged(plan.folder)), Source(target.content("toy.py"))
    found = dict[str, set[str]]()
    for one in possible(target):
        changed = difference(source, one).splitlines()[-1].removeprefix("+").strip()
        found.setdefault(results[one.id].status, set()).add(changed)
    return found


def test_a_mutant_is_killed_survives_or_is_never_reached(plan: MutantPlan) -> None:
    found = of(plan)
    assert found[SURVIVED] == {"if x <= LEAST:", "if x == 6:", "if x == 8:", "x -= 2"}
    assert {"LEAST = 1", "if x >= LEAST:", "if x != 7:", "while x >= 10:", "while x > 9:"} <= found[KILLED]
    assert found[UNREACHED] >= {"return 7", "return 9", "return x - 1", "return (x)", "return x + 2"}


def test_a_mutant_that_does_not_end_is_killed_by_its_time(plan: MutantPlan) -> None:
    assert "x += 1" in of(plan)[TIMEOUT]


def test_the_reach_of_each_item_is_recorded_once(plan: MutantPlan) -> None:
    recorded = json.loads((plan.folder / "reach-toy.json").read_text())["items"]
    names = sorted(one["item"] for one in recorded)
    assert names == [
        "test_more.py::test_that_notices_nothing",
        "test_toy.py::test_large",
        "test_toy.py::test_small",
        "test_toy.py::test_that_shows_a_known_defect_still_judges",
    ]


def test_the_item_that_noticed_a_mutant_is_named(plan: MutantPlan) -> None:
    noticed = {one.by for one in merged(plan.folder).values() if one.status == KILLED}
    assert noticed == {
        "test_toy.py::test_small",
        "test_toy.py::test_large",
        "test_toy.py::test_that_shows_a_known_defect_still_judges",
    }


def test_a_failure_beside_a_known_defect_kills_a_mutant(plan: MutantPlan) -> None:
    assert {"return x // 2", "return x * 3", "return x * 1"} & of(plan)[KILLED]


def test_a_round_goes_on_where_it_ended(plan: MutantPlan) -> None:
    [target] = plan.targets
    known = merged(plan.folder)
    assert (pending(plan, target, known), unjudged(plan, known)) == ([], 0)
    missing = next(iter(known))
    rest = {key: one for key, one in known.items() if key != missing}
    assert [one.id for one in pending(plan, target, rest)] == [missing[0]]
    assert unjudged(replace(plan, again=True), rest) == 1
    survivors = {key for (key, _), one in known.items() if one.survives}
    assert {one.id for one in pending(replace(plan, again=True), target, known)} == survivors
    more = replace(plan, settings=Settings(examples=50, workers=1))
    assert {one.id for one in pending(more, target, known)} == survivors
    earlier = {(key, "of an earlier file"): one for (key, _), one in known.items()}
    assert len(pending(plan, target, earlier)) == unjudged(plan, earlier) == len(known)


def test_shards_share_the_mutants_and_their_files_are_merged(plan: MutantPlan, tmp_path: Path) -> None:
    [target] = plan.targets
    parts = [replace(plan, part=part, parts=3, folder=tmp_path) for part in (1, 2, 3)]
    shares = [{one.id for one in pending(part, target, {})} for part in parts]
    assert sum(map(len, shares)) == len(set.union(*shares)) == len(possible(target))
    for part, share in zip(parts, shares, strict=True):
        shard = Shard(part.shard)
        for mutant in share:
            shard.add(mutant, MutantResult(SURVIVED, "source", examples=5))
        shard.save()
    assert merged(tmp_path).keys() == {(one, "source") for one in set.union(*shares)}
    late = Shard(replace(plan, folder=tmp_path, part=1, parts=1).shard)
    mutant = min(shares[1])
    late.add(mutant, MutantResult(KILLED, "source", by="test"))
    late.save()
    assert merged(tmp_path)[mutant, "source"].status == KILLED


def test_a_kill_of_an_earlier_source_does_not_hide_a_survivor_of_this_one(tmp_path: Path) -> None:
    for part, result in enumerate(
        [MutantResult(KILLED, "earlier", by="test"), MutantResult(SURVIVED, "now")]
    ):
        shard = Shard(tmp_path / f"shard-{part + 1}-of-2.json")
        shard.add("mutant", result)
        shard.save()
    assert merged(tmp_path)["mutant", "now"].status == SURVIVED


def test_the_command_is_clean_only_if_all_are_judged_and_none_survives(plan: MutantPlan) -> None:
    [target] = plan.targets
    mutants = possible(target)
    killed = {mutant.id: MutantResult(KILLED, "source", by="test") for mutant in mutants}
    some = dict([*killed.items()][:-1])
    assert code_of(Judged(mutants, killed), left=0) == CLEAN
    assert code_of(Judged(mutants, some), left=1) == INCOMPLETE
    assert code_of(Judged([], {}), left=0) == INCOMPLETE
    survivor = {mutants[0].id: MutantResult(SURVIVED, "source")}
    assert code_of(Judged(mutants, survivor), left=len(mutants) - 1) == FALSIFIED


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--workers=0", "workers = 0, but should be >= 1 [mutants]"),
        ("--workers=-1", "workers = -1, but should be >= 1 [mutants]"),
        ("--sample=0", "sample = 0, but should be >= 1 [mutants]"),
        ("--examples=0", "examples = 0, but should be >= 1 [mutants]"),
        ("--shard=3/2", "shard = '3/2', but should be a shard and the number of shards"),
    ],
)
def test_bad_options_are_refused(option: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == MISCONFIGURED
    assert message in capsys.readouterr().err


def test_the_page_shows_each_survivor_that_has_no_reason(plan: MutantPlan) -> None:
    found = judged(plan, merged(plan.folder), {})
    survivor = found.survivors[0]
    write_page(plan, found)
    text = (plan.folder / TEXT).read_text()
    assert survivor.id in text
    assert "+    if x == 6:" in text
    assert (plan.folder / PAGE).stat().st_size > len(text)
    explained = replace(found, reasons={survivor.id: "no caller sees it"})
    assert [one.id for one in explained.survivors] == [one.id for one in found.survivors[1:]]


def reason_about(found: Judged, mutant: Mutant | str) -> None:
    name = mutant if isinstance(mutant, str) else mutant.id
    require_current([Reason("toy.py", (name,), "no caller sees it")], found.ids, found.results)


def test_a_reason_may_not_outlive_its_mutant(plan: MutantPlan) -> None:
    found = judged(plan, merged(plan.folder), {})
    reason_about(found, found.survivors[0])
    with pytest.raises(ValueError, match="it has none of that id"):
        reason_about(found, "0123456789ab")
    equivalent = {found.survivors[0].id: MutantResult(EQUIVALENT, "source")}
    reason_about(replace(found, results=equivalent), found.survivors[0])
    killed = next(mutant for mutant in found.mutants if found.results[mutant.id].noticed)
    with pytest.raises(ValueError, match="but should be about one that survives: "):
        reason_about(found, killed)


@pytest.mark.parametrize(
    "text", ["equivalent = 3", "[[equivalent]]\nids = ['a']", "[[reason]]\nfile = 'a'", "["]
)
def test_a_file_of_reasons_has_one_form(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reasons.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"but should be .*\[\[equivalent\]\] with file, ids and why"):
        read_reasons(path)


def test_a_port_of_one_file_has_its_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_of_one_file.py").write_text("def halved(x):\n    return x // 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [target] = targets("toy_of_one_file", [])
    assert (target.paths, len(possible(target)) > 0) == (("toy_of_one_file.py",), True)


def test_the_oracle_is_judged_by_items_that_run_nothing_of_impl() -> None:
    [oracle, impl] = targets("impl", ["oracle/chunks.py", "impl/chunks.py"])
    assert (oracle.without, impl.without) == ("impl", "")
    assert impl.judges == (str(FOLDER / "properties"), str(FOLDER / "tests" / "unit" / "impl"))
    assert impl.options == ("--subject", "impl", "--device", "cpu")
    with pytest.raises(ValueError, match="but should be files or folders below"):
        targets("impl", ["impl/nothing.py"])


@pytest.mark.parametrize(
    ("folder", "by_line"), [("site-packages", ("a/b.py",)), ("home", ("a/b.py", "a/c.py"))]
)
def test_of_an_installed_package_only_the_mutated_files_are_recorded_by_line(
    tmp_path: Path, folder: str, by_line: tuple[str, ...]
) -> None:
    root = tmp_path / folder
    (root / "a").mkdir(parents=True)
    for name in ("b", "c"):
        (root / "a" / f"{name}.py").write_text("X = 1\n")
    target = Target("a", root, ("a/b.py",), (), ())
    assert target.by_line == by_line
    assert target.all_paths == ("a/b.py", "a/c.py")


def test_processes_that_a_test_starts_have_the_mutant_too(tmp_path: Path) -> None:
    code = "import json, os, subprocess, sys; from lab.mutants.substitute import *\n"
    code += "substitute_in_children('statecheck.execution.selection', b'NAME = 3', __import__('pathlib').Path(sys.argv[1]))\n"
    code += "subprocess.run([sys.executable, '-c', 'from statecheck.execution.selection import NAME; print(NAME)'], check=True)"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "3\n", ran.stderr
