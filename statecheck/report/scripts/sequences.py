"""A case of a library of sequences as a script: straight-line calls of the library, each beside a fresh run over the same tokens.

The calls are written by the port, for its library alone, or they are calls of the port. What stands around them is the same in every script: a
comparison, and exit codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from oracle.sequences import SequenceTokens
from statecheck.case import Case
from statecheck.case.bucket import ExecutedCall, scenarios
from statecheck.case.values import Call, Outcome, Raised, Record, Returned
from statecheck.report.scripts.script import framed
from statecheck.subject import Subject
from statecheck.subject.subject import SequenceChoices

_Arguments = Mapping[str, Any]
_PORT = '''\
import importlib
from pathlib import Path

here = Path(globals().get("__file__", "repro.py")).resolve().parent  # the working folder where the script is piped
sys.path.insert(0, os.environ.get("SUBJECT_PATH") or str(here / {root!r}))
{rooms}port = importlib.import_module(os.environ.get("SUBJECT", {name!r}))


def numbers(row):
    return [float(one) for one in (row.tolist() if hasattr(row, "tolist") else row)]


def fresh(tokens, **features):
    context = port.new(model, seed, **given)
    return numbers(port.extend(context, [(0, tokens)], **features)[0])


def happened(result):
    """The calls behind it rely on an operation that is done."""
    if result is False:
        leave(UNTRIED, "an operation is refused that was done: it cannot be tried here")
    return result


def refused(result):
    """The calls behind it rely on an operation that changes nothing."""
    if result is not False:
        leave(UNTRIED, "an operation is done that was refused: it cannot be tried here")

'''
_NUMBERS = "from math import inf, nan  # noqa: F401 - as Python writes numbers"
_COMPARISONS = '''\
TOLERANCE = TOLERANCE_OF_PORT  # share of the scale of a fresh run's logits: the port's; campaigns measure a smaller share for models with little noise
compared, wrong = [], []


def compare(what, seen, fresh):
    """Logits of a row beside those of a fresh run over the same tokens."""
    mean = sum(fresh) / len(fresh)
    scale = max(abs(one - mean) for one in fresh) or sys.float_info.min
    far = [abs(one - other) / scale for one, other in zip(seen, fresh)]
    print(f"{what}: logits differ by {max(far):.3g} of their scale")
    compared.append(what)
    if len(seen) != len(fresh) or not all(one <= TOLERANCE for one in far):
        wrong.append(what)


def equal(what, seen, expected):
    """Anything else that has to be the same."""
    print(f"{what}: {seen}" + ("" if seen == expected else f", but should be {expected}"))
    compared.append(what)
    if seen != expected:
        wrong.append(what)'''
_JUDGED = """\
traceback.print_exception(error, file=sys.stdout)
if wrong or (type(error).__name__ == RAISED and not isinstance(error, ImportError)):
    leave(1, "the defect is there")
leave(UNTRIED, "it cannot be tried here")"""
_ENDING = """\
if not compared:
    leave(UNTRIED, "nothing was compared")
leave(*((1, "the defect is there") if wrong else (0, "the defect is gone")))"""
_ROOMS = """\
from statecheck.rooms import open_rooms

