"""Whether the scripts in reports about a library print in an environment what the reports say.

    <environment>/bin/python -m lab.report_scripts docs/findings/transformers-*.md

runs each script with the interpreter that runs this, in an empty folder and without statecheck, and prints a row for each: `as printed`, `as printed
but for digits` where numbers differ behind their third digit, or the text that was printed. The exit code is 1 if a text is another one.
A script is a fenced block of Python, and the next fenced block of text is what it prints; of a script that raises, or whose process
ends, the text's last line is the last line of the error. `--prepare <module>:<function>` calls a function of this repository in the
script's process first, such as `subjects.sglang.stand_ins:stand_in`, which stands in for packages that are only there for GPUs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import prepared

_SCRIPT = re.compile(
    r"^```python\n(?P<script>.*?)^```\n\nprints\n\n```text\n(?P<printed>.*?)\n```$", re.MULTILINE | re.DOTALL
)
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_SECONDS = 300


@dataclass(frozen=True)
class Script:
    """A script of a report.

    Args:
        report: the file's name.
        number: of the script in it, from 1 on.
        printed: what it prints, as the report says.
    """

    report: str
    number: int
    text: str
    printed: str

    def run(self, prepare: str = "") -> str:
        """What it prints here, with the last line of an error, behind a call of the function `prepare`, if one is named."""
        command = [sys.executable, "-W", "ignore", str(Path(prepared.__file__)), prepare, "repro.py"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "repro.py")
            file.write_text(self.text)
            done = subprocess.run(
                command if prepare else [sys.executable, file.name],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": "", "GGML_NO_BACKTRACE": "1"},
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
        lines = [done.stdout.strip(), done.stderr.strip().rpartition("\n")[2] if done.returncode else ""]
        return "\n".join(line for line in lines if line)

    def outcome(self, seen: str) -> str:
        """What the row says of a text that was printed."""
        if seen == self.printed:
            return "as printed"
        return "as printed but for digits" if _rounded(seen) == _rounded(self.printed) else f"other: {seen}"


def scripts_of(path: Path) -> list[Script]:
    """The scripts of a report.

    Raises:
        ValueError: it has none.
    """
    found = _SCRIPT.finditer(path.read_text())
    scripts = [
        Script(path.name, number, one["script"], one["printed"]) for number, one in enumerate(found, 1)
    ]
    if not scripts:
        raise ValueError(
            f"path = {str(path)!r}, but should be a report with a script and what it prints [report_scripts]"
        )
    return scripts


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=Path, help="files of reports")
    parser.add_argument("--prepare", default="", help="a function to call first, as <module>:<function>")
    options = parser.parse_args(arguments)
    print("| report | script | seconds | outcome |\n|---|---|---|---|", flush=True)
    others = 0
    for script in [one for path in options.reports for one in scripts_of(path)]:
        started = time.monotonic()
        outcome = script.outcome(script.run(options.prepare))
        others += outcome.startswith("other")
        row = outcome.replace("\n", " / ").replace("|", "\\|")
        print(f"| {script.report} | {script.number} | {time.monotonic() - started:.0f} | {row} |", flush=True)
    return int(bool(others))


def _rounded(text: str) -> str:
    """Numbers with a point have three digits."""
    return _NUMBER.sub(lambda found: f"{float(found[0]):.3g}", text)


if __name__ == "__main__":
    sys.exit(main())
