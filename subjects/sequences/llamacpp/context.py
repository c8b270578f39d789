"""A context of the C interface, and what happens to its sequences."""

from __future__ import annotations

import ctypes as c
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from statecheck.sequences import damaged
from subjects.sequences.conditions import ABORTED
from subjects.sequences.llamacpp.library import ABORT, LlamaCpp, batch_of

VOCABULARY = 32
UNDO = ("roll back", "checkpoint")
"""How drafts that were not accepted are taken back: by a rollback, or by the state before them and a decode of those that were."""
GUESSES = ("sequence", "model", "other model")
"""Where drafts come from: what followed the token before; the model itself, of which the last draft is made wrong; or a model with other weights."""
_ABORTED, _NODES = 2, 32
"""The code that an aborted decode returns; and nodes of the graph of a step: a micro-batch of a model of four layers has about a hundred."""
_COUPLED = "not supported when there are coupled sequences"
"""The library's message when it refuses a token of several sequences."""
_PARTIAL = 1
"""A state without what a rollback of attention's cells undoes anyway, as llama-server keeps it in its checkpoints."""


@dataclass(eq=False)
class LlamaContext:
    """A context of the library, its memory, and of each sequence its tokens and the logits behind them.

    Args:
        other: makes a model with other weights, for drafts.
        features: those that the context was made with.
        effects: how often what `EFFECTS` of the port names has happened.
    """

    library: LlamaCpp
    model: int
    other: Callable[[], int]
    context: int
    memory: int
    features: Mapping[str, Any] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    last: dict[int, list[float]] = field(default_factory=dict)

    def extend(
        self,
        rows: Sequence[tuple[int, Sequence[int]]],
        *,
        interleaved: bool = False,
        all_logits: bool = False,
        shared_tokens: bool = False,
    ) -> list[Any]:
        """Decode a batch: row by row, the rows' tokens by turns, or each token once for all rows."""
        names = tuple(sequence for sequence, _ in rows)
        entries = [
            (
                token,
                self._length(sequence) + at,
                names if shared_tokens else (sequence,),
                at + 1 == len(tokens) or all_logits,
            )
            for sequence, tokens in (rows[:1] if shared_tokens else rows)
            for at, token in enumerate(tokens)
        ]
        if interleaved:
            by_rows = list(entries)
            entries.sort(key=lambda entry: entry[1])
            self.effects["interleaved: tokens of rows came by turns"] += entries != by_rows
        begun = sum(sequence in self.tokens for sequence, _ in rows)
        self.effects["extend: rows that have tokens went on in one batch"] += begun > 1
        self.library.log.clear()
        try:
            self._decode(entries)
        except RuntimeError as error:
            if shared_tokens and any(_COUPLED in line for line in self.library.log):
                raise NotImplementedError(f"shared_tokens: {self.library.log[0].strip()}") from error
            raise
        self.effects["unified: several sequences were in one cache"] += (
            bool(self.features.get("unified")) and len(self.tokens.keys() | {row[0] for row in rows}) > 1
        )
        for sequence, tokens in rows:
            self.tokens.setdefault(sequence, []).extend(tokens)
        found = [
            [self._logits(place) for place, entry in enumerate(entries) if sequence in entry[2] and entry[3]]
            for sequence in names
        ]
        self.last |= {sequence: logits[-1] for sequence, logits in zip(names, found, strict=True)}
        return found if all_logits else [logits[-1] for logits in found]

    def fork(self, source: int, target: int) -> None:
        """Copy a sequence over another one."""
        self.drop(target)
        self.library.call("llama_memory_seq_cp", self.memory, source, target, -1, -1)
        self.tokens[target] = list(self.tokens[source])
        if source in self.last:
            self.last[target] = self.last[source]

    def roll_back(self, sequence: int, n: int) -> bool:
        """Remove the last positions; most recurrent memories refuse."""
        first = self._length(sequence) - n
        if not self.library.call("llama_memory_seq_rm", self.memory, sequence, first, -1):
            return False
        del self.tokens[sequence][first:]
        self.last.pop(sequence, None)
        self.effects["roll_back: positions were removed"] += first > 0
        self.effects["snapshots: positions were removed by snapshots"] += (
            first > 0 and self.features.get("snapshots", 0) > 0
        )
        return True

    def save(self, sequence: int) -> tuple[list[int], bytes]:
        """The sequence's state as the library writes it, with its tokens."""
        size = self.library.call("llama_state_seq_get_size", self.context, sequence)
        data = c.create_string_buffer(size)
        written = self.library.call("llama_state_seq_get_data", self.context, data, size, sequence)
        _require(written, size, "llama_state_seq_get_data")
        return list(self.tokens[sequence]), data.raw

    def load(self, sequence: int, saved: tuple[list[int], bytes]) -> bool:
        """Put a state in the place of the sequence's."""
        tokens, data = saved
        if not self.library.call("llama_state_seq_set_data", self.context, data, len(data), sequence):
            return False
        self.tokens[sequence] = list(tokens)
        self.last.pop(sequence, None)
        return True

    def load_damaged(self, sequence: int, damage: str, saved: tuple[list[int], bytes]) -> bool:
        """Put damaged bytes of a state in the place of the sequence's.

        Raises:
            NotImplementedError: they are of a server.
        """
        if len(saved) != 2:
            raise NotImplementedError("load_damaged: the next model is a server")
        tokens, data = saved
        return self.load(sequence, (tokens, damaged(data, damage)))

    def cancel(self, sequence: int, tokens: Sequence[int], after: int) -> None:
        """A decode that the application's callback aborts: the sequence has as many of its tokens as the memory says."""
        checks = itertools.count()
        abort = ABORT(lambda _: next(checks) >= after * _NODES)
        entries = [
            (token, self._length(sequence) + at, (sequence,), at + 1 == len(tokens))
            for at, token in enumerate(tokens)
        ]
        self.library.call("llama_set_abort_callback", self.context, abort, None)
        try:
            status = self.library.call("llama_decode", self.context, batch_of(entries))
        finally:
            self.library.call("llama_set_abort_callback", self.context, ABORT(), None)
        if status not in (0, _ABORTED):
            raise RuntimeError(f"llama_decode = {status}, but should be 0 or {_ABORTED}")
        self.effects[ABORTED] += status == _ABORTED
        self.tokens[sequence] = [*self.tokens.get(sequence, []), *tokens][: self.length(sequence)]
        if not self.tokens[sequence]:
            del self.tokens[sequence]
        self.last.pop(sequence, None)

    def drop(self, sequence: int) -> bool:
        """Remove all positions."""
        if not self.library.call("llama_memory_seq_rm", self.memory, sequence, -1, -1):
            return False
        self.tokens.pop(sequence, None)
        self.last.pop(sequence, None)
        return True

    def length(self, sequence: int) -> int:
        """One more than the last position."""
        return int(self.library.call("llama_memory_seq_pos_max", self.memory, sequence)) + 1

    def generate(
        self,
        sequence: int,
        n: int,
        *,
        stop: int | None = None,
        drafts: int = 0,
        undo: str = UNDO[0],
        guess: str = GUESSES[0],
    ) -> list[int]:
        """Greedily, with as many drafts in each decode; of the last token, the sequence has no state.

        Drafts behind the stop token are taken back as those that are not accepted.

        Raises:
            NotImplementedError: the logits behind the sequence are not known, or its last tokens cannot be taken back.
        """
        if sequence not in self.last:
            raise NotImplementedError("generate: the logits behind the sequence are not known")
        logits = self.last[sequence]
        chosen = [max(range(VOCABULARY), key=logits.__getitem__)]
        while len(chosen) < n and chosen[-1] != stop:
            count = min(drafts, n - len(chosen) - 1)
            if guess == "sequence":
                guessed = self._drafts(sequence, chosen[-1], count)
            else:
                guessed = self._drafts_of_a_model(sequence, chosen[-1], count, other=guess == "other model")
            chosen += self._accepted(sequence, [chosen[-1], *guessed], undo, stop)
        return chosen

    def close(self) -> None:
        """Free it."""
        self.library.call("llama_free", self.context)

    def _drafts(self, sequence: int, token: int, count: int) -> list[int]:
        """The tokens that followed `token` when it stood in the sequence before; others where it did not."""
        before = self.tokens[sequence]
        at = max((at for at, earlier in enumerate(before) if earlier == token), default=len(before))
        found = before[at + 1 : at + 1 + count]
        return found + [(token + 5 + more) % 15 + 1 for more in range(count - len(found))]

    def _drafts_of_a_model(self, sequence: int, token: int, count: int, *, other: bool) -> list[int]:
        """Tokens that another context generates, of a model with other weights, or of the same, where the last token is made another one."""
        if count < 1:
            return []
        model = self.other() if other else self.model
        made = self.library.context(model, cache_type=self.features.get("cache_type", "f32"))
        assert made is not None
        draft = LlamaContext(
            self.library, model, self.other, made, self.library.call("llama_get_memory", made)
        )
        try:
            draft.extend([(0, [*self.tokens[sequence], token])])
            found = draft.generate(0, count)
        finally:
            draft.close()
        self.effects["guess: the model made drafts"] += not other
        self.effects["guess: a model with other weights made drafts"] += other
        return found if other else [*found[:-1], found[-1] % 15 + 1]

    def _accepted(self, sequence: int, tokens: list[int], undo: str, stop: int | None) -> list[int]:
        """Decode a token and its drafts; the tokens that the library's sampler chooses behind those that are right, up to the stop token."""
        before = self._length(sequence)
        kept = self._checkpoint(sequence) if undo == "checkpoint" and len(tokens) > 1 else None
        self._decode([(token, before + at, (sequence,), True) for at, token in enumerate(tokens)])
        sampled: list[int] = []
        for at in range(len(tokens)):
            sampled.append(self._sampled(at))
            if sampled[-1] == stop:
                self.effects["stop: drafts behind the stop token were processed"] += at + 1 < len(tokens)
                break
            if sampled[-1] != (*tokens, None)[at + 1]:
                break
        right = len(sampled)
        self.effects["drafts: a draft was accepted"] += right > 1
        self.last[sequence] = self._logits(right - 1)
        self.tokens[sequence] += tokens
        if right < len(tokens):
            self._take_back(sequence, before, tokens[:right], kept)
        return sampled

    def _take_back(self, sequence: int, before: int, right: list[int], kept: Any) -> None:
        behind = self.last[sequence]
        del self.tokens[sequence][before + len(right) :]
        first = before if kept is not None else before + len(right)
        if kept is not None:
            size = self.library.call(
                "llama_state_seq_set_data_ext", self.context, kept, len(kept), sequence, _PARTIAL
            )
            _require(size, len(kept), "llama_state_seq_set_data_ext")
        if not self.library.call("llama_memory_seq_rm", self.memory, sequence, first, -1):
            raise NotImplementedError("drafts: the library cannot take back those that were not accepted")
        if kept is not None:
            self._decode([(token, before + at, (sequence,), False) for at, token in enumerate(right)])
            self.effects["undo: a checkpoint was put back"] += 1
        self.effects["drafts: a draft was rejected"] += 1
        self.last[sequence] = behind

    def _checkpoint(self, sequence: int) -> Any:
        size = self.library.call("llama_state_seq_get_size_ext", self.context, sequence, _PARTIAL)
        data = c.create_string_buffer(size)
        written = self.library.call(
            "llama_state_seq_get_data_ext", self.context, data, size, sequence, _PARTIAL
        )
        _require(written, size, "llama_state_seq_get_data_ext")
        return data

    def _sampled(self, at: int) -> int:
        sampler = self.library.call("llama_sampler_init_greedy")
        token = int(self.library.call("llama_sampler_sample", sampler, self.context, at))
        self.library.call("llama_sampler_free", sampler)
        return token

    def _decode(self, entries: Sequence[tuple[int, int, tuple[int, ...], bool]]) -> None:
        _require(self.library.call("llama_decode", self.context, batch_of(entries)), 0, "llama_decode")
        self.effects["micro_batch: a batch was cut"] += len(entries) > self.features.get("micro_batch", 512)

    def _logits(self, at: int) -> list[float]:
        found = self.library.call("llama_get_logits_ith", self.context, at)
        if not found:
            raise RuntimeError(f"llama_get_logits_ith({at}) = NULL, but should be logits")
        return list(found[:VOCABULARY])

    def _length(self, sequence: int) -> int:
        return len(self.tokens.get(sequence, ()))


def _require(found: int, expected: int, name: str) -> None:
    if found != expected:
        raise RuntimeError(f"{name} = {found}, but should be {expected}")
