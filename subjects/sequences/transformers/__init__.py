"""transformers as a port of sequences: every causal architecture with recurrent state, tiny, with random weights. See docs/sequences.md."""

import copy
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers

from statecheck.sequences import PARTS, damaged
from subjects.sequences.conditions import DROPPED, RESET, UNCROPPABLE
from subjects.sequences.sizes import NotBuilt
from subjects.sequences.transformers import generation, weights
from subjects.sequences.transformers import states as cache_states
from subjects.sequences.transformers.context import TransformersContext, keeps_states
from subjects.sequences.transformers.models import architectures, build, layer_kinds, model_class
from subjects.sequences.transformers.script import script_of

STATECHECK_SEQUENCES = 1
TOLERANCE = 0.001
"""Correct results differ by at most 1e-5 of the scale of the logits."""
DAMAGES = (*PARTS, "first byte")
"""torch.load checks neither numbers nor models."""
TOLERANCES = {("dtype", "bfloat16"): 0.08, ("dtype", "float16"): 0.02}
"""Of most models that show no defect, controls differ by 0 to 0.015 with bfloat16, in olmo_hybrid to 0.066, and to 0.002 with float16, in zamba to 0.011."""
GIVEN_TO_REFERENCE = ("first_layer", "dtype", "beams")
DTYPES = ("float32", "bfloat16", "float16")
EFFECTS = {
    "first_layer: another kind of layer comes first": "extend",
    "dtype: weights and activations had 16 bits": "extend",
    "padding: rows were padded on the left": "extend",
    "padding: rows were padded on the right": "extend",
    "padding: rows went on behind padding": "extend",
    "inputs: a forward got the cache as it is": "extend",
    "cache: tokens went on behind a static cache": "extend",
    "cache: tokens before were processed again": "extend",
    "extend: rows of one cache went on": "extend",
    "before: continuous batching chose tokens": "extend",
    "reorder: rows of a cache changed places": "reorder",
    "roll_back: a cache was cropped": "roll_back",
    "record: a recorded past was cropped": "roll_back",
    UNCROPPABLE: "roll_back",
    DROPPED: "drop",
    RESET: "drop",
    "history: a cache of generate was used": "generate",
    "history: the cache of the sequence was continued": "generate",
    "history: the whole prompt came with the cache": "generate",
    "beams: a beam took the place of another one": "generate",
    "neighbours: the prompt was padded": "generate",
    "chunk: the prompt came in several chunks": "generate",
    "static: tokens were chosen with a static cache": "generate",
    "mode: a candidate was accepted": "generate",
    "mode: a candidate was rejected": "generate",
    "mode: continuous batching chose tokens": "generate",
    "stop: generation ended at a stop token": "generate",
    "cancel: a forward was ended": "cancel",
}
# Candidates, and a prompt in chunks, are for `generate` with a cache.
NEEDS = {"mode": ("history", generation.CACHE), "chunk": ("history", generation.CACHE)}
ISOLATED = True
SECONDS = 25.0
KNOWN = str(Path(__file__).parent.with_name("transformers_known.toml"))
RELEASE = transformers.__version__

BATCHES = "generate_batch"
COMPILED = "STATECHECK_COMPILED"
"""Variable of the environment: compiled forwards are among the features. Each takes seconds."""
if os.environ.get(COMPILED):
    EFFECTS["compiled: a forward was compiled"] = "generate"

torch.set_num_threads(1)
logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)


def models() -> list[str]:
    """Model types of the release's causal architectures."""
    return list(architectures())


def preload() -> None:
    """Import what all models need, once: the modules of the architectures, and what the first forward of a process imports."""
    for model in models():
        model_class(model)
    extend(new(models()[0], 0), [(0, [1, 2, 3])])
    # The processes of models begin with none made.
    _model.cache_clear()


def features(model: str) -> dict[str, Sequence[Any]]:
    """Of contexts, and of `generate`."""
    return {
        "first_layer": _first_layers(model),
        "dtype": DTYPES,
        "padding": ("left", "right"),
        "inputs": ("prepared", "direct"),
        "cache": ("dynamic", "static", "none"),
        "record": (False, True),
        "crop": ("checked", "unchecked"),
        "reset": (False, True),
        "before": ("nothing", BATCHES),
        "pads": (0, 1, 4),
        "packed_rows": (False, True),
        "all_logits": (False, True),
        "history": generation.HISTORIES,
        "beams": (1, 2, 3),
        "neighbours": (0, 1, 2, 3),
        "chunk": (0, 1, 2, 3),
        "static": (False, True),
        "mode": generation.MODES,
        **({"compiled": (False, True)} if os.environ.get(COMPILED) else {}),
    }


