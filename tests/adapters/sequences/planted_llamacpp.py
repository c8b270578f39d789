"""The port of llama.cpp with a defect behind the C interface: a function of the loaded library's table is replaced by a wrong one.

PLANTED names the defect. Nothing of the port is changed.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from subjects.sequences import llamacpp
from subjects.sequences.llamacpp import (
    close,
    drop,
    extend,
    features,
    fork,
    generate,
    length,
    load,
    roll_back,
    save,
)
from subjects.sequences.llamacpp.context import LlamaContext
from subjects.sequences.llamacpp.library import CACHE_TYPES, LlamaBatch, Parameters

__all__ = ["close", "drop", "extend", "features", "fork", "generate", "length", "load", "roll_back", "save"]
STATECHECK_SEQUENCES = 1
TOLERANCE, TOLERANCES = llamacpp.TOLERANCE, llamacpp.TOLERANCES
GIVEN_TO_REFERENCE = llamacpp.GIVEN_TO_REFERENCE
ISOLATED = True
KNOWN, RELEASE = llamacpp.KNOWN, llamacpp.RELEASE or "2026.10.11549"
Function = Callable[..., Any]
Functions = dict[str, Function]


def models() -> Sequence[str]:
    """A model that has states alone, and a model with attention that keeps earlier states."""
    return [name for name in llamacpp.models() if name in ("mamba2", "lfm2")]


def new(model: str, seed: int, **given: Any) -> LlamaContext:
    """A context of the library with the defect."""
    library = llamacpp._library()
    if "planted" not in vars(library):
        name = os.environ.get("PLANTED", "")
        if name:
            PLANTED[name][1](library.functions)
        vars(library)["planted"] = name
    made = llamacpp.new(model, seed, **given)
    assert isinstance(made, LlamaContext)
    return made


vars(new)["__wrapped__"] = llamacpp.new
"""Features are found by the parameters of the function that it stands for."""


def _rows(batch: LlamaBatch) -> dict[int, list[int]]:
    """Places in a batch, by sequence."""
    rows: dict[int, list[int]] = {}
    for at in range(batch.n_tokens):
        rows.setdefault(batch.seq_id[at][0], []).append(at)
    return rows


def _loses_states_between_decodes(functions: Functions) -> None:
    decode, memory, remove = (
        functions[name] for name in ("llama_decode", "llama_get_memory", "llama_memory_seq_rm")
    )

    def wrong(context: int, batch: LlamaBatch) -> int:
        for sequence, places in _rows(batch).items():
            if batch.pos[places[0]] > 0:
                remove(memory(context), sequence, -1, -1)
        return int(decode(context, batch))

    functions["llama_decode"] = wrong


def _swaps_rows_of_one_token(functions: Functions) -> None:
    decode = functions["llama_decode"]

    def wrong(context: int, batch: LlamaBatch) -> int:
        single = [places[0] for places in _rows(batch).values() if len(places) == 1]
        pairs = [
            (token, other)
            for token in single
            for other in single
            if token < other and batch.pos[token] == batch.pos[other] > 0
        ]
        if pairs:
            token, other = pairs[0]
            first, second = batch.seq_id[token][0], batch.seq_id[other][0]
            batch.seq_id[token][0], batch.seq_id[other][0] = second, first
        return int(decode(context, batch))

    functions["llama_decode"] = wrong


def _forks_late(functions: Functions) -> None:
    copy, decode, remove = (
        functions[name] for name in ("llama_memory_seq_cp", "llama_decode", "llama_memory_seq_rm")
    )
    late: list[tuple[int, int, int]] = []

    def wrong_copy(memory: int, source: int, target: int, first: int, end: int) -> None:
        copy(memory, source, target, first, end)
        late.append((memory, source, target))

    def wrong_decode(context: int, batch: LlamaBatch) -> int:
        status = int(decode(context, batch))
        for memory, source, target in late:
            if source in _rows(batch) and target not in _rows(batch):
                remove(memory, target, -1, -1)
                copy(memory, source, target, -1, -1)
        late.clear()
        return status

    functions |= {"llama_memory_seq_cp": wrong_copy, "llama_decode": wrong_decode}


def _forks_the_first_sequence(functions: Functions) -> None:
    copy, last = functions["llama_memory_seq_cp"], functions["llama_memory_seq_pos_max"]

    def wrong(memory: int, source: int, target: int, first: int, end: int) -> None:
        taken = 0 if target != 0 and last(memory, 0) == last(memory, source) else source
        copy(memory, taken, target, first, end)

    functions["llama_memory_seq_cp"] = wrong


def _rolls_back_one_too_few(functions: Functions) -> None:
    remove = functions["llama_memory_seq_rm"]

    def wrong(memory: int, sequence: int, first: int, end: int) -> bool:
        return bool(remove(memory, sequence, first + (first > 0), end))

    functions["llama_memory_seq_rm"] = wrong


def _reports_rollbacks_that_it_refuses(functions: Functions) -> None:
    remove = functions["llama_memory_seq_rm"]

    def wrong(memory: int, sequence: int, first: int, end: int) -> bool:
        return bool(remove(memory, sequence, first, end)) or first > 0

    functions["llama_memory_seq_rm"] = wrong


def _saves_without_the_last_layer(functions: Functions) -> None:
    get = functions["llama_state_seq_get_data"]

    def wrong(context: int, data: Any, size: int, sequence: int) -> int:
        written = int(get(context, data, size, sequence))
        c.memset(c.addressof(data) + size - size // 5, 0, size // 5)
        return written

    functions["llama_state_seq_get_data"] = wrong


def _saves_what_it_saved_first(functions: Functions) -> None:
    get = functions["llama_state_seq_get_data"]
    kept: dict[int, bytes] = {}

    def wrong(context: int, data: Any, size: int, sequence: int) -> int:
        written = int(get(context, data, size, sequence))
        c.memmove(data, kept.setdefault(size, data.raw), size)
        return written

    functions["llama_state_seq_get_data"] = wrong


def _loads_nothing_over_tokens(functions: Functions) -> None:
    put, memory, last = (
        functions[name]
        for name in ("llama_state_seq_set_data", "llama_get_memory", "llama_memory_seq_pos_max")
    )

    def wrong(context: int, data: Any, size: int, sequence: int) -> int:
        return size if last(memory(context), sequence) >= 0 else int(put(context, data, size, sequence))

    functions["llama_state_seq_set_data"] = wrong


def _drops_another_sequence(functions: Functions) -> None:
    remove = functions["llama_memory_seq_rm"]

    def wrong(memory: int, sequence: int, first: int, end: int) -> bool:
        if first < 0:
            remove(memory, (sequence + 1) % 4, first, end)
        return bool(remove(memory, sequence, first, end))

    functions["llama_memory_seq_rm"] = wrong


def _gives_logits_of_the_row_before(functions: Functions) -> None:
    logits, decode = functions["llama_get_logits_ith"], functions["llama_decode"]
    wanted: list[int] = []

    def wrong_decode(context: int, batch: LlamaBatch) -> int:
        wanted[:] = [at for at in range(batch.n_tokens) if batch.logits[at]]
        return int(decode(context, batch))

    def wrong_logits(context: int, at: int) -> Any:
        return logits(context, wanted[max(0, wanted.index(at) - 1)])

    functions |= {"llama_decode": wrong_decode, "llama_get_logits_ith": wrong_logits}


def _samples_behind_the_token_before(functions: Functions) -> None:
    sample = functions["llama_sampler_sample"]

    def wrong(sampler: int, context: int, at: int) -> int:
        return int(sample(sampler, context, max(at - 1, 0)))

    functions["llama_sampler_sample"] = wrong


def _restores_checkpoints_in_part(functions: Functions) -> None:
    put = functions["llama_state_seq_set_data_ext"]

    def wrong(context: int, data: Any, size: int, sequence: int, flags: int) -> int:
        c.memset(c.addressof(data) + size - size // 5, 0, size // 5)
        return int(put(context, data, size, sequence, flags))

    functions["llama_state_seq_set_data_ext"] = wrong


def _loses_states_beside_keys_of(functions: Functions, cache_type: str) -> None:
    make, right = functions["llama_init_from_model"], functions["llama_decode"]
    _loses_states_between_decodes(functions)
    wrong = functions["llama_decode"]
    small: set[int] = set()
    number = CACHE_TYPES[cache_type]

    def noted(model: int, given: Parameters) -> int | None:
        made: int | None = make(model, given)
        if made is not None:
            small.discard(made)
            numbers = given.numbers()
            # That of keys stands before that of values.
            small.update({made} if (number, number) in pairwise(numbers) else ())
        return made

    def decode(context: int, batch: LlamaBatch) -> int:
        return int((wrong if context in small else right)(context, batch))

    functions.update(llama_init_from_model=noted, llama_decode=decode)


PLANTED: Mapping[str, tuple[str, Callable[[Functions], None]]] = {
    "a state is not carried over into the next decode": ("sequences/pieces", _loses_states_between_decodes),
    "two rows of one token are taken for each other": ("sequences/batches", _swaps_rows_of_one_token),
    "a fork is made after the next decode of its source": ("sequences/fork", _forks_late),
    "a fork takes the first sequence if that is as long": ("sequences/fork", _forks_the_first_sequence),
    "a rollback is off by one": ("sequences/roll-back", _rolls_back_one_too_few),
    "a rollback that is refused is reported as done": (
        "sequences/roll-back",
        _reports_rollbacks_that_it_refuses,
    ),
    "a save leaves out the last layer": ("sequences/save", _saves_without_the_last_layer),
    "a save writes what was saved first": ("sequences/save", _saves_what_it_saved_first),
    "a load over a sequence that has tokens does nothing": ("sequences/save", _loads_nothing_over_tokens),
    **{
        f"a state is lost beside keys of {name}": (
            "sequences/pieces",
            partial(_loses_states_beside_keys_of, cache_type=name),
        )
        for name in ("bf16", "q4_0")
    },
    "a drop empties the next sequence, too": ("sequences/drop", _drops_another_sequence),
    "logits are those of the row before": ("sequences/batches", _gives_logits_of_the_row_before),
    "a token behind a draft is sampled behind the token before it": (
        "sequences/generate",
        _samples_behind_the_token_before,
    ),
    "a checkpoint is restored without the last layer": ("sequences/generate", _restores_checkpoints_in_part),
}
"""By name, the property that finds it, and what replaces functions of the table."""
