"""Ten defects, each planted in a copy of the reference port, are found and shrunk to a few operations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from statecheck.case import Case
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from statecheck.subject import adapted
from tests.helpers.observers import FailureLog
from tests.helpers.slow import slow_after

_SOURCE = Path(__file__).with_name("reference_port.py").read_text(encoding="utf-8")
_MOST_EXAMPLES = 400
_MOST_CALLS = 6
"""Of a shrunk case, with the call that makes the context."""
PLANTED = {
    "a state is not carried over into the next micro-batch": (
        "sequences/pieces",
        "            states.append(step(context, states[-1] if states else EMPTY, token))",
        (
            "            first_token = token is tokens[first] and first > 0\n"
            "            states.append(step(context, EMPTY if first_token or not states else states[-1], token))"
        ),
    ),
    "the convolution's window is lost between two calls": (
        "sequences/pieces",
        "    for first in range(0, len(tokens), context.micro_batch):",
        (
            "    if context.states.get(sequence):\n"
            "        last = context.states[sequence][-1]\n"
            "        context.states[sequence][-1] = tuple((*one[:_WIDTH], *[0.0] * 2 * _WIDTH) for one in last)\n"
            "    for first in range(0, len(tokens), context.micro_batch):"
        ),
    ),
    "the second row of a batch continues the first one's state": (
        "sequences/batches",
        "    return [_row(context, sequence, list(tokens)) for sequence, tokens in rows]",
        (
            "    logits = [_row(context, sequence, list(tokens)) for sequence, tokens in rows]\n"
            "    if len(rows) > 1:\n"
            "        context.states[rows[1][0]][-1] = context.states[rows[0][0]][-1]\n"
            "    return logits"
        ),
    ),
    "a fork shares what it must copy": (
        "sequences/fork",
        "    context.states[target] = list(context.states[source])",
        "    context.states[target] = context.states[source]",
    ),
    "a fork does not replace what the target had": (
        "sequences/fork",
        "    context.states[target] = list(context.states[source])",
        "    context.states.setdefault(target, list(context.states[source]))",
    ),
    "a rollback is off by one": (
        "sequences/roll-back",
        "    del context.states[sequence][-n:]",
        (
            "    states = context.states[sequence]\n"
            "    kept = len(states) - n\n"
            "    states[:] = [*states[: kept - 1], states[kept]] if kept else []"
        ),
    ),
    "a rollback says that it is done and does nothing to the state": (
        "sequences/roll-back",
        "    del context.states[sequence][-n:]",
        (
            "    states = context.states[sequence]\n"
            "    last = states[-1]\n"
            "    del states[-n:]\n"
            "    if states:\n"
            "        states[-1] = last"
        ),
    ),
    "a save leaves out a layer": (
        "sequences/save",
        "    return list(context.states[sequence])",
        "    return [(one[0], EMPTY[1]) for one in context.states[sequence]]",
    ),
    "a load into a sequence that is a token longer changes nothing": (
        "sequences/save",
        "    context.states[sequence] = list(saved)",
        (
            "    if len(context.states.get(sequence, ())) != len(saved) + 1:\n"
            "        context.states[sequence] = list(saved)"
        ),
    ),
    "a load into a sequence that is a token shorter changes nothing": (
        "sequences/save",
        "    context.states[sequence] = list(saved)",
        (
            "    if len(context.states.get(sequence, ())) != len(saved) - 1:\n"
            "        context.states[sequence] = list(saved)"
        ),
    ),
    "a load over a fork is lost": (
        "sequences/save",
        "    context.states[sequence] = list(saved)",
        (
            "    held = context.states.get(sequence)\n"
            "    if held is None or all(held is other or held != other for other in context.states.values()):\n"
            "        context.states[sequence] = list(saved)"
        ),
    ),
    "a saved state is what the sequence has later": (
        "sequences/save",
        "    return list(context.states[sequence])",
        "    return context.states[sequence]",
    ),
    "a save keeps the states in bfloat16": (
        "sequences/save",
        "    return list(context.states[sequence])",
        (
            "    import struct\n\n"
            "    def short(number):\n"
            "        bits = struct.unpack('<I', struct.pack('<f', number))[0]\n"
            "        return struct.unpack('<f', struct.pack('<I', (bits + 0x8000) & 0xFFFF0000))[0]\n\n"
            "    return [tuple(tuple(map(short, layer)) for layer in state) for state in context.states[sequence]]"
        ),
    ),
    "a rollback of exactly the tokens of the last call takes one more": (
        "sequences/roll-back",
        "    del context.states[sequence][-n:]",
        (
            "    states = context.states[sequence]\n"
            "    more = n == context.last.get(sequence) and n < len(states)\n"
            "    last = states[-1 - n - more] if n + more < len(states) else EMPTY\n"
            "    del states[-n:]\n"
            "    if states and more:\n"
            "        states[-1] = last"
        ),
    ),
    "a dropped sequence leaves its state behind": (
        "sequences/drop",
        "    context.states.pop(sequence, None)",
        "    context.states[-1 - sequence] = context.states.pop(sequence, [])",
    ),
    "a reordering reads states that it has replaced": (
        "sequences/reorder",
        "    before = {number: list(states) for number, states in context.states.items()}",
        "    before = context.states",
    ),
    "a generated token comes from the logits before the last one": (
        "sequences/generate",
        "        chosen.append(max(range(len(logits)), key=logits.__getitem__))",
        (
            "        chosen.append(max(range(len(logits)), key=(before if number else logits).__getitem__))\n"
            "        before = logits"
        ),
    ),
}
ALSO_PLANTED = {
    "a dropped sequence leaves its state behind": (
        (
            "            states = context.states.setdefault(sequence, [])",
            (
                "            states = context.states.setdefault(sequence, [])\n"
                "            left = context.states.get(-1 - sequence)\n"
                "            if left and not states:\n"
                "                states.append(step(context, left[-1], token))\n"
                "                continue"
            ),
        ),
    ),
    "a rollback of exactly the tokens of the last call takes one more": (
        (
            "    states: dict[int, list[State]] = field(default_factory=dict)",
            (
                "    states: dict[int, list[State]] = field(default_factory=dict)\n"
                "    last: dict[int, int] = field(default_factory=dict)"
            ),
        ),
        (
            "    for first in range(0, len(tokens), context.micro_batch):",
            (
                "    context.last[sequence] = len(tokens)\n"
                "    for first in range(0, len(tokens), context.micro_batch):"
            ),
        ),
    ),
}
"""Further changes of the sources, by defect."""


@pytest.fixture
def planted(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """A copy of the reference port with a defect."""
    name = request.param
    _, right, wrong = PLANTED[name]
    assert _SOURCE.count(right) == 1
    source = _SOURCE.replace(right, wrong)
    for others in ALSO_PLANTED.get(name, ()):
        source = source.replace(*others)
    module = ModuleType("planted_port")
    module.__file__ = __file__
    sys.modules["planted_port"] = module
    exec(compile(source, "planted_port.py", "exec"), vars(module))  # noqa: S102 - a source of our own
    yield module
    del sys.modules["planted_port"]


def _shrunk(module: ModuleType, id_: str, seed: int) -> tuple[Case, int]:
    """The shrunk case, and the number of examples until the first failing one."""
    subject, log = adapted(module), FailureLog()
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"), log)
    with pytest.raises(Falsified) as raised:
        load_properties()[id_].explore(context, seed=seed, max_examples=_MOST_EXAMPLES)
    return raised.value.case, log.examples[0]


@pytest.mark.parametrize("planted", slow_after(2, PLANTED), indirect=True)
def test_a_planted_defect_is_found_and_shrunk(planted: ModuleType, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["planted"]
    case, examples = _shrunk(planted, PLANTED[name][0], seed=1)
    tokens = [len(tokens) for call in case.calls for _, tokens in call.named.get("rows", ())]
    print(f"{name}: {examples} examples, {len(case.calls)} calls, {sum(tokens)} tokens")
    assert len(case.calls) <= _MOST_CALLS
    assert case.model == "small"
