"""Conditions that files of known defects of sequences may name, such as `models:mamba*,jamba features:snapshots history:long-rollback`.

What happened to the sequences of a case is read of its calls alone, and how many tokens sequences have by then of their results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from oracle.sequences import PACKED_ROWS, PADS, SHARED_TOKENS, SequenceTokens, Tokens
from statecheck.case import Case
from statecheck.case.bucket import last_scenario
from statecheck.case.values import Call, Outcome, Record, Returned
from statecheck.sequences import ANOTHER_MODEL, PARTS
from statecheck.subject.known import Condition
from statecheck.subject.profile import Profile

PROMPTS_BETWEEN: Mapping[str, Tokens] = {
    "infill": (29, 1, 30, 2, 31),
    "embedding": (7, 8, 9),
    "image": (7, 15, 9),
}
"""The tokens of requests to llama-server that come between."""
PICTURES, POSITIONS = (14, 15), 4
"""Tokens that stand for a picture each in prompts of llama-server with images, and the positions of a picture."""
_TAIL = 4
"""llama-server keeps a checkpoint that many tokens before the end of a prompt."""


def positions(tokens: Sequence[int]) -> Tokens:
    """What a server with images holds for tokens: a picture's positions are negative, and the token's text is behind them."""
    return tuple(
        held for token in tokens for held in (*([-token] * POSITIONS if token in PICTURES else ()), token)
    )


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
    named = any(
        _features(call.named).get("slot") or "load" in call.function or call.function.endswith(".cancel")
        for call in case.calls
    )
    return 0 if named else int(_features(case.calls[0].named).get("slots", 4))


def _requests(case: Case) -> Iterator[Request]:
    """Requests of the case; those of one call are repeated, since their order is free."""
    tokens = SequenceTokens()
    held = positions if _features(case.calls[0].named).get("images") else tuple
    for call, outcome in zip(case.calls[1:], case.actual[1:], strict=False):
        name, given = call.function.rpartition(".")[2], {**call.named}
        context, features = given.pop("context", 0), given.pop("features", {})
        value = outcome.value if isinstance(outcome, Returned) else None
        step = value if isinstance(value, Record) else None
        if name == "extend":
            prompts = tokens.extend(context, [(number, tuple(row)) for number, row in given["rows"]])
            ahead = bool(features.get("ahead"))
            between = PROMPTS_BETWEEN.get(features.get("between", ""))
            for _ in range(1 + bool(features.get("at_once"))):
                if between:
                    yield Request(context, held(between), ahead=True)
                yield from (Request(context, held(prompt), ahead) for prompt in prompts)
        elif name == "generate":
            place = context, given["sequence"]
            yield Request(context, held(tokens.of(place)), given["n"] > 1)
            tokens.generate(context, place[1], *_generated(step, place))
        elif name == "cancel":
            whole = (*tokens.of((context, given["sequence"])), *given["tokens"])
            yield Request(context, held(whole), ahead=True)
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


UNCROPPABLE = "crop: a cache was cropped that says that it cannot be"
"""An effect that the port of transformers counts; the port cannot be imported where the library is not installed."""
DROPPED = "reset: the cache of a dropped sequence was reset"
RESET = "reset: a sequence began with a cache that was reset"
"""Effects that the port of transformers counts."""
ABORTED = "cancel: a decode was aborted"
"""An effect that the port of llama.cpp counts."""
Place = tuple[int, int]
"""A context's number, and a sequence's number in it."""


@dataclass
class _Kept:
    """By place, how many of its last tokens may be taken back one by one: all but the first of its last decode."""

    tokens: dict[Place, int] = field(default_factory=dict)
    rolled_back: set[Place] = field(default_factory=set)
    """Places whose last operation was a rollback."""

    def settle(self, place: Place, tokens: int) -> None:
        self.tokens[place] = tokens
        self.rolled_back.discard(place)


def _operations(case: Case) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Name, arguments, and whether it happened."""
    for number, call in enumerate(case.calls):
        outcome = case.actual[number] if number < len(case.actual) else None
        value = outcome.value if isinstance(outcome, Returned) else None
        happened = not (isinstance(value, Record) and value.type == "SequenceStep" and not value["happened"])
        yield call.function.rpartition(".")[2], call.named, happened


