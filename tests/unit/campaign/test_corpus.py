"""Cases that are added to a corpus are in it, also if other processes write, if a disk is full, and if the properties have changed since."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign import corpus
from statecheck.campaign.corpus import Corpus, CorpusFile, file_name, path_of, replayed
from statecheck.case import SCHEMA, Case
from statecheck.case.bucket import bucket_of
from statecheck.case.failure import stated
from statecheck.case.values import Refusal, Returned, call
from statecheck.execution import registry
from statecheck.execution.executors import ordinary_port
from subjects import Subject
from tests.helpers.cases import a_case, toy
from tests.helpers.modules import ROOT
from tests.helpers.processes import COMMANDS, Started, run_pytest

SEEN = {"date": "2026-11-21", "commit": "0123456789ab"}
LATER = {"date": "2026-11-28", "commit": "ba9876543210"}
KEPT = ROOT / "corpus"


def sized(number: int) -> Case:
    """Cases of one bucket, of which a larger number makes a larger one."""
    return a_case(steps=(call("divide", x=10**number, y=2),))


def of_bucket(number: int) -> Case:
    return a_case(property_id=f"toys/divide-{number}")


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def added(folder: Path, case: Case, first_seen: dict[str, str] = SEEN) -> Path:
    path = Corpus(folder).add(case, first_seen=first_seen)
    assert path is not None
    return path


# Adding


def test_a_file_has_the_name_of_its_property_and_the_id_of_its_bucket(tmp_path: Path) -> None:
    path = added(tmp_path, a_case())
    assert path == tmp_path / f"toys-divide-{bucket_of(a_case()).id}.json"


@pytest.mark.parametrize("order", [(1, 5), (5, 1)])
def test_of_two_cases_of_a_bucket_the_smaller_one_is_kept(tmp_path: Path, order: tuple[int, int]) -> None:
    paths = {added(tmp_path, sized(number)) for number in order}
    assert [Case.load(path).steps for path in paths] == [sized(1).steps]


def test_a_smaller_case_keeps_the_day_on_which_its_bucket_was_first_seen(tmp_path: Path) -> None:
    Corpus(tmp_path).add(sized(5), first_seen=SEEN)
    assert Case.load(added(tmp_path, sized(1), LATER)).first_seen == SEEN


def test_a_property_s_name_is_no_way_out_of_the_folder(tmp_path: Path) -> None:
    path = added(tmp_path / "corpus", a_case(property_id="../" * 90 + "x"))
    assert path.parent == tmp_path / "corpus"


def test_a_case_no_smaller_than_the_one_that_is_kept_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Corpus(tmp_path)
    path = kept.add(sized(1), first_seen=SEEN)
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("written to disk"))
    assert {store.add(sized(3), first_seen=SEEN) for store in (kept, Corpus(tmp_path))} == {path}


def test_a_case_is_on_disk_and_so_is_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    Corpus(tmp_path).add(a_case(), first_seen=SEEN)
    assert [Path(name).suffix for name in synced] == [".tmp", ""]
    assert synced[1] == str(tmp_path.resolve())


def test_a_file_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    kept = Corpus(tmp_path)
    for _ in range(2):
        path = kept.add(a_case(), first_seen=SEEN)
        assert path is not None
        path.unlink()


# Several at once

_ADDS = """
import sys
from pathlib import Path
from statecheck.campaign.corpus import Corpus
from statecheck.case.values import call
from tests.helpers.cases import a_case

number, folder = int(sys.argv[1]), Path(sys.argv[2])
kept = Corpus(folder)
print("ready", flush=True)
sys.stdin.readline()
for step in range(100):
    kept.add(a_case(property_id=f"toys/divide-{step}"), first_seen={})
    kept.add(a_case(steps=(call("divide", x=10 ** (200 - 2 * step - number), y=2),)), first_seen={})
