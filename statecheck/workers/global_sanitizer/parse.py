"""What Triton's global-memory sanitizer says, as findings.

It is an assertion of the device that fails: CUDA prints a line for each thread that saw it, and the context is lost. The line
has a file and a line of Python, and what was seen; the kernel is that of the launch which was announced last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from statecheck.workers.compute_sanitizer.parse import ANNOUNCED, Parsed, ToolFinding, together

TOOL = "gsan"
RACES = {
    "Read after write race detected": "read after write race",
    "Write after read race detected": "write after read race",
    "Write after write race detected": "write after write race",
}
_LAUNCHED = re.compile(r"^LAUNCH (?P<kernel>\S+) (?P<file>.+)$")
_ASSERTED = re.compile(
    r"^(?P<file>.+):(?P<line>\d+): (?P<function>.*?): block: \[(?P<block>[\d,]+)\], thread: \[(?P<thread>[\d,]+)\] "
    r"Assertion `(?P<message>.*)` failed\.?$"
)


def parse(text: str, kernels: Collection[str]) -> Parsed:
    """The log of one process.

    Args:
        kernels: names of the subject's kernels.
    """
    parsed = Parsed()
    for finding, is_limit in _reports(text, kernels):
        if is_limit:
            parsed.limit = finding.kind
        else:
            parsed.findings.append(finding)
    parsed.findings = together(parsed.findings)
    # It ends without a summary; what it has printed is all that there is.
    parsed.errors = len(parsed.findings)
    return parsed


def _reports(text: str, kernels: Collection[str]) -> Iterator[tuple[ToolFinding, bool]]:
    """Each assertion that failed, and whether it is about a limit of the sanitizer."""
    case, kernel, launch = "", "", ""
    for line in map(str.rstrip, text.splitlines()):
        announced, launched, said = ANNOUNCED.match(line), _LAUNCHED.match(line), _ASSERTED.search(line)
        if announced:
            case, kernel, launch = announced[2], "", ""
        elif launched:
            kernel, launch = launched["kernel"], launched["file"]
        elif said:
            message, asserting = said["message"], said["function"].strip().removeprefix("(null)")
            kind = RACES.get(message, f"assertion failed: {message}" if asserting else message)
            finding = ToolFinding(
                TOOL,
                kind,
                kernel or asserting,
                said["file"].removeprefix("<unknown>"),
                int(said["line"]),
                thread=f"by thread ({said['thread']}) in block ({said['block']})",
                case=case,
                own=not kernel or kernel in kernels,
                text=line,
                launch=launch,
            )
            # Assertions of a kernel's own name a function, and those of the sanitizer do not.
            yield finding, not asserting and message not in RACES
