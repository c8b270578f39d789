"""llama.cpp as a library of sequences: the C interface of a release's wheel, with models that are created from metadata alone."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from statecheck.sequences import ANOTHER_MODEL, PARTS
from subjects.sequences.conditions import ABORTED
from subjects.sequences.llamacpp import server
from subjects.sequences.llamacpp.architectures import architectures, metadata
from subjects.sequences.llamacpp.context import GUESSES, UNDO, LlamaContext
from subjects.sequences.llamacpp.images import projector_file
from subjects.sequences.llamacpp.library import CACHE_TYPES, WEIGHTS, LlamaCpp, library_path
from subjects.sequences.llamacpp.script import script_of
from subjects.sequences.llamacpp.server import ServerContext
from subjects.sequences.llamacpp.server_script import server_script_of

STATECHECK_SEQUENCES = 1
TOLERANCE = 0.01
"""Orders of summation differ between micro-batches: up to 0.0005 of the scale, 0.005 for some; a lost state is 0.1 or more."""
TOLERANCES = {("weights", "q8_0"): 0.09, ("weights", "q4_0"): 0.09}
"""Activations are rounded to 8 bits beside such weights, and a last bit of 32 that differs may move them by 0.4 %. Results behind 64 tokens and more, which attention
computes with another kernel, differ by up to 0.022 of the scale; with weights of 16 bits all differ by up to 0.003, and by 0.011 with a router."""
DAMAGES = (*PARTS, "first byte", ANOTHER_MODEL)
"""Numbers of a state have no checksum."""
GIVEN_TO_REFERENCE = ("layers", "cache_type", "weights", "images")
EFFECTS = {
    "micro_batch: a batch was cut": "extend",
    "unified: several sequences were in one cache": "extend",
    "layers: the model had fewer layers": "extend",
    "cache_type: keys and values had 16 bits or fewer": "extend",
    "weights: matrices had 16 bits or fewer": "extend",
    "extend: rows that have tokens went on in one batch": "extend",
    "interleaved: tokens of rows came by turns": "extend",
    "roll_back: positions were removed": "roll_back",
    "snapshots: positions were removed by snapshots": "roll_back",
    "drafts: a draft was accepted": "generate",
    "drafts: a draft was rejected": "generate",
    "undo: a checkpoint was put back": "generate",
    "guess: the model made drafts": "generate",
    "guess: a model with other weights made drafts": "generate",
    "stop: drafts behind the stop token were processed": "generate",
    ABORTED: "cancel",
    **(server.EFFECTS if server.is_installed() else {}),
}
AGAIN = server.AGAIN
ISOLATED = True
KNOWN = str(Path(__file__).parents[1] / "llamacpp_known.toml")


def _release() -> str:
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return ""


RELEASE = _release()
Context = LlamaContext | ServerContext


def models() -> Sequence[str]:
    """Architectures with recurrent state of which the library makes a model, and the same in llama-server."""
    names = tuple(architectures())
    return (*names, *(f"{server.PREFIX}{name}" for name in names if server.is_installed()))


def features(model: str) -> dict[str, Sequence[Any]]:
    """Features of a context; the reference has the number of layers, too."""
    name = model.removeprefix(server.PREFIX)
    common: dict[str, Sequence[Any]] = {
        "micro_batch": (512, 1, 2, 7),
        "unified": (False, True),
        "layers": tuple(int(layers) for layers in architectures()[name]),
        "cache_type": tuple(CACHE_TYPES),
        "weights": tuple(WEIGHTS),
    }
    if name != model:
        return common | server.features()
    snapshots = (0, 4) if _library().has("llama_n_rs_seq") else (0,)
    return common | {
        "snapshots": snapshots,
        "interleaved": (False, True),
        "all_logits": (False, True),
        "shared_tokens": (False, True),
        "drafts": (0, 1, 3),
        "undo": UNDO,
        "guess": GUESSES,
    }


def chooses_experts(model: str) -> bool:
    """Whether its metadata name experts, as those of MiniMax-01 do."""
    found = architectures()[model.removeprefix(server.PREFIX)].values()
    return any(key.endswith("expert_count") for metadata in found for key in metadata)


@lru_cache
def _library() -> LlamaCpp:
    return LlamaCpp(library_path())


@lru_cache(maxsize=16)
def _model(name: str, layers: int, seed: int, weights: str, cache_type: str) -> int:
    made = _library().model(name, metadata(name, layers, cache_type), seed, weights)
    if made is None:
        raise NotImplementedError(f"no model of {layers} layers: {' '.join(_library().log[-2:])}")
    return made


@lru_cache(maxsize=16)
def _model_file(name: str, layers: int, seed: int, weights: str, cache_type: str) -> Path:
    return server.model_file(_library(), name, metadata(name, layers, cache_type), seed, weights)


@lru_cache
def _projector(width: int) -> Path:
    return projector_file(_library(), width)


def new(
    model: str,
    seed: int,
    *,
    micro_batch: int = 512,
    unified: bool = False,
    layers: int = 4,
    cache_type: str = "f32",
    weights: str = "f32",
    snapshots: int = 0,
    slots: int = 4,
    checkpoints: int = 32,
    checkpoint_step: int = 8192,
    prompt_cache: int = 8192,
    reuse: int = 0,
    speculation: str = "none",
    embeddings: bool = False,
    images: bool = False,
) -> Context:
    """A context for four sequences, or a server."""
    if model.startswith(server.PREFIX):
        if embeddings and model == f"{server.PREFIX}qwen4exp":
            # It ends its process while it is made: docs/findings/llamacpp-qwen4exp-embeddings.md.
            raise NotImplementedError("new: a server of qwen4exp has no embeddings")
        given: dict[str, Any] = {
            "micro_batch": micro_batch,
            "unified": unified,
            "slots": slots,
            "checkpoints": checkpoints,
            "checkpoint_step": checkpoint_step,
            "prompt_cache": prompt_cache,
            "reuse": reuse,
            "speculation": speculation,
            "embeddings": embeddings,
            "layers": layers,
            "cache_type": cache_type,
        }
        name = model.removeprefix(server.PREFIX)
        files = [_model_file(name, layers, seed + more, weights, cache_type) for more in (0, 1)]
        projector = _projector(metadata(name, layers, cache_type)["embedding_length"]) if images else None
        served = server.new(files[0], files[1], projector, given)
        served.effects["weights: matrices had 16 bits or fewer"] += weights != "f32"
        return served
    library = _library()
    made = _model(model, layers, seed, weights, cache_type)
    library.log.clear()
    given = {
        "micro_batch": micro_batch,
        "unified": unified,
        "snapshots": snapshots,
        "cache_type": cache_type,
    }
    found = library.context(made, **given)
    if found is None:
        raise NotImplementedError(f"no context: {' '.join(library.log[-2:])}")
    other = partial(_model, model, layers, seed + 1, weights, cache_type)
    given["weights"] = weights
    context = LlamaContext(library, made, other, found, library.call("llama_get_memory", found), given)
    context.effects["cache_type: keys and values had 16 bits or fewer"] += cache_type != "f32"
    context.effects["weights: matrices had 16 bits or fewer"] += weights != "f32"
    context.effects["layers: the model had fewer layers"] += layers < max(map(int, architectures()[model]))
    return context


def extend(
    context: Context,
    rows: Sequence[tuple[int, Sequence[int]]],
    *,
    interleaved: bool = False,
    all_logits: bool = False,
    shared_tokens: bool = False,
    slot: str = "any",
    cache_prompt: bool = True,
    ahead: int = 1,
    at_once: bool = False,
    between: str = server.BETWEEN[0],
) -> list[Any]:
    """Decode a batch, or send requests."""
    if isinstance(context, ServerContext):
        return context.extend(
            rows, slot=slot, cache_prompt=cache_prompt, ahead=ahead, at_once=at_once, between=between
        )
    return context.extend(rows, interleaved=interleaved, all_logits=all_logits, shared_tokens=shared_tokens)


def fork(context: Context, source: int, target: int) -> None:
    """Copy a sequence over another one."""
    context.fork(source, target)


def roll_back(context: Context, sequence: int, n: int) -> bool:
    """Remove the last positions."""
    return context.roll_back(sequence, n)


def save(context: Context, sequence: int) -> Any:
    """The sequence's state as the library writes it."""
    return context.save(sequence)


