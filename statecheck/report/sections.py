"""What a report says of a failing case: one list of sections, which Markdown, and of it a page, are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from statecheck.case import Case
from statecheck.case.failure import brief_outcome, call_text, compared_part, outcome_difference
from statecheck.case.timeline import Timeline
from statecheck.case.values import Call, Let, Name, Overwrite, Tensor
from statecheck.report.environment import environment_table
from statecheck.report.failure import TYPED, Entry, failure_entry, release_of, titled
from statecheck.report.scenario_timeline import LEGEND, block_tables, timeline_of
from statecheck.report.scripts.calls import literal
from statecheck.report.scripts.script import calls_of, repro_test
from statecheck.subject import BUILT_IN, Subject
from statecheck.util.markdown import code, fenced, inert
from statecheck.util.text import brief as on_one_line

TEST = "test_repro.py"
"""The script as a test of the project that has the defect."""
ALONE = ("-m", "pytest", "--noconftest", "-c", "/dev/null")
"""How it is run where it lies: what this repository's own tests are run with would import Triton before it."""
ROOM = 2_000
"""Characters of a text inside a report."""
_AROUND = 8
_LONGEST_LINE, _LONGEST_ARGUMENT, _MOST_IN_OPEN, _MOST_OF_AN_ORDER = 1_000, 40, 3_000, 400
"""Characters of a line of the input, of what stands between the brackets of a call, of an input that stands in the open, and of
the order of a launch's programs."""


@dataclass(frozen=True)
class Section:
    """A heading, and pieces below it, each of which stands whole or is left out.

    Args:
        title: "" for none.
        pieces: Markdown; lines of code with `language`.
        one, many: what pieces are called where they are left out; "" where none may be.
        rank: sections of the highest rank lose their last pieces first.
        language: of the code that all pieces together are, "" for Markdown.
        summary: the line under which everything is folded, "" where it stands in the open.
    """

    title: str
    pieces: tuple[str, ...]
    one: str = ""
    many: str = ""
    rank: int = 0
    language: str = ""
    summary: str = ""
    left_out: int = 0


def report_sections(case: Case, subject: Subject | None, note: str = "") -> list[Section]:
    """What differs in the open, the rest folded.

    Args:
        note: a sentence to add, such as that the failure does not repeat.
    """
    # The call, and what it came to, stand below.
    entry = failure_entry(case, release_of(subject), note).without("call", "expected", "actual")
    # A library of sequences shows where it differs first, and no writer of bytes.
    found = "What differs first" if case.model else "Who did it"
    return [
        Section("", tuple(_head(entry))),
        *([Section(found, (inert(shortened(case.finding, ROOM)),))] if case.finding else []),
        *_story(timeline_of(case)),
        *outcome_sections(case),
        *input_sections(case),
        Section("Run it again", (_commands(case, subject),)),
        Section("Environment", (environment_table(case, subject),)),
    ]


def _head(entry: Entry) -> Iterator[str]:
    yield f"# {inert(entry.headline)}"
    for label, text in entry.on_one_line.rows:
        yield f"**{label[0].upper()}{label[1:]}:** {code(text) if label in TYPED else inert(text)}"


def _commands(case: Case, subject: Subject | None) -> str:
    """Commands for the folder of the report: no path of this machine is in what is pasted elsewhere."""
    again = f"statecheck replay case.json --subject {case.subject} --device {case.device}"
    lines = [
        f"`python repro.py` exits 1 while the defect is there and 0 once it is gone; it needs {_needs(case, subject)}."
    ]
    if repro_test(case, subject):
        lines.append(
            f"`python {' '.join(ALONE)} {TEST}` is the same as a test for pytest, to be put among the project's own."
        )
    lines.append(f"{code(again)} replays the same input through the harness.")
    if case.subject in BUILT_IN and case.subject != "impl":
        lines.append(
            f"{code(again.replace('replay', 'bisect', 1))} says which release broke it, and which repaired it."
        )
    return "\n".join(f"- {line}" for line in lines)


def _needs(case: Case, subject: Subject | None) -> str:
    """The requirements of the script."""
    if case.model:
        writes = (
            subject is not None and subject.sequences is not None and subject.sequences.script is not None
        )
        return "the library that is verified" if writes else "the port, and the library that is verified"
    plain = calls_of(case, subject)
    if plain is not None:
        return "torch and the project alone" if plain.takes_torch else "the project alone"
    return f"torch, triton, numpy and {titled(case.subject, release_of(subject))}, and has the modules of statecheck that replay it"


def _story(timeline: Timeline | None) -> Iterator[Section]:
    """The moments of the requests up to the failure; the block tables at the failure, and folded, all block tables."""
    if timeline is None or not timeline.moments:
        return
    yield Section("What happened", ("\n".join(f"- {inert(moment.title)}" for moment in timeline.moments),))
    tables, finding = block_tables(timeline), timeline.finding
    if finding is not None:
        yield Section("Block tables where it went wrong", (tables[finding.moment], LEGEND))
    if tables:
        pieces = tuple(tables.values()) if finding is not None else (LEGEND, *tables.values())
        yield Section("", pieces, "table", "tables", rank=5, summary="Block tables over time")


def input_sections(case: Case) -> Iterator[Section]:
    """The steps as Python; of a port, before them, the calls that they come to."""
    lines = [line for text in _lines(case) for line in text.splitlines()]
    ported = "\n".join(filter(None, case.own_calls)).splitlines()
    # A single call stands above what it came to.
    if len(ported) > 1:
        calls = tuple(shortened(line, ROOM) for line in ported)
        folded = _folded(calls, "in order")
        yield Section("Calls of the port", calls, "call", "calls", rank=2, language="text", summary=folded)
    shown = "as statecheck builds it, in the documents' terms" if ported else ""
    summary = shown or _folded(lines, "as Python")
    yield Section("Input", tuple(lines), "line", "lines", rank=3, language="python", summary=summary)


