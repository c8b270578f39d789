"""Steps of an engine as laws see them, which are right, and changes that make them wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.named_states import next_token, states_after
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep

PROMPT = (1, 2, 3, 4)
STATES = states_after(PROMPT)
NEXT = next_token(STATES[-1])
Change = Callable[[ObservedStep], None]


def laws() -> LiveLaws:
    """The laws of an engine with blocks of four tokens, in which a request of four tokens comes in."""
    made = LiveLaws((4, 8), window=2, num_blocks=8)
    made.add("r0", PROMPT)
    return made


def prefill() -> ObservedStep:
    """A step that computes the prompt: attention has block 1, states are in block 2, and both may be hit."""
    group = GroupAccess(1, False, (2, 2), ((0, 0),), (0,), (2,), (0, 1, 2, 3))
    owners = [("r0", 0, 0, 1), ("r0", 1, 0, 2)]
    return ObservedStep(
        scheduled={"r0": Decided(0, 4, 0, begins=True)},
        rows=[ForwardRow("r0", PROMPT, keys=((),), groups=[group])],
        outputs={"r0": (NEXT,)},
        owners=owners,
        owners_after=owners,
        references=[(1, 1), (2, 1)],
        free=5,
        slots={"r0": 0},
        published=[
            (0, 1, "r0", 4, [("keys", tuple(STATES))]),
            (1, 2, "r0", 4, [("conv", tuple(STATES[2:])), ("temporal", STATES[3])]),
        ],
    )


def of_row(number: int, **changed: Any) -> Change:
    def change(seen: ObservedStep) -> None:
        rows = list(seen.rows)
        rows[number] = replace(rows[number], **changed)
        seen.rows = rows

    return change


def of_group(number: int, **changed: Any) -> Change:
    def change(seen: ObservedStep) -> None:
        seen.rows[number].groups[0] = replace(seen.rows[number].groups[0], **changed)

    return change


def of_step(**changed: Any) -> Change:
    def change(seen: ObservedStep) -> None:
        for name, value in changed.items():
            setattr(seen, name, value)

    return change


def about(
    request: str, tokens: int, found: tuple[Any, ...], group: int, block: int, conv: bool = False
) -> dict[str, Any]:
    return {
        "request": request,
        "tokens": tokens,
        "found": found,
        "conv": conv,
        "group": group,
        "block": block,
    }