open_rooms()
"""
"""Ahead of a port that is a part of statecheck."""
_GREEDY = '''
def greedy(what, tokens, chosen, **features):
    """Each chosen token has the largest logit of a fresh run over what stands before it, or one within the tolerance of it."""
    for number, token in enumerate(chosen):
        logits = fresh([*tokens, *chosen[:number]], **features)
        mean = sum(logits) / len(logits)
        scale = max(abs(one - mean) for one in logits)
        best = max(range(len(logits)), key=logits.__getitem__)
        near = logits[best] - logits[token] <= TOLERANCE * scale
        equal(f"{what}, token {number}", token, token if near else best)

'''


def sequence_script(case: Case, subject: Subject, root: str) -> str:
    """The script's text.

    Args:
        root: the folder that the port's module is imported from, relative to the script's; "" where it is installed.
    """
    choices = subject.sequences
    assert choices is not None
    body = ""
    if choices.script is not None:
        # What the port does not write for the library alone is written for the port.
        with suppress(NotImplementedError):
            body = "".join(_of_library(case, choices.script))
    if not body:
        body = "\n".join(_of_port(case, choices, subject.module.__name__, root)) + "\n"
    return framed_sequence(body, case, choices.tolerance)


def framed_sequence(body: str, case: Case, tolerance: float) -> str:
    """Lines that call `compare` and `equal`, with what defines these, and with the exit codes."""
    last = case.actual[-1] if case.actual else None
    raised = last.exception if isinstance(last, Raised) else ""
    return framed(
        case,
        imports=["import os", "import sys", "import traceback", _NUMBERS],
        helpers=_COMPARISONS.replace("TOLERANCE_OF_PORT", repr(tolerance)),
        body=body,
        prepared="",
        # An exception, where no comparison is wrong, is the defect itself if it is the recorded one.
        judged=_JUDGED.replace("RAISED", repr(raised)),
        ending=_ENDING,
        needs="",
    )


def _of_library(case: Case, script: Any) -> Iterator[str]:
    """What the port writes for each model in turn; scenarios on the same model have contexts of their own in one text."""
    first = 0
    made: tuple[Any, ...] = ()
    operations: list[tuple[str, _Arguments]] = []
    for (call, _), *others in scenarios(case):
        named = call.named
        if made and made != (named["model"], named["seed"], named["features"]):
            yield script(*made, operations)
            operations, first = [], 0
        made = named["model"], named["seed"], named["features"]
        moved = list(_operations([one for one, _ in others], first))
        operations += moved
        first = 1 + max((given["context"] for _, given in moved), default=first)
    yield script(*made, operations)


def _operations(calls: Sequence[Call], first: int) -> Iterator[tuple[str, _Arguments]]:
    """Names and arguments; contexts are counted from `first`."""
    for call in calls:
        named = call.named
        named.pop("self", None)
        yield call.function.rpartition(".")[2], named | {"context": first + named["context"]}


def _of_port(case: Case, choices: SequenceChoices, name: str, root: str) -> Iterator[str]:
    yield _PORT.format(root=root, name=name, rooms=_ROOMS if name.startswith("subjects.") else "")
    taken = scenarios(case)
    if any(call.function.endswith(".generate") for one in taken for call, _ in one):
        yield _GREEDY
    about_length = case.failure is not None and case.failure.place.endswith("length")
    first = 0
    for number, one in enumerate(taken):
        writer = _Writer(choices, first, about_length=about_length and number == len(taken) - 1)
        yield from writer.lines(one)
        first += len(writer.contexts)


@dataclass
class _Writer:
    """The lines of one scenario."""

    choices: SequenceChoices
    first: int
    """The number of its first context in the script."""
    about_length: bool
    contexts: dict[int, str] = field(default_factory=dict)
    tokens: SequenceTokens = field(default_factory=SequenceTokens)
    _before_the_next: str = ""

    def lines(self, taken: ExecutedCall) -> Iterator[str]:
        (made, _), *others = taken
        named = made.named
        features: Mapping[str, Any] = named["features"]
        given = {name: value for name, value in features.items() if name in self.choices.given_to_reference}
        yield f"model, seed, given = {named['model']!r}, {named['seed']}, {given!r}"
        new = f"port.new(model, seed{_named(features)})"
        for call, outcome in [(made, None), *others]:
            number = call.named.get("context", 0)
            if number not in self.contexts:
                self.contexts[number] = f"c{self.first + len(self.contexts)}"
                yield f"{self.contexts[number]} = {new}"
            if self._before_the_next:
                yield self._before_the_next
                self._before_the_next = ""
            if call is not made:
                yield from self._operation(call, outcome)

    def _operation(self, call: Call, outcome: Outcome | None) -> Iterator[str]:
        name, named = call.function.rpartition(".")[2], call.named
        number, features = named.pop("context"), named.pop("features", {})
        named.pop("self", None)
        context = self.contexts[number]
        saved = str(named.get("name", "")).replace(" ", "_")
        given = [repr(_plain(value)) for key, value in named.items() if key != "name"]
        given += [saved] if name == "load" else []
        invocation = f"port.{name}({', '.join([context, *given])}{_named(features)})"
        step = outcome.value if isinstance(outcome, Returned) else None
        if not isinstance(step, Record):
            # The call that fails by what it raises, the last one.
            yield invocation
        elif name == "extend":
            yield from self._extend(invocation, number, named["rows"], features)
        elif name == "generate":
            yield from self._generate(invocation, context, number, named, features, step)
        elif not step["happened"]:
            yield f"refused({invocation})"
        else:
            getattr(self.tokens, name)(number, *named.values())
            yield f"{f'{saved} = ' if name == 'save' else ''}happened({invocation})"
        if isinstance(step, Record) and self.about_length:
            yield from self._lengths(context, number, named)

    def _extend(self, invocation: str, number: int, rows: Any, features: Mapping[str, Any]) -> Iterator[str]:
        whole = self.tokens.extend(number, [(sequence, tuple(tokens)) for sequence, tokens in rows])
        yield f"rows = {invocation}"
        for at, ((sequence, _), tokens) in enumerate(zip(rows, whole, strict=True)):
            wanted = f"fresh({list(tokens)}{self._given(features)})"
            yield f'compare("sequence {sequence} of {self.contexts[number]}", numbers(rows[{at}]), {wanted})'

    def _generate(
        self,
        invocation: str,
        context: str,
        number: int,
        named: Mapping[str, Any],
        features: Mapping[str, Any],
        step: Record,
    ) -> Iterator[str]:
        sequence = named["sequence"]
        before = self.tokens.of((number, sequence))
        yield f"chosen = [int(token) for token in {invocation}]"
        yield f'equal("number of tokens", len(chosen), {named["n"]})'
        given = self._given(features)
        if given:
            yield "context = port.new(model, seed, **given)"
            yield f"port.extend(context, [(0, {list(before)})])"
            wanted = f"[int(token) for token in port.generate(context, 0, {named['n']}{given})]"
            yield f'equal("generated tokens", chosen, {wanted})'
        else:
            yield f'greedy("generated", {list(before)}, chosen)'
        lengths: Any = step["lengths"]
        length = next((count for *place, count in lengths if place == [number, sequence]), None)
        chosen: Any = step["generated"]
        other = "other tokens are generated than before: it cannot be tried here"
        self._before_the_next = f"if chosen != {list(chosen)}:\n    leave(UNTRIED, {other!r})"
        self.tokens.generate(number, sequence, tuple(chosen), length)
        if length is None:
            yield f"port.drop({context}, {sequence})"

    def _lengths(self, context: str, number: int, named: Mapping[str, Any]) -> Iterator[str]:
        changed = {named[key] for key in ("sequence", "source", "target") if key in named}
        changed |= {sequence for sequence, _ in named.get("rows", ())} | set(
            range(len(named.get("order", ())))
        )
        for sequence in sorted(changed):
            has = len(self.tokens.of((number, sequence)))
            yield f'equal("length of sequence {sequence}", port.length({context}, {sequence}), {has})'

    def _given(self, features: Mapping[str, Any]) -> str:
        names = self.choices.given_to_reference
        return _named({name: value for name, value in features.items() if name in names})


def _plain(value: Any) -> Any:
    """Rows and orders as a person writes them."""
    if isinstance(value, (list, tuple)) and all(isinstance(one, int) for one in value):
        return list(value)
    if isinstance(value, (list, tuple)):
        return [(sequence, list(tokens)) for sequence, tokens in value]
    return value


def _named(features: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in features.items())
