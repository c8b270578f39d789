"""A case as about twenty lines that need mlx and mlx-lm alone, around which statecheck writes `compare` and `equal`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from oracle.sequences import FORMS
from subjects.sequences.mlx_lm import generation
from subjects.sequences.mlx_lm.models import GROUP, WEIGHTS, Layout, arguments

_TEMPLATE = """\
# pip install mlx-lm=={release} "mlx[cpu]=={mlx}"
import copy, mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache, trim_prompt_cache
from mlx_lm.models.{module} import Model, ModelArgs
mx.random.seed({seed}); model = Model(ModelArgs.from_dict({fields}))
def draw(name, w, key):  # with smaller weights a lost state does not show
    noise, last = mx.random.normal(w.shape, key=key), name.rsplit(".", 1)[-1]
    scale = 1 if "conv" in name and w.ndim > 2 else {deviation} if w.ndim > 1 else 0.1 if last == "bias" or "dt" in last else 0
    return mx.full(w.shape, -3.0) if "A_log" in last else noise * scale + (w if w.ndim < 2 else 0)
weights = tree_flatten(model.parameters()); keys = mx.random.split(mx.random.key({seed}), 1 + len(weights))
model.update(tree_unflatten([(name, draw(name, w, key)) for (name, w), key in zip(weights, keys)])); model.eval()
def show(tokens, logits, fresh=lambda tokens: model(mx.array([tokens]), cache=make_prompt_cache(model))[0, -1]):
    compare(f"behind {{tokens}}", logits.tolist(), fresh(tokens).tolist())