def load(context: Context, sequence: int, saved: Any) -> bool:
    """Put a state in the place of the sequence's."""
    return context.load(sequence, saved)


def load_damaged(context: Context, sequence: int, damage: str, saved: Any) -> bool:
    """Put damaged bytes of a state, or of a file, in the place of the sequence's."""
    return context.load_damaged(sequence, damage, saved)


def drop(context: Context, sequence: int) -> bool:
    """Remove all positions."""
    return context.drop(sequence)


def length(context: Context, sequence: int) -> int:
    """One more than the last position."""
    return context.length(sequence)


def reuse(context: Context, sequence: int) -> tuple[list[int], int] | None:
    """The tokens of the sequence that a server held, and how many it processed."""
    return context.reused.pop(sequence, None) if isinstance(context, ServerContext) else None


def effects(context: Context) -> Mapping[str, int]:
    """How often what `EFFECTS` names has happened in the context."""
    return context.effects


def generate(
    context: Context,
    sequence: int,
    n: int,
    *,
    stop: int | None = None,
    drafts: int = 0,
    undo: str = UNDO[0],
    guess: str = GUESSES[0],
    slot: str = "any",
) -> list[int]:
    """Greedily, with the library's sampler, or by a request."""
    if isinstance(context, ServerContext):
        return context.generate(sequence, n, stop=stop, slot=slot)
    return context.generate(sequence, n, stop=stop, drafts=drafts, undo=undo, guess=guess)


def cancel(context: Context, sequence: int, tokens: Sequence[int], after: int) -> None:
    """Abort a decode, or close the connection of a request."""
    context.cancel(sequence, tokens, after)


def script(
    model: str, seed: int, features: Mapping[str, Any], operations: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """A case as a script that needs the wheel alone."""
    if features.get("weights", "f32") != "f32":
        raise NotImplementedError("a script with other weights than those of 32 bits")
    writer = server_script_of if model.startswith(server.PREFIX) else script_of
    return writer(model, seed, features, operations, RELEASE)


def close(context: Context) -> None:
    """Free it."""
    context.close()