def _folded(lines: Sequence[str], how: str) -> str:
    """The line under which these are folded, "" where they are few."""
    return f"{len(lines):,} lines, {how}" if sum(map(len, lines)) > _MOST_IN_OPEN else ""


def _lines(case: Case) -> Iterator[str]:
    for step in case.steps:
        if isinstance(step, Let):
            lines = [_bound(step.name, literal(step.value))]
        elif isinstance(step, Overwrite):
            lines = [f"{_bound(f'{step.name}[...]', literal(step.elements))}  # in place"]
        else:
            lines = _call_lines(step)
        yield from (line.replace(", device=DEVICE", "") for line in lines)


def _bound(name: str, value: str) -> str:
    """An assignment that is Python, without the value where that is longer than anybody reads."""
    if len(value) <= _LONGEST_LINE:
        return f"{name} = {value}"
    return f"{name} = ...  # {len(value):,} characters, which case.json and repro.py have"


def _call_lines(call: Call) -> list[str]:
    lines = [f"os.environ[{json.dumps(name)}] = {json.dumps(value)}" for name, value in call.environment]
    named = call.named
    receiver = named.pop("self", None)
    function = call.function
    if isinstance(receiver, Name):
        function = f"{receiver.name}.{function.rpartition('.')[2]}"
    texts = {name: literal(value) for name, value in named.items()}
    long = {name: text for name, text in texts.items() if len(text) > _LONGEST_ARGUMENT}
    lines += [_bound(name, value) for name, value in long.items()]
    arguments = [f"{name}={name if name in long else text}" for name, text in texts.items()]
    order = f"  # programs {on_one_line(call.schedule, _MOST_OF_AN_ORDER)}" if call.schedule else ""
    bound = f"{call.bind} = " if call.bind else ""
    return [*lines, f"{bound}{function}({', '.join(arguments)}){order}"]


def outcome_sections(case: Case) -> Iterator[Section]:
    """What differs in the open, with the call that the failure is about; and then what came out as expected."""
    outcomes = {number: _outcome(case, number) for number in range(len(case.calls))}
    about = case.failure.call if case.failure is not None else None
    places = case.device != "cpu"
    pairs = enumerate(zip(case.expected, case.actual, strict=True))
    differing = {number for number, pair in pairs if outcome_difference(*pair, places=places) is not None}
    several = set(case.failure.about) if case.failure is not None else set()
    shown = differing | several | ({about} if about is not None else set()) or set(list(outcomes)[-1:])
    open_, folded = (
        tuple(outcomes[number] for number in outcomes if (number in shown) is wanted)
        for wanted in (True, False)
    )
    if differing:
        yield Section("Expected and actual", open_, "call that differs", "calls that differ", rank=1)
    else:
        yield Section("Calls, each of which is right alone", open_, "call", "calls", rank=1)
    if folded:
        many = f"{len(folded):,} other {'call' if len(folded) == 1 else 'calls'}, which came out as the rules expect"
        yield Section("", folded, "call", "calls", rank=4, summary=many)


def _outcome(case: Case, number: int) -> str:
    call, expected, actual = case.calls[number], case.expected[number], case.actual[number]
    found = outcome_difference(expected, actual, places=case.device != "cpu", part=case.failing_part(number))
    own = case.own_calls[number] if number < len(case.own_calls) else ""
    titles = own.splitlines() or [call_text(call) if len(case.calls) > 1 else call.function]
    *before, last = (code(shortened(title, ROOM)) for title in titles)
    if found is None:
        seen = shortened(brief_outcome(compared_part(expected, actual)), ROOM)
        return "\n".join([*(f"{title}  " for title in before), last, fenced(f"actual      {seen}", "text")])
    lines = [
        f"expected    {shortened(brief_outcome(expected), ROOM)}",
        f"actual      {shortened(brief_outcome(compared_part(expected, actual)), ROOM)}",
    ]
    # The report's head may say it already, and both lines above have all of a few elements.
    if str(found) not in case.message:
        lines.append(f"difference  {shortened(str(found), ROOM)}")
    if found.tensors and any(
        len(tensor.values()) > _AROUND or len(tensor.shape) > 1 for tensor in found.tensors
    ):
        lines += _marked(*found.tensors)
    return "\n".join([*(f"{title}  " for title in before), last, fenced("\n".join(lines), "text")])


def _marked(expected: Tensor, actual: Tensor) -> list[str]:
    """Both tensors around the first element in which they differ, in row-major order, with a mark below it."""
    want, got = expected.values(), actual.values()
    pairs = enumerate(zip(want, got, strict=False))
    at = next((i for i, (wanted, seen) in pairs if wanted != seen), min(len(want), len(got)))
    first = max(0, at - _AROUND)
    skipped = "... " if first else ""
    texts = [", ".join(map(str, values[first : at + _AROUND])) for values in (want, got)]
    before = ", ".join(map(str, got[first:at]))
    column = len(skipped) + len(before) + (2 if before else 0)
    labels = (f"  expected  {skipped}", f"  actual    {skipped}")
    return [
        f"from element {first} on, {expected.dtype}{list(expected.shape)} and {actual.dtype}{list(actual.shape)}:",
        *(label + text for label, text in zip(labels, texts, strict=True)),
        f"{' ' * 12}{' ' * column}^ element {at}",
    ]


def shortened(text: str, room: int) -> str:
    """`text`, or its beginning and how much of it is missing."""
    if len(text) <= room:
        return text
    return f"{text[:room]} … ({len(text) - room:,} more characters)"
