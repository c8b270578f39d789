"""Generation with mlx-lm's features, behind the tokens of a sequence."""

import inspect
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm import generate as library_generate
from mlx_lm.generate import BatchGenerator, generate_step, speculative_generate_step
from mlx_lm.models import cache as library_caches
from mlx_lm.models.cache import make_prompt_cache

from subjects.sequences.mlx_lm.context import MlxContext

STEPS, BATCHES, DRAFTS = "generate_step", "BatchGenerator", "speculative_generate_step"
ENGINES = (STEPS, BATCHES, DRAFTS)
STORE, FULL_STORE = "server's store", "server's full store"
PASTS = ("none", "prompt cache", STORE, FULL_STORE)
"""The whole prompt is processed; all but its last `unstored` tokens lie in a prompt cache; the server's store has that cache; it has those of other prompts,
too, of which it forgets the first one: a beginning of the prompt, another prompt, a longer one and one that parts from it."""
_STORED = 4
"""Caches that the store has room for: one fewer than come to a full store."""
_MOST_STEPS = 1000


@dataclass(frozen=True)
class GenerationFeatures:
    """GenerationFeatures of one call.

    Args:
        engine: of ENGINES.
        past: of PASTS.
        unstored: the last tokens of the prompt that are not in the cache before it.
        neighbours: other prompts of the batch.
        late: the neighbours are inserted when this many tokens were chosen; 0 for at once.
        early: they are inserted as many steps before the prompt, so that it is in prefill while they generate.
        ends: they end after as many tokens; 0 for after as many as are asked for.
        removed: they are removed after as many steps of the batch generator; 0 for never.
        together: requests that the batch generator processes at a time.
        prefill: tokens of a chunk of a prompt.
        drafts: tokens that the draft model proposes at a time.
        wrong_drafts: its proposal behind each token that this number divides is wrong; 0: none is.
    """

    engine: str = STEPS
    past: str = "none"
    unstored: int = 1
    neighbours: int = 0
    late: int = 0
    together: int = 8
    prefill: int = 2048
    drafts: int = 2
    wrong_drafts: int = 2
    early: int = 0
    ends: int = 0
    removed: int = 0


class ImperfectDraft:
    """A draft model with the weights of the model, whose proposals are wrong behind every few tokens: drafts are accepted and rejected by turns.

    A draft model that is a copy proposes what the model chooses, so that nothing is ever taken back.

    Args:
        wrong: behind tokens that this number divides; 0 for behind none.
    """

    def __init__(self, model: Any, wrong: int) -> None:
        self._model, self._wrong = model, wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        """Logits [B, T, V] of the model, shifted by a token where they are to be wrong."""
        logits = self._model(tokens, cache=cache)
        if not self._wrong:
            return logits
        return mx.where((tokens % self._wrong == 0)[..., None], mx.roll(logits, 1, axis=-1), logits)


def generate(
    context: MlxContext, name: int, count: int, features: GenerationFeatures, stop: int | None
) -> list[int]:
    """Choose `count` tokens behind a sequence, or fewer up to a stop token; the sequence has them afterwards, but for the last one.

    Raises:
        NotImplementedError: the library refuses the features in words, or they do not go together.
    """
    prompt = context.tokens[name]
    cache, rest = _past(context, prompt, features)
    is_continued = cache is not None and features.engine != DRAFTS
    context.effects["unstored: several tokens stood behind a cache"] += is_continued and len(rest) > 1
    cache = make_prompt_cache(context.model) if cache is None else cache
    if features.engine == BATCHES:
        tokens, after = _batched(context, prompt, rest, cache, count, features, stop)
    elif features.engine == DRAFTS:
        tokens, after = _until(drafted(context, prompt, count, features), stop), None
    else:
        context.effects["prefill: a prompt came in several chunks"] += len(rest) - 1 > features.prefill
        steps = generate_step(
            mx.array(rest),
            context.model,
            max_tokens=count,
            prompt_cache=cache,
            prefill_step_size=features.prefill,
        )
        tokens, after = _until((int(token) for token, _ in steps), stop), cache
    context.effects["stop: generation ended at a stop token"] += len(tokens) < count
    context.replace(name, [*prompt, *tokens], after)
    return tokens


def _until(tokens: Iterable[int], stop: int | None) -> list[int]:
    """The tokens up to the stop token, as a caller ends generation."""
    found: list[int] = []
    for token in tokens:
        found.append(token)
        if token == stop:
            break
    return found


