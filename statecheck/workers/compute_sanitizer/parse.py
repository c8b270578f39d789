"""What compute-sanitizer prints, as findings: where the subject's kernels went wrong, and in which case.

Its lines begin with nine equals signs, and stand among what the replayed cases announce on the same stream.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

ANNOUNCED = re.compile(r"^CASE (\d+) (.*)$")
_LINE = re.compile(r"(?<!=)={8,9}(?: (?P<text>.*))?$")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"^at (?P<at>.+)$")
_PLACE = re.compile(r"^(?P<before>.+?) in (?P<file>[^ ].*?):(?P<line>\d+)(?::(?P<kernel>.+))?$")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_OFFSET = re.compile(r"\+?0x[0-9a-fA-F]+$")
_NAMELESS = re.compile(r"^0x[0-9a-fA-F]+ in (?P<kernel>.+)$")
_THREAD = re.compile(r"^by thread \(.*$")
_ADDRESS = re.compile(r"^(?:Address|Access (?:at|to)|Uninitialized access at) 0x")
_SUMMARY = re.compile(r"^ERROR SUMMARY: (?P<count>\d+) errors?\b(?! were not printed)")
_UNPRINTED = re.compile(r"^ERROR SUMMARY: (?P<count>\d+) errors? (?:were|was) not printed")
_KERNEL_ERROR = re.compile(
    r"^(?:Invalid|Uninitialized|Misaligned|Warp|Thread|Stack|Illegal|Potential|Barrier|Divergent)\b"
)
_API = re.compile(r"^(?:Program hit|Host API|Malloc/Free|Unused memory|Leaked|Invalid (?:host|argument))")
_FATAL = re.compile(
    r"IllegalAddress|ILLEGAL_ADDRESS|LaunchFailure|LAUNCH_FAILED|Misaligned|MISALIGNED|IllegalInstruction"
    r"|ILLEGAL_INSTRUCTION|HardwareStack|HARDWARE_STACK|InvalidPc|INVALID_PC|AddressSpace|ADDRESS_SPACE"
    r"|Assert|ASSERT"
)
_RACE = re.compile(r"^(?:Error|Warning): (?P<kind>Race .+?) (?:access )?at (?P<at>.+)$")
_ENDED = re.compile(r"^(?:Error: )?(?:process didn't terminate|Target application returned)", re.IGNORECASE)
_TROUBLE = re.compile(r"^(?:Error|Internal|Fatal)\b|^Target application terminated before ")
_NOTE = re.compile(r"^(?:COMPUTE-SANITIZER|Warning|\w+ SUMMARY)")
OTHER = "other"
FINDING, UNDECIDED, FALSE_ALARM = "finding", "undecided", "false alarm"


@dataclass(frozen=True)
class ToolFinding:
    """Something that a tool saw; `count` times the same, of which `text` is the first, word for word.

    `case` is the path of the case that had been announced last, empty before the first one. `own` says whether it is
    about the subject's kernels, and not about those of torch and its libraries, or about calls of CUDA. `launch` is
    the file in which the launch was written down, empty where it was not. `verdict` is "finding", "undecided" or "false alarm", and
    `opinion` says why, where a second one was asked for.
    """

    tool: str
    kind: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    thread: str = ""
    address: str = ""
    case: str = ""
    own: bool = True
    count: int = 1
    text: str = ""
    launch: str = ""
    verdict: str = FINDING
    opinion: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    @property
    def same(self) -> tuple[str, str, str, str, str]:
        """What findings that are counted together have in common."""
        return self.tool, self.kind, self.kernel, self.place, self.case


@dataclass
class Parsed:
    """A log. `errors` is what the tool's own summary counts, None where it has none, since the tool did not finish.

    `trouble` are lines in which the tool speaks of troubles of its own; `unprinted` counts what it did not print. `limit` is what
    the tool cannot do, where it ended the process for that.
    """

    findings: list[ToolFinding] = field(default_factory=list)
    errors: int | None = None
    unprinted: int = 0
    trouble: list[str] = field(default_factory=list)
    limit: str = ""


@dataclass
class _Paragraph:
    """A line with one space behind the equals signs, and the lines with more of them that follow."""

    case: str
    lines: list[str]

    @property
    def title(self) -> str:
        return self.lines[0].strip()

    @property
    def details(self) -> list[str]:
        return [line.strip() for line in self.lines[1:]]


def parse(text: str, tool: str, kernels: Collection[str]) -> Parsed:
    """The log of one process.

    Args:
        kernels: names of the subject's kernels.
    """
    parsed = Parsed()
    for block in _blocks(text):
        if not _take_note(parsed, block):
            parsed.findings.append(_finding(block, tool, kernels))
    parsed.findings = together(_without_consequences(parsed.findings))
    _account(parsed, tool)
    return parsed


def _take_note(parsed: Parsed, block: _Paragraph) -> bool:
    """Whether the block is about the run, and no finding."""
    title = block.title
    summary, unprinted = _SUMMARY.match(title), _UNPRINTED.match(title)
    if _RACE.match(title):
        return False
    if summary:
        parsed.errors = (parsed.errors or 0) + int(summary["count"])
    elif unprinted:
        parsed.unprinted += int(unprinted["count"])
    elif _TROUBLE.match(title) and not _ENDED.match(title):
        parsed.trouble.append("\n".join(block.lines))
    return bool(_TROUBLE.match(title) or _NOTE.match(title) or _ENDED.match(title))


def _account(parsed: Parsed, tool: str) -> None:
    """What the summary counts is a finding, even where nothing was printed of it."""
    if parsed.errors and not parsed.findings:
        text = f"the summary counts {parsed.errors} errors of which none was understood"
        parsed.findings.append(ToolFinding(tool, OTHER, text=text))


def _blocks(text: str) -> Iterator[_Paragraph]:
    case, block = "", None
    for line in text.splitlines():
        plain = _ESCAPES.sub("", line).rstrip()
        announced, printed = ANNOUNCED.match(plain), _LINE.search(plain)
        if announced:
            case = announced[2]
        if not printed:
            continue
        said = printed["text"] or ""
        if said.strip() and not said.startswith(" "):
            if block:
                yield block
            block = _Paragraph(case, [said])
        elif said.strip() and block:
            block.lines.append(said)
    if block:
        yield block


def _finding(block: _Paragraph, tool: str, kernels: Collection[str]) -> ToolFinding:
    kernel, file, line = _where(block)
    return ToolFinding(
        tool,
        _kind(block, kernel),
        kernel,
        file,
        line,
        thread=_first(block.details, _THREAD),
        address=_first(block.details, _ADDRESS),
        case=block.case,
        own=_is_own(block, kernel, file, kernels),
        text="\n".join(block.lines),
    )


def _kind(block: _Paragraph, kernel: str) -> str:
    race = _RACE.match(block.title)
    known = kernel or _KERNEL_ERROR.match(block.title) or _API.match(block.title)
    return race["kind"] if race else _HEX.sub("0x…", block.title) if known else OTHER


def _is_own(block: _Paragraph, kernel: str, file: str, kernels: Collection[str]) -> bool:
    """Whether the subject has to answer for it; for what is not understood as well, so that it is not overlooked."""
    if kernel or file:
        # A function that a kernel calls has another name, and a Python file all the same.
        return kernel in kernels or file.endswith(".py")
    if _API.match(block.title):
        return bool(_FATAL.search(block.title))
    return True


def _where(block: _Paragraph) -> tuple[str, str, int]:
    """Kernel, file and line of the first frame: "kernel+0x90 in file.py:12", or in older words "0x90 in file.py:12:kernel"."""
    frames = (_RACE.match(block.title), *map(_FRAME.match, block.details))
    frame = next((found["at"] for found in frames if found), "")
    place = _PLACE.match(frame)
    if place:
        name = place["kernel"] or place["before"]
        return _name(name), place["file"], int(place["line"])
    nameless = _NAMELESS.match(frame)
    return _name(nameless["kernel"] if nameless else frame), "", 0


def _name(text: str) -> str:
    """A kernel's name without the offset in it, and without its arguments where it is a plain name."""
    name = _OFFSET.sub("", text.strip())
    plain = re.match(r"^(\w+)\(", name)
    return plain[1] if plain else name


def _first(lines: list[str], form: re.Pattern[str]) -> str:
    return next((line for line in lines if form.match(line)), "")


def _without_consequences(findings: list[ToolFinding]) -> list[ToolFinding]:
    """Calls of CUDA that fail since a kernel has failed in the same case say nothing new."""
    failed = {one.case for one in findings if one.kernel}
    return [one for one in findings if one.kernel or one.case not in failed or not _is_consequence(one)]


def _is_consequence(finding: ToolFinding) -> bool:
    return finding.kind.startswith("Program hit") and bool(_FATAL.search(finding.kind))


def together(findings: list[ToolFinding]) -> list[ToolFinding]:
    """One for all that are the same but for the thread, in the order of the first ones."""
    found: dict[tuple[str, ...], ToolFinding] = {}
    for one in findings:
        before = found.get(one.same)
        found[one.same] = one if before is None else replace(before, count=before.count + one.count)
    return list(found.values())
