"""`generate` with its features, behind the tokens of a sequence."""

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from transformers import CompileConfig

from oracle.sequences import generated_length
from subjects.sequences.transformers.batches import padded
from subjects.sequences.transformers.context import CROP_REFUSED, TransformersContext, empty_cache
from subjects.sequences.transformers.forward import NO_CACHE, cache_name, cache_of
from subjects.sequences.transformers.trace import current

_REFUSALS = (
    "is not supported with",
    "cannot use beam search",
    "Cannot use prefill chunking",
    "requires a cache",
    "Invalid layer type",
    "could not be found in the config",
    "not compatible with `cache`",
    "is only supported for",
    CROP_REFUSED,
)
"""The library's messages when it refuses a feature."""
NONE, CACHE, CONTINUED, CONTINUED_WHOLE = "none", "cache", "continued", "continued, whole prompt"
HISTORIES = (NONE, CACHE, CONTINUED, CONTINUED_WHOLE)
"""No cache; the cache that `generate` makes; that of the sequence, behind which `generate` gets the new tokens or all of them."""
CONTINUOUS = "continuous batching"
ASSISTANTS = {"assistant": 0.02, "other assistant": 0.5}
"""How much noise is on the weights of a model that makes candidates: it often agrees, or is another model."""
MODES = ("plain", "lookup", *ASSISTANTS, CONTINUOUS)


@dataclass(frozen=True)
class GenerateFeatures:
    """GenerateFeatures of one call.

    Args:
        history: of HISTORIES.
        beams: 1 for greedy search.
        neighbours: other prompts of the batch, which is padded on the left.
        chunk: tokens of a chunk of the prefill; 0 for one chunk.
        static: with a static cache.
        mode: of MODES.
        compiled: with a static cache and compiled forwards, without the code that a compiler would generate.
    """

    history: str = NONE
    beams: int = 1
    neighbours: int = 0
    chunk: int = 0
    static: bool = False
    mode: str = "plain"
    compiled: bool = False


def generate(
    context: TransformersContext, name: int, count: int, features: GenerateFeatures, stop: int | None
) -> list[int]:
    """Choose `count` tokens behind a sequence, or fewer up to a stop token; the sequence has them afterwards, but for the last one.

    Raises:
        NotImplementedError: the library refuses the features in words, or they do not go together.
    """
    try:
        return _generate(context, name, count, features, stop)
    except (ValueError, RuntimeError) as error:
        if any(words in str(error) for words in _REFUSALS):
            raise NotImplementedError(str(error)) from error
        raise
    except KeyError as error:
        kinds = getattr(context.model.config, "layer_types", ())
        if (features.static or features.compiled) and error.args[0] in kinds:
            # It raises NotImplementedError if there is no static layer for a kind of layer. Where there is one, the library failed.
            empty_cache(context.model, "static")
        raise


def _generate(
    context: TransformersContext, name: int, count: int, features: GenerateFeatures, stop: int | None
) -> list[int]:
    prompt = context.tokens[name]
    if features.mode == CONTINUOUS:
        # What it leaves in the model is for the feature `before` of contexts.
        chosen = _batched(copy.deepcopy(context.model), prompt, count, stop)
        context.effects["mode: continuous batching chose tokens"] += 1
        return chosen
    first: list[int] = []
    ids, mask = padded([prompt, *_neighbours(prompt, features.neighbours)], "left")
    options = _options(context.model, features)
    continues = features.history in (CONTINUED, CONTINUED_WHOLE)
    held: dict[str, Any] = {}
    if continues:
        batch, first, ids, mask = _continued(context, name, features)
        if count == 1 or first == [stop]:
            return first
        held[cache_name(context.model)] = batch.cache
    options |= {"max_new_tokens": count - len(first), "do_sample": False, "pad_token_id": 0}
    if stop is not None and features.beams > 1:
        # The tokens up to it, as they were without it, may belong to a beam that is not the best any more.
        raise NotImplementedError("generate: a stop token changes which of several beams is the best")
    if features.beams > 1 and context.model.dtype != torch.float32:
        # Their tokens are held against a fresh search's one by one, and two beams may differ by the last bit of a logit.
        raise NotImplementedError("generate: roundings to 16 bits change which of several beams is the best")
    if stop is not None:
        options["eos_token_id"] = stop
    label = ""
    if trace := current():
        held_by = batch.label if continues else ""
        label = trace.generated(ids, mask, options, cache_name(context.model), held_by, [*prompt, *first])
    with observed(context.model) as forwards:
        output = context.model.generate(
            input_ids=ids, attention_mask=mask, return_dict_in_generate=True, **options, **held
        )
    context.effects.update(_effects(features, ids, mask, output, forwards))
    tokens = first + [int(token) for token in output.sequences[0, ids.shape[1] :]]
    if len(output.sequences) > 1 or features.beams > 1:
        # A row that has ended is padded while others go on. Other tokens behind its end are wrong, and stay.
        length = generated_length(tuple(tokens), len(tokens), stop)
        tokens = tokens if any(tokens[length:]) else tokens[:length]
    context.effects["stop: generation ended at a stop token"] += len(tokens) < count
    found = cache_of(output)
    # A static cache is as long as what was asked for.
    grows = features.history != NONE and not (features.static or features.compiled)
    if found is not None and len(ids) == 1 and features.beams == 1 and grows:
        context.replace(name, [*prompt, *tokens[:-1]], found, label)
    else:
        _process(context, name, [*prompt, *tokens[:-1]])
    return tokens