"""


def script_of(
    model: str,
    seed: int,
    layout: Layout,
    deviation: float,
    operations: Sequence[tuple[str, Mapping[str, Any]]],
    step: int,
    weights: str = WEIGHTS[0],
) -> str:
    """The text.

    Args:
        operations: by name, with their arguments.
        step: tokens of a chunk of the rows that are processed; 0 for one chunk.
        weights: their type.

    Raises:
        NotImplementedError: an operation is not written here.
    """
    head = _TEMPLATE.format(
        release=version("mlx-lm"),
        mlx=version("mlx"),
        module=model.replace("-", "_"),
        fields=_fields(arguments(model, layout)),
        seed=seed,
        deviation=deviation,
    )
    writer = _Writer(step)
    if weights.endswith("bits"):
        head += f"from mlx import nn; nn.quantize(model, {GROUP}, {weights[0]}, class_predicate=lambda _, m: hasattr(m, 'to_quantized') and m.weight.shape[-1] % {GROUP} == 0)\n"
    elif weights != WEIGHTS[0]:
        head += f"model.set_dtype(mx.{weights})\n"
    lines = [line for name, given in operations for line in writer.take(name, dict(given))]
    return head + "\n".join(lines) + "\n"


def _fields(made: Any) -> dict[str, Any]:
    """The fields of arguments that have no default, or another value than it."""
    found = {}
    for field in dataclasses.fields(made):
        value, default = getattr(made, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            found[field.name] = value
    return found


class _Writer:
    """Lines for operations, and the tokens of each sequence by the name of its cache."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._tokens: dict[str, list[int]] = {}

    def take(self, name: str, given: dict[str, Any]) -> Iterator[str]:
        """The lines for one operation."""
        self._context = given.pop("context")
        yield from getattr(self, name)(**given)

    def extend(self, rows: Sequence[tuple[int, Sequence[int]]], features: Any = None) -> Iterator[str]:
        if any((features or {}).get(form) for form in FORMS):
            raise NotImplementedError("a form of an extension")
        names = [self._cache(number) for number, _ in rows]
        for name in names:
            if name not in self._tokens:
                yield f"{name} = make_prompt_cache(model)"
            self._tokens.setdefault(name, [])
        new = [list(tokens) for _, tokens in rows]
        for name, tokens in zip(names, new, strict=True):
            self._tokens[name] = self._tokens[name] + tokens
        if len(rows) == 1:
            step = self._step or len(new[0])
            for start in range(0, len(new[0]), step):
                yield f"logits = model(mx.array([{new[0][start : start + step]}]), cache={names[0]})"
            yield f"show({self._tokens[names[0]]}, logits[0, -1])"
            return
        width = max(map(len, new))
        padded = [[*tokens, *[0] * (width - len(tokens))] for tokens in new]
        yield from self._merge(names)
        if any(len(tokens) < width for tokens in new):
            lengths, padding = [len(tokens) for tokens in new], [width - len(tokens) for tokens in new]
            yield f"for layer in batch: layer.prepare(lengths={lengths}, right_padding={padding})"
        step = self._step or width
        parts = [[row[start : start + step] for row in padded] for start in range(0, width, step)]
        several = f"mx.concatenate([model(mx.array(part), cache=batch) for part in {parts}], axis=1)"
        yield f"logits = {f'model(mx.array({padded}), cache=batch)' if len(parts) == 1 else several}"
        if any(len(tokens) < width for tokens in new):
            yield "for layer in batch: layer.finalize()"
        yield f"{', '.join(names)} = ([layer.extract(row) for layer in batch] for row in range({len(names)}))"
        for row, (name, tokens) in enumerate(zip(names, new, strict=True)):
            yield f"show({self._tokens[name]}, logits[{row}, {len(tokens) - 1}])"

    def fork(self, source: int, target: int) -> Iterator[str]:
        self._tokens[self._cache(target)] = list(self._tokens[self._cache(source)])
        yield f"{self._cache(target)} = copy.deepcopy({self._cache(source)})"

    def drop(self, sequence: int) -> Iterator[str]:
        self._tokens.pop(self._cache(sequence), None)
        yield from ()

    def roll_back(self, sequence: int, n: int) -> Iterator[str]:
        cache = self._cache(sequence)
        self._tokens[cache] = self._tokens[cache][:-n]
        yield f"assert trim_prompt_cache({cache}, {n}) == {n}"

    def save(self, sequence: int, name: str) -> Iterator[str]:
        self._tokens[name] = list(self._tokens[self._cache(sequence)])
        yield f"save_prompt_cache({name + '.safetensors'!r}, {self._cache(sequence)})"

    def load(self, sequence: int, name: str) -> Iterator[str]:
        self._tokens[self._cache(sequence)] = list(self._tokens[name])
        yield f"{self._cache(sequence)} = load_prompt_cache({name + '.safetensors'!r})"

    def reorder(self, order: Sequence[int]) -> Iterator[str]:
        prefix = self._cache(0)[:-1]
        held = {
            name: tokens
            for name, tokens in sorted(self._tokens.items())
            if name.removeprefix(prefix).isdigit()
        }
        taken = {
            number: self._cache(source) for number, source in enumerate(order) if self._cache(source) in held
        }
        if taken:
            yield from self._merge(list(held))
            rows = [list(held).index(source) for source in taken.values()]
            yield f"for layer in batch: layer.filter(mx.array({rows}))"
            yield f"{', '.join(map(self._cache, taken))}, = ([layer.extract(row) for layer in batch] for row in range({len(taken)}))"
        for number in range(len(order)):
            self._tokens.pop(self._cache(number), None)
        self._tokens |= {self._cache(number): list(held[source]) for number, source in taken.items()}

    def generate(self, sequence: int, n: int, features: Mapping[str, Any]) -> Iterator[str]:
        name = self._cache(sequence)
        prompt = self._tokens[name]
        given = generation.GenerationFeatures(**features)
        if (
            given.engine == generation.DRAFTS
            or given.past in (generation.STORE, generation.FULL_STORE)
            or any((given.late, given.early, given.ends, given.removed))
        ):
            raise NotImplementedError(f"a script with {given}")
        rest = prompt
        yield f"{name} = make_prompt_cache(model)"
        if given.past != "none" and len(prompt) > given.unstored:
            rest = prompt[-given.unstored :]
            yield f"mx.eval(model(mx.array([{prompt[: -given.unstored]}]), cache={name}), [layer.state for layer in {name}])"
        if given.engine == generation.BATCHES:
            sizes = f"max_tokens={n}, prefill_step_size={given.prefill}, prefill_batch_size={given.together}, completion_batch_size={given.together}"
            others = generation.neighbours(prompt, given.neighbours)
            yield f"generator, found = BatchGenerator(model, {sizes}), []"
            yield f"(uid,) = generator.insert([{rest}], caches=[{name}], all_tokens=[{prompt[: len(prompt) - len(rest)]}])"
            if others:
                yield f"generator.insert({others})"
            yield f"while len(found) < {n}: found += [one.token for one in generator.next()[1] if one.uid == uid]"
        else:
            yield f"found = [int(token) for token, _ in generate_step(mx.array({rest}), model, max_tokens={n}, prompt_cache={name}, prefill_step_size={given.prefill})]"
        alone = f"generate_step(mx.array({prompt}), model, max_tokens={n})"
        yield f'equal("generated tokens", found, [int(token) for token, _ in {alone}])'

    def _merge(self, names: Sequence[str]) -> Iterator[str]:
        yield f"batch = [type(parts[0]).merge(list(parts)) for parts in zip({', '.join(names)})]"

    def _cache(self, number: int) -> str:
        return f"c{number}" if not self._context else f"c{self._context}_{number}"
