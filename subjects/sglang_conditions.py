"""Conditions that entries of `sglang_known.toml` name. They need no SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Record, Returned
from statecheck.subject.deviation import Condition

_INTERVAL = 4
"""Tokens between two boundaries, of all scenarios."""


def _kept_in_the_same_slot(case: Case, _: Profile) -> bool:
    """What may be hit as a request's tokens up to a boundary holds its state at the next one, and a prefill ran beside the decode that passed it."""
    settings = dict(case.calls[0].named["settings"].fields)
    if settings.get("strategy") != "extra_buffer" or not settings.get("overlap"):
        return False
    wrong = next((dict(about) for law, *_, about in _findings(case) if law == "published"), {})
    found = wrong.get("found", ())
    name, tokens = wrong.get("request", ""), wrong.get("tokens", 0)
    if not found or any((owner, tuple(more)) != (name, ()) for owner, _, more in found):
        return False
    # Of a convolution, the last of its rows is the state's.
    later = max(count for _, count, _ in found) - tokens
    return later == _INTERVAL and _passed_beside_a_prefill(case, name, tokens - 1)


def _findings(case: Case) -> tuple[Any, ...]:
    last = case.actual[-1] if case.actual else None
    step = last.value if isinstance(last, Returned) else None
    return tuple(step["findings"]) if isinstance(step, Record) and step.type == "RadixStep" else ()


def _passed_beside_a_prefill(case: Case, name: str, computed: int) -> bool:
    """Whether a decode of the request after so many tokens came in a step whose predecessor or successor was no decode of it."""
    ended = [one.value for one in case.actual if isinstance(one, Returned)]
    steps = [dict(one["scheduled"]) for one in ended if isinstance(one, Record) and one.type == "RadixStep"]
    rows = [dict(step[name]) if name in step else {"tokens": 0, "begins": False} for step in steps]
    return any(
        row["tokens"] == 1 and row["computed"] == computed and (beside["begins"] or beside["tokens"] != 1)
        for pair in pairwise(rows)
        for beside, row in (pair, pair[::-1])
    )


CONDITIONS: Mapping[str, Condition] = {"kept_in_the_same_slot": Condition(outcome=_kept_in_the_same_slot)}