@contextmanager
def observed(model: Any) -> Iterator[list[tuple[int, int]]]:
    """While it is entered, of each forward of the model the position of its first token, and the one behind its last."""
    positions: list[tuple[int, int]] = []

    def note(_: Any, positional: Any, named: Mapping[str, Any]) -> None:
        ids = named.get("input_ids", positional[0] if positional else None)
        if ids is None:
            return
        given = named.get("position_ids")
        # A model without positions never goes back.
        before = positions[-1][1] if positions else 0
        start = before if given is None else int(given.flatten()[0])
        positions.append((start, start + ids.shape[1]))

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield positions
    finally:
        hook.remove()


def _effects(
    features: GenerateFeatures,
    ids: torch.Tensor,
    mask: torch.Tensor,
    output: Any,
    forwards: Sequence[tuple[int, int]],
) -> Counter[str]:
    """Effects of the features in a call of `generate`."""
    found: Counter[str] = Counter()
    found["history: a cache of generate was used"] += (
        features.history == CACHE and cache_of(output) is not None
    )
    found["history: the cache of the sequence was continued"] += features.history == CONTINUED
    found["history: the whole prompt came with the cache"] += features.history == CONTINUED_WHOLE
    found["neighbours: the prompt was padded"] += not bool(mask.all())
    found["static: tokens were chosen with a static cache"] += features.static
    if features.compiled:
        # An effect of a feature that has to be asked for: without it, its name is not among the port's.
        found["compiled: a forward was compiled"] += 1
    beams = output.get("beam_indices")
    if beams is not None and features.beams > 1:
        found["beams: a beam took the place of another one"] += _moves(beams[0].tolist())
    chunks = [start for start, end in forwards if end <= int(mask[0].sum())]
    found["chunk: the prompt came in several chunks"] += features.chunk > 0 and len(chunks) > 1
    if features.mode in ("lookup", *ASSISTANTS):
        for (start, end), (then, _) in pairwise(forwards):
            found["mode: a candidate was rejected"] += then < end
            found["mode: a candidate was accepted"] += then > max(start, ids.shape[1] - 1) + 1
    return found


def _moves(rows: Sequence[int]) -> int:
    """How often the row of a beam changes; behind its end it has none."""
    return sum(row != before for before, row in pairwise(row for row in rows if row >= 0))


def _process(context: TransformersContext, name: int, tokens: list[int]) -> None:
    """Let the sequence have tokens without the cache of `generate`."""
    context.drop(name)
    context.extend([(name, tokens)])


def _continued(
    context: TransformersContext, name: int, features: GenerateFeatures
) -> tuple[Any, list[int], torch.Tensor, torch.Tensor]:
    """The cache of the sequence, and the token that it has not processed: the most likely one."""
    if features.beams > 1 or features.neighbours or features.static:
        raise NotImplementedError("the cache of one sequence is for one row of its own kind")
    last = context.last[name]
    if not last.numel():
        raise NotImplementedError("the logits behind the last token are gone")
    first = [int(last.argmax())]
    batch = context.isolated(name)
    if batch.cache == NO_CACHE:
        raise NotImplementedError("the sequence has no cache")
    if batch.right or not bool(batch.mask.all()):
        raise NotImplementedError("the cache has padding")
    tokens = [*context.tokens[name], *first]
    ids = torch.tensor([first if features.history == CONTINUED else tokens])
    return batch, first, ids, torch.ones((1, len(tokens)), dtype=torch.int64)


def _neighbours(prompt: Sequence[int], count: int) -> list[list[int]]:
    """A longer prompt, and one of a single token."""
    longer = [*(token % 15 + 1 for token in reversed(prompt)), 3, 1, 2]
    return [longer, [7], list(prompt)][:count]


def _options(model: Any, features: GenerateFeatures) -> dict[str, Any]:
    options: dict[str, Any] = {"use_cache": features.history != NONE, "num_beams": features.beams}
    if features.chunk:
        options["prefill_chunk_size"] = features.chunk
    if features.static:
        options |= {"cache_implementation": "static", "disable_compile": True}
    if features.compiled:
        config = CompileConfig(backend="eager", mode=None)
        # Compiled forwards are for other devices otherwise.
        config._compile_all_devices = True
        options |= {"cache_implementation": "static", "disable_compile": False, "compile_config": config}
    if features.mode == "lookup":
        options["prompt_lookup_num_tokens"] = 3
    if features.mode in ASSISTANTS:
        options["assistant_model"] = _assistant(model, ASSISTANTS[features.mode])
    return options


def _assistant(model: Any, noise: float) -> Any:
    """A model with noise on its weights."""
    assistant = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in assistant.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * noise)
    assistant.generation_config.num_assistant_tokens = 3
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    return assistant


def try_batches(model: Any) -> bool:
    """Generate with continuous batching, which the library may refuse; whether it has chosen a token."""
    with suppress(ValueError, RuntimeError, NotImplementedError, AttributeError):
        return bool(_batched(model, [1, 2], 1))
    return False


def _batched(model: Any, prompt: list[int], count: int, stop: int | None = None) -> list[int]:
    """With continuous batching, which has no feature of `generate`."""
    if not hasattr(model, "generate_batch"):
        raise NotImplementedError("the release has no continuous batching")
    config = copy.deepcopy(model.generation_config)
    config.max_new_tokens, config.do_sample = count, False
    if stop is not None:
        config.eos_token_id = stop
    outputs = model.generate_batch(inputs=[prompt], generation_config=config, progress_bar=False)
    if not outputs:
        raise NotImplementedError("continuous batching returns nothing")
    return [int(token) for token in next(iter(outputs.values())).generated_tokens]
