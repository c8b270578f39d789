"""Scripts of reports, and whether they print what the reports say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.report_scripts import main, scripts_of

_REPORT = """# A report

```python
{script}
```

prints

```text
{printed}
```
"""


def report(folder: Path, script: str, printed: str) -> Path:
    path = folder / "report.md"
    path.write_text(_REPORT.format(script=script, printed=printed))
    return path


@pytest.mark.parametrize(
    ("script", "printed", "outcome"),
    [
        ("print('a')", "a", "as printed"),
        ("print('by', 0.12345678)", "by 0.12349", "as printed but for digits"),
        ("print('by', 0.12345678)", "by 0.2", "other: by 0.12345678"),
        ("print('a')\nprint('b')", "a", "other: a / b"),
        ("print(1)\nraise ValueError('no')", "1\nValueError: no", "as printed"),
        ("raise ValueError('no')", "", "other: ValueError: no"),
    ],
)
def test_a_row_says_whether_a_script_printed_what_its_report_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, printed: str, outcome: str
) -> None:
    assert main([str(report(tmp_path, script, printed))]) == int(outcome.startswith("other"))
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"| {outcome} |")


def test_a_script_does_not_see_statecheck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    script = "import importlib.util\nprint(importlib.util.find_spec('lab'))"
    assert main([str(report(tmp_path, script, "None"))]) == 0


def test_a_named_function_is_called_before_a_script(tmp_path: Path) -> None:
    script = "import sys\nprint('lab.words' in sys.modules)\nraise ValueError('the end')"
    printed = "True\nValueError: the end"
    assert main([str(report(tmp_path, script, printed)), "--prepare", "lab.words:Path"]) == 0


def test_a_report_without_a_script_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_text("# Nothing\n")
    with pytest.raises(ValueError, match="should be a report with a script"):
        scripts_of(path)
