"""mlx-lm as a port of sequences: every model whose cache holds states of a fixed size, tiny, with random weights. See docs/sequences.md."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten
from mlx_lm.models.cache import ArraysCache

from statecheck.sequences import PARTS, damaged
from subjects.sequences.mlx_lm import generation
from subjects.sequences.mlx_lm import models as built
from subjects.sequences.mlx_lm.context import BLOCK, MlxContext, blocks, states_of
from subjects.sequences.mlx_lm.models import architectures
from subjects.sequences.mlx_lm.script import script_of
from subjects.sequences.sizes import NotBuilt

STATECHECK_SEQUENCES = 1
TOLERANCE = 0.001
"""Correct results differ by at most 5e-5 of the scale of the logits."""
DAMAGES = (*PARTS, "first byte")
"""A file has no checksum, and does not name its model."""
TOLERANCES = {("weights", "bfloat16"): 0.05, ("weights", "float16"): 0.01}
"""Of models that show no defect, controls differ by 0 to 0.01 with bfloat16, and to 0.0014 with float16; with weights of 8 and 4 bits as with float32."""
GIVEN_TO_REFERENCE = ("first_layer", "weights")
EFFECTS = {
    "first_layer: another kind of layer comes first": "extend",
    "weights: they had 16 bits": "extend",
    "weights: they had 8 bits or fewer": "extend",
    "step: a row came in several chunks": "extend",
    "block: a row was longer than a block": "extend",
    "extend: rows of a batch were padded": "extend",
    "extend: rows that have tokens were merged": "extend",
    "reorder: rows of a batch changed places": "reorder",
    "reorder: rows left a batch": "reorder",
    "engine: a draft was accepted": "generate",
    "engine: a draft was rejected": "generate",
    "past: the cache of a prompt was continued": "generate",
    "past: a cache of the server's store was continued": "generate",
    "past: the server's store forgot a prompt": "generate",
    "unstored: several tokens stood behind a cache": "generate",
    "neighbours: rows of a batch were generated together": "generate",
    "late: a row joined one that was being generated": "generate",
    "together: a request waited for another one": "generate",
    "prefill: a prompt came in several chunks": "generate",
    "early: rows had begun before the prompt came": "generate",
    "ends: a row ended before the prompt was processed": "generate",
    "removed: a row was removed from a batch": "generate",
    "stop: generation ended at a stop token": "generate",
    "cancel: a request was removed in its prompt": "cancel",
    "cancel: a request was removed when it generated": "cancel",
}
NEEDS = {
    "neighbours": ("engine", generation.BATCHES),
    **dict.fromkeys(("late", "early", "ends", "removed"), ("neighbours", 1)),
    "together": ("neighbours", 2),
    "unstored": ("past", generation.STORE),
}
ISOLATED = True
SECONDS = 25.0
KNOWN = str(Path(__file__).parent.with_name("mlx_lm_known.toml"))
RELEASE = version("mlx-lm")


def models() -> list[str]:
    """Modules of the release's models."""
    return list(architectures())


def features(model: str) -> dict[str, Sequence[Any]]:
    """Of contexts, and of generation."""
    orders = built.orders(model)
    return {
        "first_layer": ("recurrent", "attention") if len(orders) > 1 else ("recurrent",),
        "weights": built.WEIGHTS,
        "step": (0, 1, 2, 3),
        "block": (BLOCK, 8),
        "pads": (0, 1, 4),
        "all_logits": (False, True),
        "engine": generation.ENGINES,
        "past": generation.PASTS,
        "unstored": (1, 2, 4),
        "neighbours": (0, 1, 2, 3),
        "late": (0, 1, 2),
        "together": (8, 1, 2),
        "prefill": (2048, 1, 2, 3),
        "drafts": (2, 1, 3, 5),
        "wrong_drafts": (2, 1, 3, 0),
        "early": (0, 1, 2, 3),
        "ends": (0, 1, 2),
        "removed": (0, 1, 2, 3),
    }


def chooses_experts(model: str) -> bool:
    """Whether it has weights of experts, which a router chooses from."""
    names = [name for name, _ in tree_flatten(_model(model, 0, "recurrent", built.WEIGHTS[0]).parameters())]
    return any("expert" in name or "switch_mlp" in name for name in names)


def new(
    model: str,
    seed: int,
    *,
    first_layer: str = "recurrent",
    weights: str = built.WEIGHTS[0],
    step: int = 0,
    block: int = BLOCK,
) -> MlxContext:
    """A model whose first layer is of a kind, with weights of a type, and no sequences; rows come in chunks of `step` tokens, and the library works in blocks of `block` tokens."""
    made = MlxContext(_model(model, seed, first_layer, weights), step, block)
    made.effects["weights: they had 16 bits"] += weights.endswith("float16")
    made.effects["weights: they had 8 bits or fewer"] += weights.endswith("bits")
    made.effects["first_layer: another kind of layer comes first"] += first_layer != "recurrent"
    return made


