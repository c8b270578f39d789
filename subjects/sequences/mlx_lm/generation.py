"""Generation with mlx-lm's features, behind the tokens of a sequence."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, generate_step, speculative_generate_step
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache

from subjects.sequences.mlx_lm.context import MlxContext

STEPS, BATCHES, DRAFTS = "generate_step", "BatchGenerator", "speculative_generate_step"
ENGINES = (STEPS, BATCHES, DRAFTS)
STORE = "server's store"
PASTS = ("none", "prompt cache", STORE)
"""The whole prompt is processed; all but its last token lie in a prompt cache; the server's store has that cache."""
_MOST_STEPS = 1000


@dataclass(frozen=True)
class GenerationFeatures:
    """GenerationFeatures of one call.

    Args:
        engine: of ENGINES.
        past: of PASTS.
        neighbours: other prompts of the batch.
        late: the neighbours are inserted when this many tokens were chosen; 0 for at once.
        together: requests that the batch generator processes at a time.
        prefill: tokens of a chunk of a prompt.
    """

    engine: str = STEPS
    past: str = "none"
    neighbours: int = 0
    late: int = 0
    together: int = 8
    prefill: int = 2048


def generate(context: MlxContext, name: int, count: int, features: GenerationFeatures) -> list[int]:
    """Choose `count` tokens behind a sequence, which has them afterwards, but for the last one.

    Raises:
        NotImplementedError: the library refuses the features in words, or they do not go together.
    """
    prompt = context.tokens[name]
    cache = _past(context, prompt, features.past)
    rest = prompt if cache is None else prompt[-1:]
    cache = make_prompt_cache(context.model) if cache is None else cache
    if features.engine == BATCHES:
        tokens, after = _batched(context.model, prompt, rest, cache, count, features)
    elif features.engine == DRAFTS:
        tokens, after = _drafted(context.model, prompt, count), None
    else:
        steps = generate_step(
            mx.array(rest),
            context.model,
            max_tokens=count,
            prompt_cache=cache,
            prefill_step_size=features.prefill,
        )
        tokens, after = [int(token) for token, _ in steps], cache
    context.replace(name, [*prompt, *tokens], after)
    return tokens


def _past(context: MlxContext, prompt: Sequence[int], past: str) -> list[Any] | None:
    """The cache of all but the last token of the prompt; None for none."""
    known = list(prompt[:-1])
    if past == "none" or not known:
        return None
    cache = make_prompt_cache(context.model)
    mx.eval(context.model(mx.array([known]), cache=cache), [layer.state for layer in cache])
    if past == "prompt cache":
        return cache
    store = LRUPromptCache(4)
    store.insert_cache("model", known, cache)
    fetched, rest = store.fetch_nearest_cache("model", list(prompt))
    if fetched is None or len(rest) != 1:
        raise NotImplementedError("the store has no cache of exactly these tokens")
    found: list[Any] = fetched
    return found


def _drafted(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """With drafts of a model of the same weights."""
    try:
        steps = speculative_generate_step(mx.array(list(prompt)), model, copy.copy(model), max_tokens=count)
        return [int(token) for token, _, _ in steps]
    except ValueError as error:
        if "trimmable" in str(error):
            raise NotImplementedError(str(error)) from error
        raise


def _batched(
    model: Any, prompt: list[int], rest: list[int], cache: list[Any], count: int, features: GenerationFeatures
) -> tuple[list[int], list[Any] | None]:
    """With the batch generator: the tokens, and the cache that it returns with the last one."""
    generator = BatchGenerator(
        model,
        max_tokens=count,
        prefill_step_size=features.prefill,
        prefill_batch_size=features.together,
        completion_batch_size=features.together,
    )
    others = neighbours(prompt, features.neighbours)
    (name,) = generator.insert([rest], caches=[cache], all_tokens=[prompt[: len(prompt) - len(rest)]])
    chosen: list[int] = []
    after = None
    try:
        for _ in range(_MOST_STEPS):
            if others and len(chosen) >= features.late:
                generator.insert(others)
                others = []
            for response in generator.next()[1]:
                if response.uid == name:
                    chosen.append(int(response.token))
                    after = response.prompt_cache if response.finish_reason else None
            if len(chosen) >= count:
                break
    finally:
        generator.close()
    return chosen, after


def neighbours(prompt: Sequence[int], count: int) -> list[list[int]]:
    """A longer prompt, one of a single token, and the same."""
    longer = [*(token % 15 + 1 for token in reversed(prompt)), 3, 1, 2]
    return [longer, [7], list(prompt)][:count]
