"""The states of an engine's requests as they have to become, and whose one that was found is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oracle.lifecycle.named_states import (
    VOCABULARY,
    advanced,
    named_place,
    next_token,
    states_before,
    unnamed,
)

Found = tuple[str, int, tuple[int, ...]]
"""Whose state it is, after how many of its tokens, and after which other ones then: "" for zeros, "?" for a state of no request, and
`ANOTHER_PLACE` for a state that was written for another layer or as another kind of state."""
ANOTHER_PLACE = "@"


@dataclass
class LiveRequest:
    """A request as the laws know it: `tokens` and the `states` after them as they have to become, and how far it is computed."""

    id: str
    prompt: int
    tokens: list[int]
    states: list[int] = field(default_factory=list)
    computed: int = 0
    said: int = 0
    index: dict[int, dict[str, int]] = field(default_factory=dict, repr=False)
    """By state, the requests that come to it, and after how many tokens; of all requests of a scenario, where they have it in common."""
    vocabulary: int = field(default=VOCABULARY, repr=False)
    most: int | None = field(default=None, repr=False)
    """Tokens that it says at most; None where that is not known."""
    stop: int | None = field(default=None, repr=False)
    """The token that ends it."""
    weights: int = field(default=0, repr=False)
    """By number, those of the model that computes the states."""

    @property
    def end(self) -> int | None:
        """After how many tokens that it says it ends: behind its stop token, and after `most` at the latest; None where that is not known."""
        if self.most is None:
            return None
        said = (self.token(self.prompt + at) for at in range(self.most))
        return next((at + 1 for at, token in enumerate(said) if token == self.stop), self.most)

    def said_stop(self, count: int) -> bool:
        """Whether the last of the first `count` tokens that it says is its stop token."""
        return count > 0 and self.token(self.prompt + count - 1) == self.stop

    def state(self, count: int) -> int:
        """After its first `count` tokens, with those that it will come to say."""
        while len(self.states) < count:
            if len(self.states) == len(self.tokens):
                self.tokens.append(next_token(self.states[-1], self.vocabulary))
            before = self.states[-1] if self.states else 0
            self.states.append(advanced(before, self.tokens[len(self.states)], self.weights))
            self.index.setdefault(self.states[-1], {})[self.id] = len(self.states)
        return self.states[count - 1] if count else 0

    def token(self, at: int) -> int:
        """The token at place `at`, from 0."""
        self.state(at + 1)
        return self.tokens[at]

    def window(self, count: int, width: int) -> tuple[int, ...]:
        """The states of the last `width` of the first `count` tokens, 0 before the first."""
        return tuple(self.state(max(0, count - width + 1 + at)) for at in range(width))


@dataclass
class KnownStates:
    """Every state that a scenario has come to.

    Args:
        requests: by their names; see `add`.
        others: states of no request, and what they were made of: a state, and a token.
        vocabulary: how many tokens the model may say.
    """

    requests: dict[str, LiveRequest] = field(default_factory=dict)
    others: dict[int, tuple[int, int]] = field(default_factory=dict)
    vocabulary: int = VOCABULARY
    weights: int = 0
    _index: dict[int, dict[str, int]] = field(default_factory=dict, repr=False)
    _order: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, name: str, prompt: Sequence[int], most: int | None = None, stop: int | None = None) -> None:
        """A request comes in; see `LiveRequest` for `most` and `stop`."""
        self._order[name] = len(self._order)
        request = LiveRequest(name, len(prompt), list(prompt), index=self._index, vocabulary=self.vocabulary)
        request.most, request.stop, request.weights = most, stop, self.weights
        self.requests[name] = request

    def update_weights(self) -> None:
        """The model has other weights from now on: no state is what it was, and requests keep what they have said."""
        self.weights += 1
        self._index.clear()
        self.others.clear()
        for request in self.requests.values():
            del request.tokens[request.prompt + request.said :]
            request.states.clear()
            request.weights = self.weights

    def remember(self, state: int, tokens: Sequence[int], parents: Sequence[int] = ()) -> None:
        """What the forward makes of a state, drafts that are rejected among it; see `ForwardRow` for `parents`."""
        before = states_before(state, tokens, parents or range(-1, len(tokens) - 1), self.weights)
        for token, one in zip(tokens, before, strict=True):
            self.others[advanced(one, token, self.weights)] = one, token

    def found(self, state: int, first: str = "") -> Found:
        """Whose it is: that of request `first`, where several have it. See `state_in` for a state of another place."""
        if named_place(state) is not None:
            return ANOTHER_PLACE, 0, ()
        more: list[int] = []
        while True:
            if state == 0:
                return "", 0, tuple(more)
            owners = self._index.get(state)
            if owners:
                name = first if first in owners else min(owners, key=self._order.__getitem__)
                return name, owners[name], tuple(more)
            if state not in self.others:
                return "?", 0, ()
            state, token = self.others[state]
            more.insert(0, token)

    def named_by(self, tokens: Sequence[int]) -> tuple[str, int]:
        """A request that begins with these tokens, and how many they are; "" for one of no request."""
        for name, request in self.requests.items():
            # The tokens of a request are said when they are asked for.
            request.state(len(tokens))
            if request.tokens[: len(tokens)] == list(tokens):
                return name, len(tokens)
        return "", 0

    def meaning(self, state: int) -> str:
        """A state in words; of a state that was written for another place, which place that is."""
        place = named_place(state)
        if place is not None:
            layer, kind, element = place
            where = f"what was written as {kind} of layer {layer}" + (
                f", element {element}" if element else ""
            )
            return f"{where}: {self.meaning(unnamed(state))}"
        owner, count, more = self.found(state)
        if owner == "?":
            return "what is no request's state"
        known = f"the state after {tokens_in_words(count)} of {owner}" if owner else "zeros"
        return f"{known} and then {list(more)}" if more else known


def tokens_in_words(count: int, which: str = "") -> str:
    """Such as "3 tokens", or "1 computed token"."""
    return f"{count} {which}token{'s' if count != 1 else ''}"
