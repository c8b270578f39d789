"""Steps that a few random examples seldom have, and values in padding that no rule reads: built as the rules say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from properties.strategies.builder_sessions import captured_step
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.case.compare import outcome_difference
from statecheck.case.values import Call, Returned
from statecheck.execution.executors.in_process import InProcess
from statecheck.execution.executors.rules import RulesExecutor
from subjects import load

DECODE, SHORT = StepRequest(1, 4), StepRequest(2, 7)
DRAFTED = StepRequest(3, 4, drafts=2, accepted=2), StepRequest(2, 7, drafts=1, accepted=3)
ALONE = StepRequest(1, 9, accepted=3)
PROMPT, FIRST = StepRequest(5, 4, prefilling=True), StepRequest(9, 0, prefilling=True)
STALE = StepRequest(0, accepted=9, drafts=1), StepRequest(0, accepted=0, drafts=0)
NEW = StepRequest(1, 0)
"""A first token that the engine does not mark as a prompt's."""

PLAIN: dict[str, BuildCall] = {
    "a row of two tokens is no decode": BuildCall((DECODE, SHORT)),
    "prompts before padding": BuildCall((DECODE, PROMPT, FIRST, *STALE)),
    "a first token that bounds tell": BuildCall((DECODE, NEW)),
    "a first token that bounds alone tell": BuildCall((NEW,), marks=False),
    "prompts without bounds": BuildCall((DECODE, PROMPT, FIRST), bounds=False, host_lengths=True),
    "a decode by its mark alone": BuildCall((NEW, DECODE), bounds=False),
    "by length alone": BuildCall((DECODE, SHORT), marks=False, bounds=False, host_lengths=True),
}
SPECULATIVE: dict[str, BuildCall] = {
    "stale values in padding": BuildCall((*DRAFTED, ALONE, *STALE)),
    "drafts alone": BuildCall((*DRAFTED, *STALE), marks=False, bounds=False),
    "no token": BuildCall(STALE),
}
UNCOUNTED: dict[str, BuildCall] = {
    "a row of two tokens, without counts": BuildCall((DECODE, SHORT), counts=False),
    "a mark on padding": BuildCall((DECODE, replace(STALE[0], prefilling=True))),
}
GDN: dict[str, BuildCall] = {
    "no counts": BuildCall((DECODE, PROMPT, *STALE), counts=False, drafts=False),
    "a prompt between drafts": BuildCall((DRAFTED[0], PROMPT, ALONE, FIRST, DRAFTED[1])),
    "prompts before drafts": BuildCall((FIRST, PROMPT, DRAFTED[1], *STALE)),
    "a prompt behind drafts": BuildCall((*DRAFTED, ALONE, PROMPT, *STALE)),
}


def setups(kind: str, spec: int) -> Iterator[BuilderSetup]:
    for mode in ("none", "align", "all"):
        if kind != "gdn" or mode != "all":
            for largest in (None, 4, 0):
                yield BuilderSetup(
                    kind,
                    mode,
                    num_spec=spec,
                    full_cudagraphs=largest != 0,
                    max_cudagraph_capture_size=largest or None,
                )


def cases() -> Iterator[tuple[str, BuilderSetup, Call]]:
    for kind, spec in (("mamba1", 0), ("mamba2", 0), ("mamba2", 2), ("gdn", 0), ("gdn", 2)):
        steps = PLAIN | (SPECULATIVE if spec else UNCOUNTED if kind == "mamba2" else {})
        steps |= GDN if spec and kind == "gdn" else {}
        for setup in setups(kind, spec):
            graphs = f"graphs up to {setup.capture_rows}" if setup.full_cudagraphs else "no graphs"
            name = f"{kind}, {spec} drafts, mode {setup.mode}, {graphs}"
            for what, step in steps.items():
                yield f"{what}: {name}", setup, step.build(setup)
            for rows, padded in ((0, 0), (0, 2), (1, 0), (1, 1), (setup.capture_rows // (1 + spec), 0)):
                yield (
                    f"capture of {rows} and {padded} rows: {name}",
                    setup,
                    captured_step(setup, rows, padded),
                )


CASES = {name: (setup, call) for name, setup, call in cases()}


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_built_by_the_rules(name: str) -> None:
    setup, call = CASES[name]
    port, rules = InProcess(load("impl"), "cpu"), RulesExecutor()
    port.begin()
    rules.begin()
    for step in (setup.construct(), call):
        actual = port.execute(step)
        rules.execute(step)
        assert actual is not None
        assert outcome_difference(rules.expected[-1], actual, places=False) is None
    assert isinstance(rules.expected[-1], Returned)
