"""Numbers for prefixes: what a recurrent state stands for is the sequence of tokens behind it."""

from collections.abc import Iterable

from oracle.rules import rule


class Prefixes:
    """Equal sequences of tokens have equal numbers, different ones different numbers; the empty one is 0.

    The state after a prefix is a value identified by that prefix, whichever request computed it, in whatever steps.
    Source: contract 2.1, S_n and C_n.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._parents = [0]
        self._lengths = [0]
        self._tokens = [0]

    def extended(self, prefix: int, token: int) -> int:
        """The prefix with one more token."""
        key = (prefix, token)
        if key not in self._numbers:
            self._numbers[key] = len(self._parents)
            self._parents.append(prefix)
            self._lengths.append(self._lengths[prefix] + 1)
            self._tokens.append(token)
        return self._numbers[key]

    def path(self, prefix: int, tokens: Iterable[int]) -> list[int]:
        """The prefixes after each of `tokens`, which follow `prefix`."""
        prefixes = []
        for token in tokens:
            prefix = self.extended(prefix, token)
            prefixes.append(prefix)
        return prefixes

    def length(self, prefix: int) -> int:
        """How many tokens it has."""
        return self._lengths[prefix]

    def parent(self, prefix: int) -> int:
        """The prefix without its last token."""
        return self._parents[prefix]

    def tokens(self, prefix: int) -> list[int]:
        """The tokens that it is a number for."""
        tokens = []
        while prefix:
            tokens.append(self._tokens[prefix])
            prefix = self._parents[prefix]
        return tokens[::-1]

    @rule
    def last(self, prefix: int, count: int) -> list[int]:
        """The prefixes that end with each of its last `count` tokens, oldest first; 0 for tokens before the first.

        These identify the rows of a conv window: a token's conv input depends on all tokens up to it.
        """
        prefixes = []
        for _ in range(count):
            prefixes.append(prefix)
            prefix = self._parents[prefix]
        return prefixes[::-1]