def chooses_experts(model: str) -> bool:
    """Whether it has weights of experts, which a router chooses from."""
    made = _model(model, 0, _first_layers(model)[0], DTYPES[0])
    return any("expert" in name for name, _ in made.named_parameters())


def new(
    model: str,
    seed: int,
    *,
    first_layer: str = "",
    dtype: str = DTYPES[0],
    padding: str = "left",
    inputs: str = "prepared",
    cache: str = "dynamic",
    record: bool = False,
    crop: str = "checked",
    reset: bool = False,
    before: str = "nothing",
) -> TransformersContext:
    """A model whose first layer is of a kind, and no sequences; before that continuous batching is tried with it, if `before` says so."""
    first, *others = _first_layers(model)
    made = _model(model, seed, first_layer or first, dtype)
    if keeps_states(made) or before == BATCHES:
        # Its modules hold what other contexts must not share.
        made = copy.deepcopy(made)
    chose = before == BATCHES and generation.try_batches(made)
    context = TransformersContext(made, padding, inputs, cache, record, crop, reset)
    context.effects["before: continuous batching chose tokens"] += chose
    context.effects["dtype: weights and activations had 16 bits"] += dtype != DTYPES[0]
    context.effects["first_layer: another kind of layer comes first"] += first_layer in others
    return context


def extend(
    context: TransformersContext,
    rows: list[tuple[int, list[int]]],
    *,
    pads: int = 0,
    packed_rows: bool = False,
    all_logits: bool = False,
) -> list[Any]:
    """Logits behind the last token of each row, or behind each."""
    found = context.extend(rows, pads, packed=packed_rows)
    return [row.numpy() if all_logits else row[-1].numpy() for row in found]


def fork(context: TransformersContext, source: int, target: int) -> None:
    """Copy the cache."""
    context.fork(source, target)


def roll_back(context: TransformersContext, sequence: int, n: int) -> None:
    """Crop the cache."""
    context.roll_back(sequence, n)


def save(context: TransformersContext, sequence: int) -> bytes:
    """Pickle the cache."""
    return context.save(sequence)


def load(context: TransformersContext, sequence: int, saved: bytes) -> None:
    """Unpickle a cache."""
    context.load(sequence, saved)


def load_damaged(context: TransformersContext, sequence: int, damage: str, saved: bytes) -> bool:
    """The cache that torch reads from damaged bytes, which it should refuse to read."""
    try:
        context.load(sequence, damaged(saved, damage))
    except Exception:
        return False
    return True


def drop(context: TransformersContext, sequence: int) -> None:
    """Forget the cache, or its row in it."""
    context.drop(sequence)


def reorder(context: TransformersContext, order: Sequence[int]) -> None:
    """Reorder rows, as a beam search does."""
    context.reorder(order)


def length(context: TransformersContext, sequence: int) -> int:
    """As the cache counts tokens."""
    return context.length(sequence)


def states(context: TransformersContext, sequence: int) -> list[tuple[str, list[float]]]:
    """The states of a sequence in the cache, layer by layer."""
    return cache_states.states(context.batches[sequence], sequence)


def effects(context: TransformersContext) -> Mapping[str, int]:
    """How often what `EFFECTS` names has happened in the context."""
    return context.effects


def generate(
    context: TransformersContext,
    sequence: int,
    n: int,
    *,
    stop: int | None = None,
    history: str = generation.NONE,
    beams: int = 1,
    neighbours: int = 0,
    chunk: int = 0,
    static: bool = False,
    mode: str = "plain",
    compiled: bool = False,
) -> list[int]:
    """Tokens that the library's `generate` chooses."""
    chosen = generation.GenerateFeatures(history, beams, neighbours, chunk, static, mode, compiled)
    return generation.generate(context, sequence, n, chosen, stop)


def cancel(context: TransformersContext, sequence: int, tokens: Sequence[int], after: int) -> None:
    """End a forward of a prompt in pieces, and forget the cache."""
    context.cancel(sequence, tokens, after)


def script(
    model: str, seed: int, features: Mapping[str, Any], operations: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """A case with the library alone."""
    return script_of(lambda: new(model, seed, **features), model, seed, operations)


def _first_layers(model: str) -> tuple[str, ...]:
    return layer_kinds(model) or ("the only kind",)


@cache
def _model(model: str, seed: int, first_layer: str, dtype: str) -> Any:
    try:
        made = build(model, seed, first_layer if layer_kinds(model) else None)
    except NotBuilt as error:
        raise NotImplementedError(f"not built: {error}") from error
    return weights.verified(made, seed, 10 * TOLERANCE).to(getattr(torch, dtype))