def _past(
    context: MlxContext, prompt: list[int], features: GenerationFeatures
) -> tuple[list[Any] | None, list[int]]:
    """The cache of all but the last tokens of the prompt, and these; None for no cache. Before that, another request continues the cache that the store returns for it."""
    known = prompt[: -features.unstored]
    if features.past == "none" or not known:
        return None, prompt
    cache = _cache_of(context, known)
    if features.past == "prompt cache":
        context.effects["past: the cache of a prompt was continued"] += 1
        return cache, prompt[len(known) :]
    store = _store()
    others = _other_prompts(prompt, len(known)) if features.past == FULL_STORE else []
    for other in others:
        store.insert_cache("model", other, _cache_of(context, other))
    store.insert_cache("model", known, cache)
    another, _ = store.fetch_nearest_cache("model", [*known, prompt[0]])
    if another is not None:
        mx.eval(context.model(mx.array([prompt[:1]]), cache=another), [layer.state for layer in another])
    fetched, rest = store.fetch_nearest_cache("model", prompt)
    context.reused = known, len(rest)
    context.effects["past: a cache of the server's store was continued"] += fetched is not None
    # Where the first prompt is `known` itself it is not to be forgotten.
    context.effects["past: the server's store forgot a prompt"] += any(
        store.fetch_nearest_cache("model", first)[1] for first in others[:1] if first != known
    )
    return fetched, rest


def _cache_of(context: MlxContext, tokens: list[int]) -> list[Any]:
    """A prompt cache that has processed the tokens."""
    cache = make_prompt_cache(context.model)
    mx.eval(context.model(mx.array([tokens]), cache=cache), [layer.state for layer in cache])
    return cache


