"""What compute-sanitizer prints, as findings: where the subject's kernels went wrong, and in which case.

Its lines begin with nine equals signs, and stand among what the replayed cases announce on the same stream.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

ANNOUNCED = re.compile(r"^CASE (\d+) (.*)$")
_LINE = re.compile(r"(?<!=)={8,9}(?: (?P<text>.*))?$")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"^at (?P<at>.+)$")
_PLACE = re.compile(r"^(?P<before>.+?) in (?P<file>[^ ].*?):(?P<line>\d+)(?::(?P<kernel>.+))?$")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_OFFSET = re.compile(r"\+?0x[0-9a-fA-F]+$")
_NAMELESS = re.compile(r"^0x[0-9a-fA-F]+ in (?P<kernel>.+)$")
_SUMMARY = re.compile(r"^ERROR SUMMARY: (?P<count>\d+) errors?\b(?P<unprinted> (?:were|was) not printed)?")
_API = re.compile(r"^(?:Program hit|Host API|Malloc/Free|Unused memory|Leaked|Invalid (?:host|argument))")
_FATAL = re.compile(
    r"IllegalAddress|ILLEGAL_ADDRESS|LaunchFailure|LAUNCH_FAILED|Misaligned|MISALIGNED|IllegalInstruction"
    r"|ILLEGAL_INSTRUCTION|HardwareStack|HARDWARE_STACK|InvalidPc|INVALID_PC|AddressSpace|ADDRESS_SPACE"
    r"|Assert|ASSERT"
)
_RACE = re.compile(r"^(?:Error|Warning): (?P<kind>Race .+?) (?:access )?at (?P<at>.+)$")
_NOTE = re.compile(
    r"^(?:COMPUTE-SANITIZER|Warning|\w+ SUMMARY|(?:Error: )?(?:process didn't terminate|Target application returned))",
    re.IGNORECASE,
)
_TROUBLE = re.compile(r"^(?:Error|Internal|Fatal)\b|^Target application terminated before ")


@dataclass(frozen=True)
class ToolFinding:
    """Something that a tool saw; `count` times the same, of which `text` is the first, word for word.

    `case` is the path of the case that had been announced last, empty before the first one. `own` says whether it is
    about the subject's kernels, and not about those of torch and its libraries, or about calls of CUDA.
    """

    tool: str
    kind: str
    kernel: str = ""
    place: str = ""
    case: str = ""
    own: bool = True
    count: int = 1
    text: str = ""


@dataclass
class Parsed:
    """A log. `errors` is what the tool's own summary counts, None where it has none, since the tool did not finish.

    `trouble` are lines in which the tool speaks of troubles of its own; `unprinted` counts what it did not print.
    """

    findings: list[ToolFinding] = field(default_factory=list)
    errors: int | None = None
    unprinted: int = 0
    trouble: list[str] = field(default_factory=list)


def parse(text: str, tool: str, kernels: Collection[str]) -> Parsed:
    """The log of one process.

    Args:
        kernels: names of the subject's kernels.
    """
    parsed = Parsed()
    for case, lines in _paragraphs(text):
        summary, race = _SUMMARY.match(lines[0]), _RACE.match(lines[0])
        if summary and summary["unprinted"]:
            parsed.unprinted += int(summary["count"])
        elif summary:
            parsed.errors = (parsed.errors or 0) + int(summary["count"])
        elif race or not (_NOTE.match(lines[0]) or _TROUBLE.match(lines[0])):
            parsed.findings.append(_finding(tool, case, lines, race, kernels))
        elif not _NOTE.match(lines[0]):
            parsed.trouble.append("\n".join(lines))
    parsed.findings = _together(parsed.findings)
    if parsed.errors and not parsed.findings:
        # What the summary counts is a finding, even where nothing was printed of it.
        kind = f"the summary counts {parsed.errors} errors of which none was understood"
        parsed.findings.append(ToolFinding(tool, kind))
    return parsed


def _paragraphs(text: str) -> Iterator[tuple[str, list[str]]]:
    """The case, and lines of the tool: one with one space behind the equals signs, and those with more that follow."""
    case, of, lines = "", "", list[str]()
    for line in text.splitlines():
        plain = _ESCAPES.sub("", line).rstrip()
        announced, printed = ANNOUNCED.match(plain), _LINE.search(plain)
        case = announced[2] if announced else case
        said = printed["text"] or "" if printed else ""
        if said.strip() and not said.startswith(" "):
            if lines:
                yield of, lines
            of, lines = case, [said]
        elif said.strip() and lines:
            lines.append(said)
    if lines:
        yield of, lines


def _finding(
    tool: str, case: str, lines: Sequence[str], race: re.Match[str] | None, kernels: Collection[str]
) -> ToolFinding:
    frames = (race, *(_FRAME.match(line.strip()) for line in lines[1:]))
    kernel, place = _where(next((frame["at"] for frame in frames if frame), ""))
    if kernel or place:
        # A function that a kernel calls has another name, and a Python file all the same.
        own = kernel in kernels or place.rpartition(":")[0].endswith(".py")
    else:
        # The subject has to answer for what is not understood as well, so that it is not overlooked.
        own = not _API.match(lines[0]) or bool(_FATAL.search(lines[0]))
    kind = race["kind"] if race else _HEX.sub("0x…", lines[0])
    return ToolFinding(tool, kind, kernel, place, case, own, text="\n".join(lines))


def _where(frame: str) -> tuple[str, str]:
    """Kernel and place of a frame: "kernel+0x90 in file.py:12", or in older words "0x90 in file.py:12:kernel"."""
    found = _PLACE.match(frame)
    if found:
        return _name(found["kernel"] or found["before"]), f"{found['file']}:{found['line']}"
    nameless = _NAMELESS.match(frame)
    return _name(nameless["kernel"] if nameless else frame), ""


def _name(text: str) -> str:
    """A kernel's name without the offset in it, and without its arguments where it is a plain name."""
    name = _OFFSET.sub("", text.strip())
    plain = re.match(r"^(\w+)\(", name)
    return plain[1] if plain else name


def _together(findings: Sequence[ToolFinding]) -> list[ToolFinding]:
    """A finding for all that are the same but for the thread.

    Calls of CUDA that fail since a kernel has failed in the same case say nothing new.
    """
    failed = {one.case for one in findings if one.kernel}
    found: dict[ToolFinding, ToolFinding] = {}
    for one in findings:
        follows = not one.kernel and one.case in failed and one.kind.startswith("Program hit")
        if not (follows and _FATAL.search(one.kind)):
            same = replace(one, text="")
            before = found.get(same, replace(one, count=0))
            found[same] = replace(before, count=before.count + 1)
    return list(found.values())
