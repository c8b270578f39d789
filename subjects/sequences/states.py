"""The explanation of a failing case: the first call, layer and state in which a library differs from fresh runs.

Of libraries that do not show their states it is the first layer whose output differs, by fewer layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from oracle.sequences import Place, SequenceLaws, SequenceTokens, Tokens
from statecheck.case import Case
from statecheck.case.values import Call, Record, Returned
from statecheck.subject.subject import NotOffered
from subjects.sequences.library import Handle, Library
from subjects.sequences.serving import FAILED

NamedStates = Sequence[tuple[str, Sequence[float]]]
"""The states of a sequence by name, in the order of the layers."""
_WITH_FEATURES = ("extend", "generate")


class StateReplay:
    """Takes the calls of a case once more, and reads states behind each.

    Args:
        made: arguments of the context.
    """

    def __init__(self, library: Library, made: Mapping[str, Any]) -> None:
        self._library, self._model, self._seed = library, made["model"], made["seed"]
        self._features = dict(made["features"])
        self._contexts: dict[int, Handle] = {}
        self.tokens = SequenceTokens()

    def take(self, call: Call, generated: Tokens) -> Iterator[tuple[Place, str]]:
        """Make a call; each sequence that changed and has a state that differs, with a sentence.

        Args:
            generated: the tokens that the library chose in the case.
        """
        name, named = call.function.rpartition(".")[2], dict(call.named)
        named.pop("self", None)
        context, features = named.pop("context"), dict(named.pop("features", {}))
        if named.pop("stop", 0) and generated and len(generated) < named["n"]:
            features["stop"] = generated[-1]
        before = dict(self.tokens.tokens)
        given = [list(value) if isinstance(value, tuple) else value for value in named.values()]
        happened = self._call(name, context, *given, **features) is not FAILED
        if happened:
            self._follow(name, context, named, generated)
        # Also of those that have the same tokens as before, such as one that is loaded onto itself.
        touched = {number for number, _ in named.get("rows", ())}
        touched |= {named[key] for key in ("sequence", "source", "target") if key in named}
        for place, tokens in self.tokens.tokens.items():
            if before.get(place) != tokens or (place[0] == context and place[1] in touched):
                difference = self._difference(place, tokens)
                if difference:
                    yield place, difference

    def _follow(self, name: str, context: int, named: Mapping[str, Any], generated: Tokens) -> None:
        if name == "extend":
            self.tokens.extend(context, [(number, tuple(tokens)) for number, tokens in named["rows"]])
        elif name == "generate":
            length = self._call("length", context, named["sequence"])
            self.tokens.generate(context, named["sequence"], generated, length)
        elif name == "cancel":
            length = self._call("length", context, named["sequence"])
            self.tokens.cancel(context, named["sequence"], tuple(named["tokens"]), length)
        else:
            getattr(self.tokens, name)(context, *named.values())

    def _difference(self, place: Place, tokens: Tokens) -> str:
        seen = self._call("states", place[0], place[1])
        fresh = self._library.new(self._model, self._seed, self._given())
        self._library.call(self._model, "extend", fresh, [(0, list(tokens))])
        wanted = self._library.call(self._model, "states", fresh, 0)
        self._library.call(self._model, "close", fresh)
        return first_different(seen, wanted, self._library.port.limit(self._features))

    def _given(self) -> dict[str, Any]:
        names = self._library.port.given_to_reference
        return {name: value for name, value in self._features.items() if name in names}

    def _call(self, name: str, number: int, *arguments: Any, **features: Any) -> Any:
        if number not in self._contexts:
            self._contexts[number] = self._library.new(self._model, self._seed, self._features)
        given = features if name in _WITH_FEATURES else {}
        return self._library.call(self._model, name, self._contexts[number], *arguments, **given)


def first_difference(library: Library, case: Case) -> str:
    """The first call behind which a state differs, and the first layer; "" where no state is known to differ."""
    if not library.offers("states"):
        return ""
    made, *calls = case.calls
    library.begin(case.model)
    replay = StateReplay(library, made.named)
    for number, call in enumerate(calls, 1):
        try:
            for place, difference in replay.take(call, _generated(case, number)):
                behind = f"Behind call {number}, {call.function}, sequence {place[1]}"
                return (
                    f"{behind}: {difference}. Behind the calls before it all states agreed with fresh runs."
                )
        except NotOffered:
            return ""
        except Exception as error:
            return f"States agreed with fresh runs until call {number}, {call.function}, raised {type(error).__name__}."
    return "All states agreed with fresh runs."


def first_different(seen: NamedStates, wanted: NamedStates, tolerance: float) -> str:
    """The first state that differs by more than the tolerance, as a share of its largest number; "" for none."""
    there = dict(seen)
    for name, numbers in wanted:
        if name not in there:
            return f"{name} is missing"
        if len(there[name]) != len(numbers):
            return f"{name} has {len(there[name])} numbers, and that of a fresh run {len(numbers)}"
        largest = max(map(abs, numbers), default=0.0)
        far = max(
            (abs(number - fresh) for number, fresh in zip(there[name], numbers, strict=True)), default=0.0
        )
        if not far <= tolerance * largest:
            share = far / largest if largest else math.inf
            return f"{name} differs from a fresh run's by {share:.2g} of its largest number"
    return ""


def _generated(case: Case, number: int) -> Tokens:
    outcome = case.actual[number]
    value: Any = outcome.value if isinstance(outcome, Returned) else None
    return tuple(value["generated"]) if value is not None else ()


LAYERS = "layers"
"""The feature whose values are numbers of layers; layers have the same weights with any number of them."""


class Scenarios(Protocol):
    """Makes a scenario, whose methods are the operations."""

    def __call__(self, *, model: str, seed: int, features: Mapping[str, Any]) -> Any: ...


def first_layer(library: Library, scenarios: Scenarios, case: Case) -> str:
    """With how many layers the calls of a case fail first; "" where the port has no such feature, or the case fails with none."""
    made, *calls = case.calls
    numbers = sorted(library.features(case.model, "new").get(LAYERS, ()))
    if LAYERS not in library.port.given_to_reference or len(numbers) < 2:
        return ""
    right: list[int] = []
    for number in numbers:
        named = {**made.named, "features": {**made.named["features"], LAYERS: number}}
        try:
            if _fails(scenarios, named, calls):
                agrees = f", and agree with {right[-1]}" if right else ""
                return f"The same calls fail with {number} of {numbers[-1]} layers{agrees}: the first layer that differs is number {number - 1}, counted from 0."
            right.append(number)
        except NotOffered:
            continue
    return ""


def _fails(scenarios: Scenarios, made: Mapping[str, Any], calls: Sequence[Call]) -> bool:
    """Whether a call breaks a law, or the library fails."""
    try:
        scenario = scenarios(**made)
        return any(_breaks(scenario, call) for call in calls)
    except NotOffered:
        raise
    except Exception:
        return True


def _breaks(scenario: Any, call: Call) -> bool:
    named = dict(call.named)
    named.pop("self", None)
    step: Record = getattr(scenario, call.function.rpartition(".")[2])(**named)
    broken: Any = step["broken"]
    return dict(broken.fields) != vars(SequenceLaws())