def _other_prompts(prompt: list[int], known: int) -> list[list[int]]:
    """Prompts that fill the store, the first to forget first; `known` tokens of the prompt are stored behind them."""
    parted = [*prompt[:-1], prompt[-1] % 15 + 1]
    return [prompt[: (known + 1) // 2], [prompt[0] % 15 + 1], [*prompt, 1], parted]


def _store() -> Any:
    """The server's store of prompt caches, which releases before 0.31.2 have in the server's module."""
    if hasattr(library_caches, "LRUPromptCache"):
        return library_caches.LRUPromptCache(_STORED)
    from mlx_lm import server

    return server.LRUPromptCache(_STORED)


def drafted(
    context: MlxContext, prompt: Sequence[int], count: int, features: GenerationFeatures
) -> list[int]:
    """With drafts of a model that is wrong now and then."""
    draft = ImperfectDraft(context.model, features.wrong_drafts)
    try:
        steps = [
            (int(token), bool(from_draft))
            for token, _, from_draft in speculative_generate_step(
                mx.array(list(prompt)),
                context.model,
                draft,
                num_draft_tokens=features.drafts,
                max_tokens=count,
            )
        ]
    except ValueError as error:
        if "trimmable" in str(error):
            raise NotImplementedError(str(error)) from error
        raise
    accepted, rejected = _counted([from_draft for _, from_draft in steps], count, features.drafts)
    context.effects["engine: a draft was accepted"] += accepted
    context.effects["engine: a draft was rejected"] += rejected
    return [token for token, _ in steps]


def _counted(from_draft: Sequence[bool], count: int, drafts: int) -> tuple[int, int]:
    """How many drafts were accepted, and how many were rejected before further tokens were chosen.

    Args:
        from_draft: of each token, whether it was a draft.
        count: tokens that were asked for.
        drafts: proposed at a time.
    """
    at = accepted = rejected = 0
    while at < len(from_draft):
        proposed = min(count - at, drafts)
        right = next((n for n in range(proposed) if not from_draft[at + n]), proposed)
        at, accepted = at + right + 1, accepted + right
        rejected += (proposed - right) if at < count else 0
    return accepted, rejected


def _batched(
    context: MlxContext,
    prompt: list[int],
    rest: list[int],
    cache: list[Any],
    count: int,
    features: GenerationFeatures,
    stop: int | None,
) -> tuple[list[int], list[Any] | None]:
    """With the batch generator: the tokens, and the cache that it returns with the last one."""
    generator = BatchGenerator(
        context.model,
        max_tokens=count,
        stop_tokens=_stops(stop),
        prefill_step_size=features.prefill,
        prefill_batch_size=features.together,
        completion_batch_size=features.together,
    )
    others = neighbours(prompt, features.neighbours)
    context.effects["together: a request waited for another one"] += len(others) >= features.together
    context.effects["prefill: a prompt came in several chunks"] += len(rest) - 1 > features.prefill
    insert = partial(generator.insert, max_tokens=[features.ends or count] * len(others))
    beside: list[int] = []
    steps = features.early if others else 0
    if steps:
        beside, others = insert(others), []
        context.effects["early: rows had begun before the prompt came"] += 1
        for _ in range(steps):
            generator.next()
    more: dict[str, Any] = {}
    if "all_tokens" in inspect.signature(generator.insert).parameters:
        more["all_tokens"] = [prompt[: len(prompt) - len(rest)]]
    (name,) = generator.insert([rest], caches=[cache], **more)
    chosen: list[int] = []
    after = None
    late = False
    try:
        while after is None and steps < _MOST_STEPS:
            if others and len(chosen) >= features.late:
                beside, others = insert(others), []
                late = bool(chosen)
            steps += 1
            responses = list(_responses(generator))
            own = [response for response in responses if response.uid == name]
            together = bool(own) and len(responses) > len(own)
            context.effects["neighbours: rows of a batch were generated together"] += together
            context.effects["late: a row joined one that was being generated"] += together and late
            ended = {response.uid for response in responses if response.finish_reason}
            context.effects["ends: a row ended before the prompt was processed"] += (
                not chosen and not own and bool(ended)
            )
            beside = [uid for uid in beside if uid not in ended]
            for response in own:
                chosen.append(int(response.token))
                if response.finish_reason:
                    after = response.prompt_cache
                    _check_tokens(getattr(response, "all_tokens", None), [*prompt, *chosen])
            if beside and features.removed and steps >= features.removed and after is None:
                generator.remove(beside)
                context.effects["removed: a row was removed from a batch"] += 1
                beside = []
    finally:
        generator.close()
    return chosen, after() if callable(after) else after


def _check_tokens(reported: Sequence[int] | None, held: Sequence[int]) -> None:
    """The tokens that come with a returned cache are those that it holds: the server stores the cache under them.

    Raises:
        RuntimeError: they are others. Releases before 0.31.3 report none.
    """
    if reported is not None and list(reported) != list(held):
        raise RuntimeError(f"all_tokens = {list(reported)}, but should be {list(held)} [BatchGenerator]")


def _stops(stop: int | None) -> Any:
    """A stop token as the release takes it: as a sequence, or in a set before 0.31.3."""
    if stop is None:
        return None
    return [[stop]] if hasattr(library_generate, "StopSequences") else {stop}


def cancel(context: MlxContext, name: int, tokens: Sequence[int], after: int) -> None:
    """A request to the batch generator, in chunks of two tokens, that is removed after some steps; the sequence goes on with the cache that is returned.

    Raises:
        NotImplementedError: the release returns no tokens with the cache.
    """
    held, whole = context.tokens.get(name, []), [*context.tokens.get(name, []), *tokens]
    cache = deepcopy(context.caches.get(name)) or make_prompt_cache(context.model)
    generator = BatchGenerator(context.model, max_tokens=_MOST_STEPS, prefill_step_size=2)
    if not hasattr(generator, "extract_cache"):
        raise NotImplementedError("cancel: a removed request has no tokens")
    try:
        (uid,) = generator.insert([list(tokens)], caches=[cache], all_tokens=[list(held)])
        for _ in range(after):
            generator.next()
        found, known = generator.remove([uid], return_prompt_caches=True)[uid]
    finally:
        generator.close()
    context.effects["cancel: a request was removed in its prompt"] += len(held) < len(known) < len(whole)
    context.effects["cancel: a request was removed when it generated"] += len(known) > len(whole)
    context.drop(name)
    if known and len(known) <= len(whole):
        context.caches[name], context.tokens[name] = found, list(known)


def _responses(generator: Any) -> Iterator[Any]:
    """Of one step, those with tokens. Releases before 0.31.3 return no others."""
    found = generator.next()
    yield from found[1] if isinstance(found, tuple) else found


def neighbours(prompt: Sequence[int], count: int) -> list[list[int]]:
    """A longer prompt, one of a single token, and the same."""
    longer = [*(token % 15 + 1 for token in reversed(prompt)), 3, 1, 2]
    return [longer, [7], list(prompt)][:count]
