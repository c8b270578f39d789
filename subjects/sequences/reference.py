"""Fresh runs, which are the reference; the canary, which shows that a model's weights do not hide the state; and how much correct results differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from oracle.sequences import Tokens, distance
from statecheck.subject.subject import NotOffered, NotVerified
from subjects.sequences.library import Handle, Library

_HISTORIES: tuple[Tokens, ...] = ((1, 2, 3, 4, 5, 6), (9, 7, 5, 3, 1, 2), (4, 4, 8, 8))
_NEXT = 5
MOVES = 10
"""By how many tolerances the logits have to move when the history is left out."""
_CONTROLS: tuple[Tokens, ...] = (
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    tuple((7 * at + 3) % 15 + 1 for at in range(40)),
    (4, 4, 8, 8, 1),
)
_PIECES = (1, 3)
"""Numbers of tokens of the pieces in which the controls come."""
TIMES_NOISE = 20
"""How many times what controls differ by results may: the controls are six results, and a campaign compares thousands. Measured on all models of
transformers 5.24.0, mlx-lm 0.32.2 and llama.cpp 2026.10.11549 that show no defect, controls differ by 0 to 1e-4 of the scale."""
MOST_EXACT = 2
"""The tolerance of a model is never smaller than this part of the port's: rounding that the controls do not meet needs some room.
llama.cpp computes 64 tokens or more of a batch with another kernel than fewer: results of plamo2 and qwen35moe in pieces below 64 tokens are
equal, whatever the pieces, and differ by up to 0.0032 of the scale from those of 95 or 71 tokens at once. Controls have 40 tokens at most."""

ROUNDINGS = (0.25, 3.0)
"""With weights of 16 bits, controls that differ by more than the first part of the tolerance leave too little room for other roundings, and those that differ by more
than so many times the tolerance are no rounding."""


class Reference:
    """Fresh runs of a model.

    Args:
        features: of `new`; those that change what is right are the reference's, too.
    """

    def __init__(self, library: Library, model: str, seed: int, features: Mapping[str, Any]) -> None:
        self._library, self._model, self._seed = library, model, seed
        self._features = self._given(features)
        self.tolerance = library.port.limit(self._features)
        """Of this model, once `require_verified` has returned; until then the largest with its features."""

    def logits(self, tokens: Tokens, features: Mapping[str, Any]) -> list[float]:
        """The logits of a fresh run over tokens."""
        given = self._given(features)

        def run(context: Handle) -> Any:
            return self._call("extend", context, [(0, list(tokens))], **given)[0]

        found: list[float] = self._remembered("extend", tokens, given, run)
        return found

    def greedy(self, tokens: Tokens, n: int) -> Tokens:
        """The `n` tokens with the largest logits of fresh runs, each behind those before it."""
        found: Tokens = ()
        while len(found) < n:
            fresh = self.logits((*tokens, *found), {})
            found += (max(range(len(fresh)), key=fresh.__getitem__),)
        return found

    def generated(
        self, tokens: Tokens, n: int, features: Mapping[str, Any], ends: Mapping[str, int]
    ) -> Tokens | None:
        """The tokens of a fresh `generate`, None where no feature of it changes which tokens are right.

        Args:
            ends: `stop` with the stop token, or nothing.
        """
        given = self._given(features)
        if not given:
            return None
        given |= ends

        def run(context: Handle) -> Any:
            self._call("extend", context, [(0, list(tokens))])
            return tuple(self._call("generate", context, 0, n, **given))

        found: Tokens = self._remembered(f"generate {n}", tokens, given, run)
        return found

    def distance(self, tokens: Tokens, seen: Sequence[float], features: Mapping[str, Any]) -> float:
        """Between logits and those of a fresh run over the tokens."""
        return distance(seen, self.logits(tokens, features))

    def require_verified(self) -> None:
        """Refuse a model whose logits do not depend enough on the history.

        Raises:
            NotVerified: they do not, or a fresh run fails.
            NotOffered: the library does not offer the model. Nothing is said of a model without the features that need a larger tolerance than
                the port's either, if it cannot be verified with them, or if controls differ by more than roundings leave room for.
        """
        rounds = self.tolerance > self._library.port.tolerance
        refused = NotOffered if rounds else NotVerified
        moved = self._of_this_model("canary", self._moved)
        if isinstance(moved, str):
            raise refused(f"{self._named}: not verified: a fresh run ends in {moved}")
        if not moved < float("inf"):
            raise refused(
                f"{self._named}: not verified: logits of fresh runs are no finite numbers, or not of one size"
            )
        if moved < MOVES * self.tolerance:
            raise refused(
                f"{self._named}: not verified: without the history the logits move by {moved:.2g} of their scale,"
                f" but should by {MOVES * self.tolerance:g} or more"
            )
        controls = self._of_this_model("controls", lambda: [*self._controls()])
        least, most = (times * self.tolerance for times in ROUNDINGS)
        rough = max((distance for distance in controls if least < distance <= most), default=0.0)
        if rounds and rough:
            raise NotOffered(f"{self._named}: controls differ by up to {rough:.2g} of the logits' scale")
        # With weights of 16 bits a few controls do not show how far roundings go: rows behind padding rotate their keys by other angles.
        self.tolerance = self.tolerance if rounds else self._measured_tolerance(controls)

    def _of_this_model(self, name: str, measured: Callable[[], Any]) -> Any:
        """What was measured of the model with its features, once."""
        key = (name, self._model, self._seed, *sorted(self._features.items()))
        if key not in self._library.fresh:
            self._library.fresh[key] = measured()
        return self._library.fresh[key]

    def _measured_tolerance(self, controls: Sequence[float]) -> float:
        """As many times as `TIMES_NOISE` what controls differ by, at most the port's tolerance with these features.

        A control that differs by more than that shows a defect, and says nothing of rounding.
        """
        most = self.tolerance
        noise = [distance for distance in controls if distance <= most]
        return min(most, max(most / MOST_EXACT, TIMES_NOISE * max(noise, default=most)))

    def _controls(self) -> Iterator[float]:
        """Distances between fresh runs, and runs of the same tokens in a batch of other shape, and in pieces. A run that raises is left out."""
        fresh = [self.logits(tokens, {}) for tokens in _CONTROLS]

        def together(context: Handle) -> list[float]:
            rows = [(number, list(tokens)) for number, tokens in enumerate(_CONTROLS)]
            return list(map(distance, self._call("extend", context, rows), fresh))

        def in_pieces(context: Handle) -> list[float]:
            found = []
            for number, (tokens, wanted) in enumerate(zip(_CONTROLS, fresh, strict=True)):
                size, seen = _PIECES[number % len(_PIECES)], wanted
                for first in range(0, len(tokens), size):
                    piece = list(tokens[first : first + size])
                    seen = self._call("extend", context, [(number, piece)])[0]
                found.append(distance(seen, wanted))
            return found

        for run in (together, in_pieces):
            with suppress(Exception):
                context = self._library.new(self._model, self._seed, self._features)
                try:
                    yield from run(context)
                finally:
                    self._call("close", context)

    @property
    def _named(self) -> str:
        """The model, with the features that make it another one."""
        features = ", ".join(f"{name} = {value!r}" for name, value in sorted(self._features.items()))
        return f"{self._model} with {features}" if features else self._model

    def _moved(self) -> float | str:
        """By how much the logits move without the history; where a fresh run fails, how."""
        try:
            alone = self.logits((_NEXT,), {})
            return min(distance(alone, self.logits((*history, _NEXT), {})) for history in _HISTORIES)
        except NotOffered:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def _given(self, features: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value for name, value in features.items() if name in self._library.port.given_to_reference
        }

    def _remembered(self, kind: str, tokens: Tokens, given: Mapping[str, Any], run: Any) -> Any:
        features = (*sorted(self._features.items()), *sorted(given.items()))
        key = (kind, self._model, self._seed, features, tokens)
        if key not in self._library.fresh:
            context = self._library.new(self._model, self._seed, self._features)
            try:
                self._library.fresh[key] = run(context)
            finally:
                self._call("close", context)
        return self._library.fresh[key]

    def _call(self, name: str, context: Handle, *arguments: Any, **features: Any) -> Any:
        return self._library.call(self._model, name, context, *arguments, **features)
