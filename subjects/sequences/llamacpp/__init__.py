"""llama.cpp as a library of sequences: the C interface of a release's wheel, with models that are created from metadata alone."""

from __future__ import annotations

import ctypes as c
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from subjects.sequences.llamacpp.architectures import architectures
from subjects.sequences.llamacpp.library import LlamaCpp, batch_of, library_path
from subjects.sequences.llamacpp.script import script_of

STATECHECK_SEQUENCES = 1
TOLERANCE = 0.01
"""Orders of summation differ between micro-batches: up to 0.0005 of the scale, 0.005 for some; a lost state is 0.1 or more."""
GIVEN_TO_REFERENCE = ("layers",)
ISOLATED = True
KNOWN = str(Path(__file__).parents[1] / "llamacpp_known.toml")


def _release() -> str:
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return ""


RELEASE = _release()


@dataclass(eq=False)
class LlamaContext:
    """A context of the library, its memory, and the next position of each sequence."""

    library: LlamaCpp
    context: int
    memory: int
    next: dict[int, int] = field(default_factory=dict)


def models() -> Sequence[str]:
    """Architectures with recurrent state of which the library makes a model."""
    return tuple(architectures())


def features(model: str) -> dict[str, Sequence[Any]]:
    """What may vary; the number of layers the reference has, too."""
    return {
        "micro_batch": (512, 1, 2, 7),
        "unified": (False, True),
        "snapshots": (0, 4) if _library().has("llama_n_rs_seq") else (0,),
        "layers": tuple(int(layers) for layers in architectures()[model]),
        "interleaved": (False, True),
    }


@lru_cache
def _library() -> LlamaCpp:
    return LlamaCpp(library_path())


@lru_cache(maxsize=16)
def _model(name: str, layers: int, seed: int) -> int:
    made = _library().model(name, architectures()[name][str(layers)], seed)
    if made is None:
        raise NotImplementedError(f"no model of {layers} layers: {' '.join(_library().log[-2:])}")
    return made


def new(
    model: str,
    seed: int,
    *,
    micro_batch: int = 512,
    unified: bool = False,
    snapshots: int = 0,
    layers: int = 4,
) -> LlamaContext:
    """A context for four sequences."""
    library = _library()
    made = _model(model, layers, seed)
    library.log.clear()
    found = library.context(made, micro_batch=micro_batch, unified=unified, snapshots=snapshots)
    if found is None:
        raise NotImplementedError(f"no context: {' '.join(library.log[-2:])}")
    return LlamaContext(library, found, library.call("llama_get_memory", found))


def extend(
    context: LlamaContext, rows: Sequence[tuple[int, Sequence[int]]], *, interleaved: bool = False
) -> list[list[float]]:
    """Decode a batch: row by row, or the rows' tokens by turns."""
    entries = [
        (token, context.next.get(sequence, 0) + at, sequence, at + 1 == len(tokens))
        for sequence, tokens in rows
        for at, token in enumerate(tokens)
    ]
    if interleaved:
        entries.sort(key=lambda entry: entry[1])
    status = context.library.call("llama_decode", context.context, batch_of(entries))
    if status != 0:
        raise RuntimeError(f"llama_decode = {status}, but should be 0")
    for sequence, tokens in rows:
        context.next[sequence] = context.next.get(sequence, 0) + len(tokens)
    last = {entry[2]: at for at, entry in enumerate(entries) if entry[3]}
    return [_logits(context, last[sequence]) for sequence, _ in rows]


def _logits(context: LlamaContext, at: int) -> list[float]:
    found = context.library.call("llama_get_logits_ith", context.context, at)
    if not found:
        raise RuntimeError(f"llama_get_logits_ith({at}) = NULL, but should be logits")
    return list(found[:32])


def fork(context: LlamaContext, source: int, target: int) -> None:
    """Copy a sequence over another one."""
    drop(context, target)
    context.library.call("llama_memory_seq_cp", context.memory, source, target, -1, -1)
    context.next[target] = context.next[source]


def roll_back(context: LlamaContext, sequence: int, n: int) -> bool | None:
    """Remove the last positions; most recurrent memories refuse."""
    first = context.next[sequence] - n
    if not context.library.call("llama_memory_seq_rm", context.memory, sequence, first, -1):
        return False
    context.next[sequence] = first
    return None


def save(context: LlamaContext, sequence: int) -> tuple[int, bytes]:
    """The sequence's state as the library writes it."""
    size = context.library.call("llama_state_seq_get_size", context.context, sequence)
    data = c.create_string_buffer(size)
    written = context.library.call("llama_state_seq_get_data", context.context, data, size, sequence)
    if written != size:
        raise RuntimeError(f"llama_state_seq_get_data = {written}, but should be {size}")
    return context.next[sequence], data.raw


def load(context: LlamaContext, sequence: int, saved: tuple[int, bytes]) -> bool | None:
    """Put a state in the place of the sequence's."""
    position, data = saved
    if not context.library.call("llama_state_seq_set_data", context.context, data, len(data), sequence):
        return False
    context.next[sequence] = position
    return None


def drop(context: LlamaContext, sequence: int) -> bool | None:
    """Remove all positions."""
    if not context.library.call("llama_memory_seq_rm", context.memory, sequence, -1, -1):
        return False
    context.next.pop(sequence, None)
    return None


def length(context: LlamaContext, sequence: int) -> int:
    """One more than the last position."""
    return int(context.library.call("llama_memory_seq_pos_max", context.memory, sequence)) + 1


def script(
    model: str, seed: int, features: Mapping[str, Any], operations: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """A case as a script that needs the wheel alone."""
    return script_of(model, seed, features, operations, RELEASE)


def close(context: LlamaContext) -> None:
    """Free it."""
    context.library.call("llama_free", context.context)