print(kept.warnings)
"""


def test_two_processes_that_add_cases_to_the_same_buckets_lose_none(tmp_path: Path) -> None:
    """Of a bucket that both write at the same moment either case may be the one that is kept."""
    folder = tmp_path / "corpus"
    assert at_once(folder, _ADDS) == ["[]", "[]"]
    names = {file_name(of_bucket(number)) for number in range(100)} | {file_name(a_case())}
    assert {entry.path.name for entry in Corpus(folder).entries() if entry.case} == names
    assert set(contents(folder)) == names


def at_once(folder: Path, script: str) -> list[str]:
    """The output of two processes that begin at the same time."""
    both = [started(script, str(number), str(folder)) for number in (0, 1)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[0].strip() for process in both]


def started(script: str, *arguments: str) -> Started:
    return Started("-c", script, *arguments, env=os.environ | {"PYTHONPATH": str(ROOT)}, like=COMMANDS)


# Where nothing can be written


def printed_cases(text: str) -> list[Case]:
    """The cases on the standard error, each of which begins in a line of its own."""
    return [Case.from_json(f"{{\n{each}") for each in re.split(r"^\{$\n", text, flags=re.MULTILINE)[1:]]


def test_a_case_that_has_no_folder_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    (tmp_path / "file").write_text("")
    kept = Corpus(tmp_path / "file" / "corpus")
    cases = [sized(5), of_bucket(1), sized(7), sized(3)]
    assert [kept.add(case, first_seen=SEEN) for case in cases] == [None] * 4
    printed = printed_cases(capsys.readouterr().err)
    assert [case.steps for case in printed] == [cases[number].steps for number in (0, 1, 3)]
    assert printed[0].first_seen == SEEN
    why = "(Not a directory), which went to the standard error"
    assert kept.warnings == [f"{kept.folder} took no case {why}"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS], ids=errno.errorcode.get)
def test_cases_that_are_kept_stay_whole_when_the_folder_takes_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    added(tmp_path, of_bucket(1))

    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(corpus, "write_whole", refuses)
    kept = Corpus(tmp_path)
    assert kept.add(a_case(), first_seen=SEEN) is None
    assert os.strerror(number) in kept.warnings[0]
    assert len(printed_cases(capsys.readouterr().err)) == 1
    assert [entry.problem for entry in Corpus(tmp_path).entries()] == [""]


_ADD_LARGE = """
import resource, sys
from pathlib import Path
from statecheck.campaign.corpus import Corpus
from statecheck.case.values import call
from tests.helpers.cases import a_case

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
steps = tuple(call("divide", x=number, y=2) for number in range(200))
case = a_case(steps=steps, expected=a_case().expected * 200, actual=a_case().actual * 200)
Corpus(Path(sys.argv[1])).add(case, first_seen={})
"""


def test_a_case_larger_than_any_file_may_be_is_printed_and_leaves_no_file(tmp_path: Path) -> None:
    _, errors = started(_ADD_LARGE, str(tmp_path / "corpus")).communicate()
    (case,) = printed_cases(errors)
    assert len(case.steps) == 200
    assert contents(tmp_path / "corpus") == []


# Files that are none


@pytest.mark.parametrize(
    "text",
    ["", a_case().to_json()[:300], json.dumps({"schema": SCHEMA + 1}), json.dumps({"schema": SCHEMA - 1})],
)
def test_a_file_that_cannot_be_read_is_not_overwritten_by_its_bucket(tmp_path: Path, text: str) -> None:
    bad = tmp_path / file_name(a_case())
    bad.write_text(text)
    before = bad.read_bytes()
    paths = {added(tmp_path, sized(number)) for number in (3, 1, 2)}
    assert paths == {bad.with_name(f"{bad.stem}-2.json")}
    assert bad.read_bytes() == before


def test_a_folder_that_cannot_be_listed_is_an_entry_with_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [entry.problem for entry in Corpus(tmp_path / "file").entries()] == [
        "cannot be listed: Not a directory"
    ]


# Finding


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two files whose ids begin alike."""
    case_file = a_case().save(tmp_path / "toys-divide-0123456789.json")
    return case_file, a_case().save(tmp_path / "toys-divide-0123abcdef.json")


@pytest.mark.parametrize(
    "wanted", ["0123456789", "01234", "toys-divide-0123456789", "toys-divide-0123456789.json"]
)
def test_a_case_is_found_by_its_id_or_the_beginning_of_it_or_its_file(
    two: tuple[Path, Path], wanted: str
) -> None:
    assert Corpus(two[0].parent).find(wanted) == two[0]


def test_a_case_is_found_by_its_property() -> None:
    wanted = "varlen-chunks/partition"
    path = Corpus(KEPT).find(wanted)
    assert path.name == "varlen-chunks-partition-084026aa22.json"
    assert path_of(wanted, KEPT) == path


def test_a_property_with_several_cases_is_refused_as_the_name_of_a_case(two: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match=rf"^id = 'toys/divide', .* one of {two[0].name}, {two[1].name} "):
        Corpus(two[0].parent).find("toys/divide")


@pytest.mark.parametrize("wanted", ["0123", "", "f"])
def test_an_ambiguous_name_of_a_case_is_answered_with_the_possible_cases(
    two: tuple[Path, Path], wanted: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"^id = '{wanted}', but should be one of {two[0].name}, {two[1].name}"
    ):
        Corpus(two[0].parent).find(wanted)


# Replaying