def _rows(arguments: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Sequences and numbers of tokens."""
    return [(number, len(tokens)) for number, tokens in arguments["rows"]]


def _followed(case: Case, wanted: Callable[[str, Mapping[str, Any], _Kept], bool]) -> bool:
    """Whether an operation that happened is wanted, by what was kept before it."""
    kept = _Kept()
    for name, arguments, happened in _operations(case):
        if happened and wanted(name, arguments, kept):
            return True
        if happened:
            _follow(name, arguments, kept)
    return False


def _follow(name: str, arguments: Mapping[str, Any], kept: _Kept) -> None:
    context = arguments.get("context", 0)
    if name == "extend":
        for number, tokens in _rows(arguments):
            kept.settle((context, number), tokens - 1)
    elif name == "roll_back":
        place = context, arguments["sequence"]
        kept.tokens[place] = kept.tokens.get(place, 0) - arguments["n"]
        kept.rolled_back.add(place)
    elif name in ("fork", "load", "load_damaged", "generate", "cancel"):
        kept.settle((context, arguments["target" if name == "fork" else "sequence"]), 0)


def long_rollback(case: Case) -> bool:
    """A rollback that reaches the beginning of the sequence's last decode, or a sequence without one: forked, or loaded."""

    def wanted(name: str, arguments: Mapping[str, Any], kept: _Kept) -> bool:
        place = arguments.get("context", 0), arguments.get("sequence", 0)
        return name == "roll_back" and arguments["n"] > kept.tokens.get(place, 0)

    return _followed(case, wanted)


def fork_after_rollback(case: Case) -> bool:
    """A fork of a sequence whose last operation was a rollback."""

    def wanted(name: str, arguments: Mapping[str, Any], kept: _Kept) -> bool:
        return name == "fork" and (arguments["context"], arguments["source"]) in kept.rolled_back

    return _followed(case, wanted)


def several_rows(case: Case) -> bool:
    """A batch of several rows."""
    return any(name == "extend" and len(arguments["rows"]) > 1 for name, arguments, _ in _operations(case))


def shared_tokens_behind_the_lowest(case: Case) -> bool:
    """Tokens were processed once for several sequences, of which the last is not the lowest.

    The first token of two sequences is mostly right: no decay shows in a state of zeros. What is written behind a table may reach what it computes.
    """
    return any(
        name == "extend"
        and happened
        and bool(_features(arguments).get(SHARED_TOKENS))
        and (sequences := [sequence for sequence, _ in _rows(arguments)])[-1] > min(sequences)
        for name, arguments, happened in _operations(case)
    )


def pending_copy(case: Case) -> bool:
    """Between a fork and the next decode of its context the target was saved, and loaded, or a state was loaded into the target or the source.

    Caches are separate: keys and values of a fork are copied at the next decode.
    """
    copies: set[tuple[Place, Place]] = set()
    saved: set[str] = set()
    if _features_of_contexts(case).get("unified"):
        return False
    for name, arguments, happened in _operations(case):
        context = arguments.get("context", 0)
        place = context, arguments.get("sequence", 0)
        if name == "extend":
            copies = {copy for copy in copies if copy[0][0] != context}
        elif happened and name == "fork":
            copies.add(((context, arguments["source"]), (context, arguments["target"])))
        elif happened and name == "save" and any(place == target for _, target in copies):
            saved.add(arguments["name"])
        elif (
            happened
            and name == "load"
            and (arguments["name"] in saved or any(place in copy for copy in copies))
        ):
            return True
    return False


def crop_of_an_uncroppable_cache(case: Case) -> bool:
    """A rollback, unchecked, of a cache whose `is_croppable` is false, which returned: the port counts it as an effect."""
    return _had_effect(case, UNCROPPABLE)


def _had_effect(case: Case, name: str) -> bool:
    steps = (step for outcome in case.actual if (step := _result(outcome)) is not None)
    return any(name in step["effects"] for step in steps)


def begins_with_a_reset_cache(case: Case) -> bool:
    """The last call begins one sequence, and the context has reset more caches than sequences began with: a call that raises counts no effects."""
    last = case.calls[-1].named
    own = [
        step["effects"]
        for call, outcome in zip(case.calls, case.actual, strict=False)
        if (step := _result(outcome)) is not None and call.named["context"] == last["context"]
    ]
    waiting = sum(DROPPED in effects for effects in own) - sum(RESET in effects for effects in own)
    begun = [len(extension.begun) for extension in extensions(case)]
    return waiting > 0 and begun[-1:] == [1] and not _features(last).get(PACKED_ROWS)


def aborted_decode(case: Case) -> bool:
    """A decode of llama.cpp was aborted: the port counts it as an effect."""
    return _had_effect(case, ABORTED)


def loaded_of_another_model(case: Case) -> bool:
    """A save of another model was loaded."""
    return any(
        happened and name == "load_damaged" and arguments.get("damage") == ANOTHER_MODEL
        for name, arguments, happened in _operations(case)
    )


def refused_load(case: Case) -> bool:
    """The last call goes on with a sequence for which a part of a save, or one of another model, was refused, or with a copy of it. No bytes are no part."""
    *before, (name, arguments, _) = _operations(case)
    partly: set[Place | str] = set()
    for earlier, given, happened in before:
        if earlier == "load_damaged" and not happened and given["damage"] in (*PARTS[1:], ANOTHER_MODEL):
            partly.add((given["context"], given["sequence"]))
        elif happened:
            _mark(_copies(earlier, given, partly), partly)
    sequences = (
        [number for number, _ in arguments["rows"]] if name == "extend" else [arguments.get("sequence")]
    )
    return any((arguments.get("context", 0), number) in partly for number in sequences)


def prompt_processed_twice(case: Case) -> bool:
    """`generate` got candidates together with the cache of a sequence and its whole prompt: in the last call, or before it for a sequence that it goes on with, or for the source of a copy."""
    *before, (name, arguments, _) = _operations(case)
    twice: set[Place | str] = set()
    for earlier, given, happened in before:
        if happened:
            _mark(_copies(earlier, given, twice), twice)
        if happened and earlier == "generate":
            again = _processes_again(given) or _is_continued(given, twice)
            _mark([((given["context"], given["sequence"]), again)], twice)
    if name == "generate":
        return _processes_again(arguments) or _is_continued(arguments, twice)
    return name == "extend" and any((arguments["context"], number) in twice for number, _ in _rows(arguments))


def _processes_again(arguments: Mapping[str, Any]) -> bool:
    features = arguments["features"]
    candidates = features.get("mode") in ("lookup", "assistant", "other assistant")
    return bool(candidates and features.get("history") == "continued, whole prompt")


def _is_continued(arguments: Mapping[str, Any], marked: Collection[Place | str]) -> bool:
    history = str(arguments["features"].get("history", ""))
    return history.startswith("continued") and (arguments["context"], arguments["sequence"]) in marked


def _features_of_contexts(case: Case) -> Mapping[str, Any]:
    """Of the contexts."""
    found: Mapping[str, Any] = case.calls[0].named.get("features", {}) if case.calls else {}
    return found


def padded_row(case: Case) -> bool:
    """The last call goes on with a sequence that was padded in an earlier one, or is a copy of such a sequence; or it generates beside longer prompts.

    A row of a batch is padded where another row is longer, or pads stand beside all rows. The padding stands behind the row's own tokens, so that the logits of that call are right.
    """
    *before, (name, arguments, _) = _operations(case)
    padded: set[Place | str] = set()
    for earlier, given, happened in before:
        if happened:
            _pad(earlier, given, padded)
    context = arguments.get("context", 0)
    if name == "extend":
        return any((context, number) in padded for number, _ in _rows(arguments))
    return name == "generate" and _beside_longer_prompts(arguments)


def _pad(name: str, arguments: Mapping[str, Any], padded: set[Place | str]) -> None:
    """Follow which sequences, and which saved states by their names, have taken padding in."""
    context = arguments.get("context", 0)
    copies = _copies(name, arguments, padded)
    if name == "extend":
        rows = _rows(arguments)
        longest = max(tokens for _, tokens in rows) + _features(arguments).get(PADS, 0)
        copies = [((context, number), True) for number, tokens in rows if tokens < longest]
    elif name == "generate":
        # The prompt is processed anew.
        copies = [((context, arguments["sequence"]), _beside_longer_prompts(arguments))]
    _mark(copies, padded)


def _copies(
    name: str, arguments: Mapping[str, Any], marked: Collection[Place | str]
) -> list[tuple[Place | str, bool]]:
    """Sequences and saved states that an operation replaces, and whether by one that is marked."""
    context = arguments.get("context", 0)
    place: Place = context, arguments.get("sequence", 0)
    if name == "fork":
        return [((context, arguments["target"]), (context, arguments["source"]) in marked)]
    if name == "save":
        return [(arguments["name"], place in marked)]
    if name == "load":
        return [(place, arguments["name"] in marked)]
    if name == "drop":
        return [(place, False)]
    if name == "reorder":
        return [((context, at), (context, source) in marked) for at, source in enumerate(arguments["order"])]
    return []


def _mark(copies: list[tuple[Place | str, bool]], marked: set[Place | str]) -> None:
    for target, is_marked in copies:
        (marked.add if is_marked else marked.discard)(target)


def _beside_longer_prompts(arguments: Mapping[str, Any]) -> bool:
    """Whether a prompt is processed in one batch with longer ones: the first neighbour is longer than the prompt itself."""
    features = arguments["features"]
    return bool(
        features.get("engine") == "BatchGenerator"
        and features.get("neighbours")
        and not features.get("late")
        and features.get("together") != 1
    )


def requests_at_once(case: Case) -> bool:
    """Requests for several sequences at the same time, or for a sequence and another request of a server."""
    return any(
        name == "extend"
        and arguments["features"].get("at_once")
        and len(arguments["rows"]) + (arguments["features"].get("between", "nothing") != "nothing") > 1
        for name, arguments, _ in _operations(case)
    )


HISTORIES: Mapping[str, Callable[[Case], bool]] = {
    "long-rollback": long_rollback,
    "fork-after-rollback": fork_after_rollback,
    "several-rows": several_rows,
    "shared-tokens-behind-the-lowest": shared_tokens_behind_the_lowest,
    "pending-copy": pending_copy,
    "padded-row": padded_row,
    "requests-at-once": requests_at_once,
    "crop-of-an-uncroppable-cache": crop_of_an_uncroppable_cache,
    "reset-cache": lambda case: _had_effect(case, RESET),
    "begins-with-a-reset-cache": begins_with_a_reset_cache,
    "aborted-decode": aborted_decode,
    "loaded-of-another-model": loaded_of_another_model,
    "refused-load": refused_load,
    "prompt-processed-twice": prompt_processed_twice,
    "checkpoint-of-another-token": checkpoint_of_another_token,
}
"""By name."""


UNEQUAL = "unequal"


@dataclass(frozen=True)
class Extension:
    """The rows of a call of `extend`, by how many tokens they have.

    Args:
        begun: of sequences that had no tokens.
        continued: of the others.
        before: how many tokens the sequences of these others had.
        pads: beside the tokens of the rows.
    """

    begun: tuple[int, ...]
    continued: tuple[int, ...]
    before: tuple[int, ...] = ()
    pads: int = 0


def _goes_on(case: Case, least: list[str]) -> bool:
    return any(count >= int(least[0]) for extension in extensions(case) for count in extension.continued)


def _has_rows(case: Case, wanted: list[str]) -> bool:
    return any(
        _are((*extension.begun, *extension.continued), wanted[0], extension.pads)
        for extension in extensions(case)
    )


def _begins(case: Case, wanted: list[str]) -> bool:
    return any(_are(extension.begun, wanted[0], extension.pads) for extension in extensions(case))


def _goes_on_beside_others(case: Case, wanted: list[str]) -> bool:
    count = int(wanted[0])
    merged = any(
        count in extension.before and len(extension.begun) + len(extension.continued) > 1
        for extension in extensions(case)
    )
    return merged or any(
        _operation(call) == "reorder" and count in _lengths(case, number).values()
        for number, call in enumerate(case.calls[: _failing(case) + 1])
    )


def _has_sequences(case: Case, least: list[str]) -> bool:
    return len({place for number in range(_failing(case) + 2) for place in _lengths(case, number)}) >= int(
        least[0]
    )


def _differs_by(case: Case, most: list[str]) -> bool:
    step = _result(case.actual[_failing(case)])
    distance: Any = 0.0 if step is None else step["distance"]
    return 0 < distance <= float(most[0])


def _has_length(case: Case, least: list[str]) -> bool:
    return any(count >= int(least[0]) for count in _lengths(case, _failing(case)).values())


def _has_new_rows_of(case: Case, wanted: list[str]) -> bool:
    """Of a call of `generate` for one token, too: a port may process the sequence again."""
    counts = [set(extension.begun) for extension in extensions(case)]
    for number, call in enumerate(case.calls[: _failing(case) + 1]):
        if _operation(call) == "generate" and call.named["n"] == 1:
            counts.append({_lengths(case, number).get(_place(call, call.named["sequence"]), 0)})
    return {int(wanted[0])} in counts


def _gets_one_more(case: Case, wanted: list[str]) -> bool:
    number = _failing(case)
    call, lengths = case.calls[number], _lengths(case, number)
    rows = [(call.named["sequence"], (0,))] if _operation(call) == "generate" else _extended(call)
    return any(
        len(tokens) == 1 and str(lengths.get(_place(call, sequence), 0)) in wanted
        for sequence, tokens in rows
    )


ROWS: Mapping[str, Callable[[Case, list[str]], bool]] = {
    "behind": _goes_on,
    "rows": _has_rows,
    "begins": _begins,
    "beside": _goes_on_beside_others,
    "sequences": _has_sequences,
    "by": _differs_by,
    "length": _has_length,
    "new-rows-of": _has_new_rows_of,
    "one-more": _gets_one_more,
}
"""Conditions about rows and lengths.

    behind:2                    a sequence that has tokens gets at least as many more in a call
    rows:2, rows:unequal        a call has at least as many rows; it has rows with different numbers of tokens, or pads beside them
    begins:2, begins:unequal    the same of the rows of sequences that have no tokens before the call
    beside:1                    a sequence with exactly that many tokens goes on beside other rows of a call, or is there in a reordering
    sequences:2                 at least as many sequences had tokens at some time
    by:0.05                     logits differ by no more than this share of their scale
    length:3                    a sequence has at least as many tokens when the failing call begins
    new-rows-of:1               all rows of a call that are of sequences without tokens have exactly that many tokens
    one-more:1,2                in the failing call a sequence with 1 or 2 tokens gets one more, or `generate` goes on behind it
"""


def extensions(case: Case) -> Iterator[Extension]:
    """The calls of `extend` up to the failing one, and those of `cancel`, which ends an extension of one row."""
    for number, call in enumerate(case.calls[: _failing(case) + 1]):
        if rows := _extended(call):
            lengths, named = _lengths(case, number), call.named
            begun = {sequence for sequence, _ in rows if (named["context"], sequence) not in lengths}
            yield Extension(
                tuple(len(tokens) for sequence, tokens in rows if sequence in begun),
                tuple(len(tokens) for sequence, tokens in rows if sequence not in begun),
                tuple(lengths[named["context"], sequence] for sequence, _ in rows if sequence not in begun),
                int(_features(named).get(PADS, 0)),
            )


def _extended(call: Call) -> list[tuple[Any, Any]]:
    """The sequences that a call extends, and their new tokens."""
    if _operation(call) == "cancel":
        return [(call.named["sequence"], call.named["tokens"])]
    return list(call.named["rows"]) if _operation(call) == "extend" else []


def _are(counts: tuple[int, ...], wanted: str, pads: int) -> bool:
    if wanted == UNEQUAL:
        return len(set(counts)) > 1 or (pads > 0 and len(counts) > 0)
    return len(counts) >= int(wanted)


def _lengths(case: Case, number: int) -> dict[tuple[Any, Any], int]:
    """How many tokens each sequence has when the call of that number begins."""
    step = _result(case.actual[number - 1]) if 0 < number <= len(case.actual) else None
    lengths: Any = () if step is None else step["lengths"]
    return {(context, sequence): count for context, sequence, count in lengths}


def _result(outcome: Outcome) -> Record | None:
    """The result of an operation; None where it raised, and of the call that makes the context."""
    found = outcome.value if isinstance(outcome, Returned) else None
    return found if isinstance(found, Record) and found.type == "SequenceStep" else None


def _failing(case: Case) -> int:
    """The number of the call that failed, the last one where that is not known."""
    call = case.failure.call if case.failure is not None else None
    return len(case.calls) - 1 if call is None else call


def _place(call: Call, sequence: Any) -> tuple[Any, Any]:
    return call.named["context"], sequence


def _operation(call: Call) -> str:
    return call.function.rpartition(".")[2]


def _has_model(case: Case, names: list[str]) -> bool:
    return any(fnmatchcase(case.model, name) for name in names)


def _has_calls(case: Case, names: list[str]) -> bool:
    made = {call.function.rpartition(".")[2] for call in case.calls}
    return made.issuperset(names)


def _has_features(case: Case, names: list[str]) -> bool:
    """Of the context, or of the call that shows the failure."""
    named = [case.calls[0].named, case.calls[-1].named] if case.calls else []
    given = {name: str(value) for arguments in named for name, value in _features(arguments).items()}
    return all(_is_given(given, *name.partition("=")) for name in names)


def _is_given(given: Mapping[str, str], name: str, equals: str, values: str) -> bool:
    return name in given and (
        not equals or any(fnmatchcase(given[name], value) for value in values.split("|"))
    )


def _has_defaults(case: Case, names: list[str]) -> bool:
    return not _has_others(case, names)


def _has_others(case: Case, names: list[str]) -> bool:
    """In the context, or in any call."""
    return any(name in names for call in case.calls for name in _features(call.named))


def _has_histories(case: Case, names: list[str]) -> bool:
    return all(HISTORIES[name](case) for name in names)


_PREFIXES: Mapping[str, Callable[[Case, list[str]], bool]] = {
    "models": _has_model,
    "calls": _has_calls,
    "features": _has_features,
    "default": _has_defaults,
    "other": _has_others,
    "history": _has_histories,
    **ROWS,
}


class _Named(Mapping[str, Condition]):
    """`models:a*,b` holds of a case whose model is one of these, `calls:fork,save` of one that makes all of these calls.

    `features:a,b=1|2` holds where the context, or the call that shows the failure, has a value other than the default for `a`, and 1 or 2
    (or what matches a pattern) for `b`; `default:a,b` where neither has another value, `other:a,b` where one of them has; `history:name` of a case with such a history,
    see `HISTORIES`; `rows:2` and others of rows and lengths, see `ROWS`. Several of them, with blanks between, hold together.
    """

    def __getitem__(self, name: str) -> Condition:
        parts = [part.partition(":") for part in name.split()]
        if not parts or not all(_is_known(prefix, names) for prefix, _, names in parts):
            raise KeyError(name)

        def holds(whole: Case, _: Profile) -> bool:
            case = last_scenario(whole)
            return all(_PREFIXES[prefix](case, names.split(",")) for prefix, _, names in parts)

        return Condition(inputs=holds)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(
            (*(f"{prefix}:NAME,..." for prefix in _PREFIXES), *(f"history:{name}" for name in HISTORIES))
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


def _is_known(prefix: str, names: str) -> bool:
    if prefix == "history":
        return all(name in HISTORIES for name in names.split(","))
    return prefix in _PREFIXES and bool(names)


CONDITIONS: Mapping[str, Condition] = _Named()