def extend(
    context: MlxContext, rows: list[tuple[int, list[int]]], *, pads: int = 0, all_logits: bool = False
) -> list[Any]:
    """Logits behind the last token of each row, or behind each."""
    with blocks(context.block):
        return [logits if all_logits else logits[-1] for logits in context.extend(rows, pads)]


def fork(context: MlxContext, source: int, target: int) -> None:
    """Copy the prompt cache."""
    context.fork(source, target)


if ArraysCache(1).is_trimmable():
    # Up to 0.32.2 no cache with states of a fixed size can be trimmed, and each model of this port has such a cache.
    EFFECTS["roll_back: a cache was trimmed"] = "roll_back"

    def roll_back(context: MlxContext, sequence: int, n: int) -> None:
        """Trim the prompt cache."""
        context.roll_back(sequence, n)


def save(context: MlxContext, sequence: int) -> tuple[bytes, list[int]]:
    """The file of `save_prompt_cache`."""
    return context.save(sequence)


def load(context: MlxContext, sequence: int, saved: tuple[bytes, list[int]]) -> None:
    """The cache that `load_prompt_cache` reads from a save."""
    context.load(sequence, saved)


def load_damaged(context: MlxContext, sequence: int, damage: str, saved: tuple[bytes, list[int]]) -> bool:
    """The cache that `load_prompt_cache` reads from damaged bytes, which it should refuse to read."""
    try:
        context.load(sequence, (damaged(saved[0], damage), saved[1]))
    except Exception:
        return False
    return True


def drop(context: MlxContext, sequence: int) -> None:
    """Forget the prompt cache."""
    context.drop(sequence)


def reorder(context: MlxContext, order: Sequence[int]) -> None:
    """Rows of a merged cache are filtered, which sorts and repeats them, and leaves some of them out."""
    context.reorder(order)


def length(context: MlxContext, sequence: int) -> int:
    """As the prompt cache counts tokens."""
    return context.length(sequence)


def states(context: MlxContext, sequence: int) -> list[tuple[str, list[float]]]:
    """The states of a sequence in the prompt cache, layer by layer."""
    return states_of(context.caches[sequence])


def reuse(context: MlxContext, sequence: int) -> tuple[list[int], int] | None:  # noqa: ARG001 - the store is asked for one sequence at a time
    """The part of the prompt that the server's store held, and how many tokens were left to process."""
    reused, context.reused = context.reused, None
    return reused


def effects(context: MlxContext) -> Mapping[str, int]:
    """How often what `EFFECTS` names has happened in the context."""
    return context.effects


def generate(
    context: MlxContext,
    sequence: int,
    n: int,
    *,
    stop: int | None = None,
    engine: str = generation.STEPS,
    past: str = "none",
    unstored: int = 1,
    neighbours: int = 0,
    late: int = 0,
    together: int = 8,
    prefill: int = 2048,
    drafts: int = 2,
    wrong_drafts: int = 2,
    early: int = 0,
    ends: int = 0,
    removed: int = 0,
) -> list[int]:
    """Tokens that the library chooses."""
    chosen = generation.GenerationFeatures(
        engine,
        past,
        unstored,
        neighbours,
        late,
        together,
        prefill,
        drafts,
        wrong_drafts,
        early,
        ends,
        removed,
    )
    with blocks(context.block):
        return generation.generate(context, sequence, n, chosen, stop)


def cancel(context: MlxContext, sequence: int, tokens: Sequence[int], after: int) -> None:
    """Remove a request from the batch generator."""
    with blocks(context.block):
        generation.cancel(context, sequence, tokens, after)


def script(
    model: str, seed: int, features: Mapping[str, Any], operations: Sequence[tuple[str, Mapping[str, Any]]]
) -> str:
    """A case with the library alone."""
    first, weights = features.get("first_layer", "recurrent"), features.get("weights", built.WEIGHTS[0])
    layout = built.layout(model, attention_first=first == "attention")
    deviation = _model(model, seed, first, weights).statecheck_deviation
    if features.get("block", BLOCK) != BLOCK:
        raise NotImplementedError("a script with blocks of another size")
    return script_of(model, seed, layout, deviation, operations, features.get("step", 0), weights)


@cache
def _model(model: str, seed: int, first_layer: str, weights: str) -> Any:
    try:
        made = built.verified(model, seed, 10 * TOLERANCE, attention_first=first_layer == "attention")
    except NotBuilt as error:
        raise NotImplementedError(f"not built: {error}") from error
    return built.rounded(made, weights)