FAILS = a_case(
    property_id="toys/gone",
    steps=(call("cdiv", x=5, y=2),),
    expected=(Returned(3),),
    actual=(Returned(3),),
    failure=stated("result = 3", "should be 4", function="cdiv", call=0, shown="cdiv(x=5, y=2)"),
)
"""A condition that `impl` breaks: its outcome is the one that broke it."""
FIXED = replace(FAILS, actual=(Returned(4),))


def refuses(x: int, y: int) -> int:
    raise TypeError(f"{x}, {y}")


@pytest.mark.parametrize(
    ("now", "subject"), [(lambda x, y: x - 1, "toy"), (refuses, "another")], ids=["as it did", "otherwise"]
)
def test_a_case_that_fails_has_the_failure_of_now(
    tmp_path: Path, device: str, now: Callable[..., int], subject: str
) -> None:
    # A worker, which replays where there is a GPU, knows subjects by their names only.
    wrong = toy(cdiv=lambda x, y: x - y + 1)
    _, found = replayed(CorpusFile(tmp_path, FIXED), wrong, device, ordinary_port(wrong, device))
    assert found is not None
    another = Subject("another", toy(cdiv=now).module)
    failed = CorpusFile(tmp_path, replace(found, subject="toy"))
    message, failing = replayed(failed, another, device, ordinary_port(another, device))
    assert failing is not None
    assert failing.message.startswith(message.message)
    assert failing.subject == subject


def test_a_saved_case_replays_after_a_rename_of_a_strategy_and_of_a_test(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PROPERTIES", {})
    monkeypatch.setattr(registry, "load_properties", lambda: pytest.fail("the case is all that is needed"))
    for entry in Corpus(KEPT).entries():
        content = json.loads(entry.path.read_text())
        content |= {"property_id": "renamed/since", "sentence": "No test says this any more."}
        (tmp_path / entry.path.name).write_text(json.dumps(content))
    records = [replayed(entry, "impl", device)[0] for entry in Corpus(tmp_path).entries()]
    assert [record for record in records if record.verdict != "FIXED"] == []
    assert len(records) == len(Corpus(KEPT).entries()) >= 10


def test_the_cases_of_the_repository_are_small_and_each_is_its_bucket_s() -> None:
    entries = Corpus(KEPT).entries()
    wrong = [
        entry.path.name for entry in entries if entry.case is None or file_name(entry.case) != entry.path.name
    ]
    assert wrong == []
    assert [entry.path.name for entry in entries if entry.path.stat().st_size > 20_000] == []
    assert [entry.path.name for entry in entries if not entry.case or not entry.case.first_seen] == []


# The command, and `make test`


def test_a_session_replays_its_corpus_first_and_fails_by_failing_or_unreadable_cases(
    tmp_path: Path,
) -> None:
    path = Corpus(tmp_path).add(FAILS, first_seen=SEEN)
    lacking = replace(FAILS, property_id="toys/lacks", steps=(call("harness.capture"),))
    Corpus(tmp_path).add(lacking, first_seen=SEEN)
    (tmp_path / "bad.json").write_text("{")
    files = ["properties/test_types.py", "properties/test_corpus.py", "--corpus", str(tmp_path)]
    done = run_pytest("-p", "no:xdist", *files, "--device", "cpu", "-rs", "-v", "-k", "corpus or divide")
    assert "2 failed" in done.stdout
    assert f"FAILED: {path}: result = 3, but should be 4" in done.stdout
    assert "UNREADABLE: " in done.stdout
    assert "no graphs without CUDA" in done.stdout
    assert done.stdout.index("test_corpus.py") < done.stdout.index("test_types.py")


# Schemas


LONG = (*range(40), *(-1,) * 3000)


@pytest.mark.parametrize(
    "values",
    [
        LONG,
        LONG[:100],
        (0,) * 64,
        (0,) * 63,
        (True,) * 99,
        (1.0,) * 99,
        (*LONG, True),
        (True, *(1,) * 64),
        ((1,),) * 64,
    ],
    ids=lambda values: f"{len(values)} ending in {values[-1]!r}",
)
def test_long_tuples_come_back_as_they_were(values: tuple[object, ...]) -> None:
    case = a_case(expected=(Refusal("x", after=(("x", values),)),))
    found = Case.from_json(case.to_json())
    assert found == case
    assert list(map(type, found.expected[0].after[0][1])) == list(map(type, values))


def test_the_filling_of_a_table_takes_no_room() -> None:
    assert len(replace(a_case(actual=(Returned(LONG),)), failure=None).to_json()) < 1200


def test_a_file_that_could_not_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no room"):
        a_case().save(tmp_path / "case.json")
    assert contents(tmp_path) == []


def refuse(_: int) -> None:
    raise OSError("no room")
