"""The rule that a failing case broke, and where it stands."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from oracle.align.decisions import after_step, after_v1_steps, after_v2_steps
from statecheck.case import Case
from statecheck.case.cause import cause_of
from statecheck.reference import rule_for

_BETTER_SAID_BY = dict.fromkeys((after_v1_steps, after_v2_steps), after_step)
"""Rules that only say for which rows another one decides."""
_SOURCE = re.compile(r"\bSource:\s+(.*?)\.?\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """A rule in a sentence or two, and its place in the documents or the contract, or in the oracle."""

    words: str
    source: str


def rule_of(case: Case) -> Rule | None:
    """The rule of the call that went wrong first; None where there is none, or it has no words."""
    cause = cause_of(case)
    rule = rule_for(cause.function)
    if rule is None:
        return None
    words = (inspect.getdoc(_BETTER_SAID_BY.get(rule, rule)) or "").partition("\n\n")[0]
    words = " ".join(words.partition("Source:")[0].split())
    source = _SOURCE.search(inspect.getdoc(rule) or "")
    named = f"`{rule.__module__}.{rule.__name__}`" if source is None else " ".join(source[1].split())
    named += f"; PROTOCOL.md, `{cause.own}`" if cause.own else ""
    return Rule(words, named) if words else None
