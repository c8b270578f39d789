"""The files of a falsified property: the case and the report."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from statecheck.case import Case
from statecheck.case.timeline import Cell, Moment, TableRow, Timeline, WrongCell
from statecheck.case.values import Name, Returned, call, int32
from statecheck.report.bisection import Bisection, TriedRelease
from statecheck.report.render import add_bisection, report_text, write_report
from statecheck.report.sections import input_sections
from statecheck.util.files import mark_reports
from subjects import load
from tests.helpers.cases import a_case, case_of, subject_of
from tests.helpers.modules import module
from tests.unit.report.defects import DEFECTS, DefectiveModule, falsified, source

FILES = ["case.json", "report.html", "report.md", "repro.py", "test_repro.py"]
TIMELINE = Timeline(
    (Moment("step 1", (TableRow("r0", 0, 1, (Cell(0, ""), Cell(3, "8 tokens", 8, "r0")), (0,), (1,)),)),),
    WrongCell(0, "r0", 0, 1, "8 tokens, but should be 7"),
)


def written(folder: Path, device: str = "cpu", **changes: object) -> tuple[Case, Path]:
    """The report of a defect that shows in the second row of a result."""
    with module(folder, "toy_reported", source(DEFECTS[5])):
        case = falsified("toy_reported", device, *DEFECTS[5].steps)
        case = replace(case, **changes)  # type: ignore[arg-type]
        return case, write_report(case, folder / "reports", load("toy_reported"), note="A note.")


def test_a_report_has_its_files_in_a_folder_of_date_property_and_hash(tmp_path: Path) -> None:
    case, directory = written(tmp_path)
    assert sorted(path.name for path in directory.iterdir()) == FILES
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d-toys-divide-{case.digest}", directory.name)
    assert Case.load(directory / "case.json") == case


def test_a_page_keeps_its_tables_when_it_is_told_since_when_the_case_is_wrong(tmp_path: Path) -> None:
    _, directory = written(tmp_path, timeline=TIMELINE)
    before = (directory / "report.html").read_text(encoding="utf-8")
    add_bisection(directory, Bisection(("1",), (TriedRelease("1", "FAILED"),)))
    after = (directory / "report.html").read_text(encoding="utf-8")
    assert "wrong in 1" in after
    assert after.count("<table") == before.count("<table") > 1


def test_git_ignores_a_folder_of_reports_unless_its_owner_has_said_otherwise(tmp_path: Path) -> None:
    written(tmp_path)
    assert (tmp_path / "reports/.gitignore").read_text(encoding="utf-8").splitlines()[-1] == "*"
    (tmp_path / "own").mkdir()
    (tmp_path / "own/.gitignore").write_text("!kept\n", encoding="utf-8")
    mark_reports(tmp_path / "own")
    assert (tmp_path / "own/.gitignore").read_text(encoding="utf-8") == "!kept\n"


PARTS = (
    "# toy_reported",
    "**Should hold:** Toys divide. (toys/divide)\n",
    "**Confirmed:** A note.\n",
    "\nblock_table = torch.tensor([1, 2, 132832238, 3, 4, 132832238], dtype=torch.int32).as_strided(",
    "\nseq_lens = torch.tensor([5, 1], dtype=torch.int32)\n",
    "\nmamba_get_block_table_tensor(block_table=block_table, seq_lens=seq_lens, kv_cache_spec=",
    ", mamba_cache_mode='align')\n",
    "\nexpected    int32[[2], [3]]\nactual      int32[[2], [4]]\n",
    "`python repro.py` exits 1",
    "`statecheck replay case.json --subject toy_reported --device cpu`",
    "| device | cpu |",
    "| seed | 77 |",
    "| revision | ",
    "| torch | ",
    "| triton | ",
)


def test_a_report_says_everything_that_an_issue_needs(tmp_path: Path) -> None:
    _, directory = written(tmp_path, seed=77)
    text = (directory / "report.md").read_text(encoding="utf-8")
    places = [text.find(part) for part in PARTS]
    assert [part for part, place in zip(PARTS, places, strict=True) if place < 0] == []
    assert text.count("= 4, but should be 3") == 1
    # It is pasted elsewhere.
    assert str(tmp_path) not in text


def test_an_input_calls_methods_as_one_would_write_it() -> None:
    steps = (call("Toy", size=4, bind="toy"), call("Toy.turn", self=Name("toy"), by=2))
    (section,) = input_sections(a_case(steps=steps))
    assert section.pieces == ("toy = Toy(size=4)", "toy.turn(by=2)")


def test_a_mark_stands_below_the_first_element_that_differs() -> None:
    numbers = list(range(95, 125))
    changed = [*numbers[:20], -1, *numbers[21:25], -1]
    case = a_case(expected=(Returned(int32(numbers)),), actual=(Returned(int32(changed)),))
    lines = report_text(case, subject_of(case)).splitlines()
    (mark,) = [number for number, line in enumerate(lines) if line.lstrip().startswith("^")]
    column = lines[mark].index("^")
    assert (lines[mark - 2][column:].split(",")[0], lines[mark - 1][column:].split(",")[0]) == ("115", "-1")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_the_input_of_a_report_is_python(device: str, defect: DefectiveModule) -> None:
    case = case_of(load("impl"), device, *defect.steps)
    (block,) = re.findall(r"```python\n(.*?)\n```", report_text(case, subject_of(case)), re.DOTALL)
    assert isinstance(ast.parse(block).body[-1], ast.Expr)


def test_the_digest_is_of_the_property_the_subject_and_the_input_alone() -> None:
    others = [
        a_case(property_id="toys/add"),
        a_case(subject="impl"),
        a_case(steps=(call("divide", x=5, y=3),)),
    ]
    assert a_case().digest not in {other.digest for other in others}
    same = a_case(seed=4, device="cuda", message="else", sentence="Else.", timeline=TIMELINE)
    assert a_case().digest == same.digest
