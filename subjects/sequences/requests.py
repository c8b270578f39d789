"""Requests to a server of sequences, as conditions of known defects ask for them: which prompts came to which context, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oracle.sequences import SequenceTokens, Tokens
from statecheck.case import Case
from statecheck.case.values import Record, Returned

_TAIL = 4
"""llama-server keeps a checkpoint that many tokens before the end of a prompt."""


@dataclass(frozen=True)
class Request:
    """A prompt that came to a server.

    Args:
        context: the server's number.
        ahead: whether more than one token is generated behind the prompt.
    """

    context: int
    prompt: Tokens
    ahead: bool

    def continues(self, other: Request | None) -> bool:
        """Whether it goes on exactly where the other one left its slot."""
        if other is None or other.ahead or len(other.prompt) == len(self.prompt):
            return False
        return self.prompt[: len(other.prompt)] == other.prompt


@dataclass
class _Prompts:
    """The requests to a server so far, by the first tokens of their prompts.

    Args:
        count: how many.
        last: the last one with that first token.
        single: first tokens of prompts of one token.
        kept: first tokens of which there is a checkpoint that holds nothing else.
        others: first tokens of prompts that may have come to a slot with such a checkpoint of another first token.
    """

    count: int = 0
    last: dict[int, Request] = field(default_factory=dict)
    single: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)

    def add(self, request: Request, slots: int) -> None:
        """A request takes an empty slot as long as there is one."""
        first, length = request.prompt[0], len(request.prompt)
        self.count += 1
        self.last[first] = request
        if self.count > slots and self.kept - {first}:
            self.others.add(first)
        if length == 1 + _TAIL or (length > 1 and first in self.single):
            self.kept.add(first)
        if length == 1:
            self.single.add(first)


def checkpoint_of_another_token(case: Case) -> bool:
    """A prompt has to go back behind another one with its first token, and that came behind a checkpoint of another first token.

    The checkpoint holds one token: a prompt of five tokens leaves it, and one that goes on behind a prompt of one.
    """
    servers: dict[int, _Prompts] = {}
    slots = _slots(case)
    for request in _requests(case):
        server, first = servers.setdefault(request.context, _Prompts()), request.prompt[0]
        if first in server.others and not request.continues(server.last.get(first)):
            return True
        server.add(request, slots)
    return False


def _slots(case: Case) -> int:
    """Of each server; none where requests or loads name their slot."""
    named = any(_features(call.named).get("slot") or "load" in call.function for call in case.calls)
    return 0 if named else int(_features(case.calls[0].named).get("slots", 4))


def _requests(case: Case) -> Iterator[Request]:
    """Those that come at once are repeated, since they come in any order."""
    tokens = SequenceTokens()
    for call, outcome in zip(case.calls[1:], case.actual[1:], strict=False):
        name, given = call.function.rpartition(".")[2], {**call.named}
        context, features = given.pop("context", 0), given.pop("features", {})
        value = outcome.value if isinstance(outcome, Returned) else None
        step = value if isinstance(value, Record) else None
        if name == "extend":
            prompts = tokens.extend(context, [(number, tuple(row)) for number, row in given["rows"]])
            ahead = bool(features.get("ahead"))
            for _ in range(1 + bool(features.get("at_once"))):
                yield from (Request(context, prompt, ahead) for prompt in prompts)
        elif name == "generate":
            place = context, given["sequence"]
            yield Request(context, tokens.of(place), given["n"] > 1)
            tokens.generate(context, place[1], *_generated(step, place))
        elif step is None or step["happened"]:
            given.pop("self", None)
            getattr(tokens, name)(context, **given)


def _generated(step: Record | None, place: tuple[int, int]) -> tuple[Tokens, int | None]:
    """The tokens, and the sequence's length behind them."""
    if step is None:
        return (), None
    lengths: Any = step["lengths"]
    chosen: Any = step["generated"]
    found = {(context, sequence): int(count) for context, sequence, count in lengths}
    return tuple(int(token) for token in chosen), found.get(place)


def _features(named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named.get("features", {})
    return found
