"""Which items may notice a mutant: those that execute its line, use what the import has made, or launch its kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.mutants.equivalent import Specialisation
from lab.mutants.mutant import IMPORT, Edit, Mutant
from lab.mutants.reach import Item, Reach, _judges
from lab.mutants.targets import Target

ROOT = Path("/package")
NAMES = Item("tests/toy/test_names.py::test_names", 0.1, {}, frozenset())
LAUNCH = Item("tests/toy/test_launch.py::test_launch", 0.2, {}, frozenset({"digest"}))
VARIANT = Specialisation("toy", "kernel", b"", "digest", frozenset({("/package/toy.py", 7)}))
AT_IMPORT = Mutant("a", "toy.py", 3, Edit("constant", 0, 1, "2", "", IMPORT, kernel=False))


def reaching(mutant: Mutant) -> list[Item]:
    found = Reach([NAMES, LAUNCH], {"toy.py": frozenset({3})}, {"digest": VARIANT}, ROOT, 5)
    return found.reaching(mutant)


def test_a_test_that_only_reads_names_may_notice_what_the_import_makes() -> None:
    assert reaching(AT_IMPORT) == [NAMES, LAUNCH]
    inside = replace(AT_IMPORT, edit=replace(AT_IMPORT.edit, function="f", lines=(5, 5)))
    assert reaching(inside) == []


def test_a_test_judges_without_a_line_only_if_it_is_one_of_the_package() -> None:
    target = Target("toy", ROOT, ("toy.py",), (), ())
    seen = {"passed": True, "other": False, "lines": {}, "launched": []}
    assert _judges({**seen, "item": NAMES.id}, target)
    assert not _judges({**seen, "item": "properties/test_names.py::test_names"}, target)
    assert not _judges({**seen, "item": NAMES.id, "passed": False}, target)


def test_a_function_without_a_line_in_the_ir_is_reached_by_the_variants_of_its_file() -> None:
    for lines in ((6, 8), (20, 22)):
        edit = replace(AT_IMPORT.edit, function="kernel", lines=lines, kernel=True)
        assert reaching(replace(AT_IMPORT, edit=edit)) == [LAUNCH]
        assert reaching(replace(AT_IMPORT, path="other.py", edit=edit)) == []
