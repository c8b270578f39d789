"""Tiny models of mlx-lm that have recurrent state, with random weights under which a lost state shows in the logits.

Which architectures there are is said by the sources of the installed release; a configuration is made of the fields of a model's dataclass of
arguments, by their names and types.
"""

import contextlib
import copy
import dataclasses
import importlib
import io
import itertools
import pkgutil
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

from subjects.sequences.sizes import NotBuilt, tiny

_STATE = re.compile(r"\b(ArraysCache|MambaCache)\b")
"""The caches of mlx-lm that hold states of a fixed size."""
_BASE = re.compile(r"^from \.(\w+) import [^\n]*\bModel\b|^from \. import (\w+)$", re.MULTILINE)


@cache
def architectures() -> tuple[str, ...]:
    """Modules of models that make such a cache, or that extend another module's model that does."""
    sources = {module.name: _source(module.name) for module in pkgutil.iter_modules(mlx_lm.models.__path__)}
    models = {
        name: source
        for name, source in sources.items()
        if re.search(r"^class ModelArgs\b", source, re.MULTILINE)
    }
    direct = {name for name, source in models.items() if _STATE.search(source)}
    return tuple(sorted(direct | {name for name, source in models.items() if _bases(source) & direct}))


def bases(architecture: str) -> set[str]:
    """Modules of models that a module extends."""
    return _bases(_source(architecture)) & set(architectures())


def module(architecture: str) -> Any:
    """The module of an architecture. Its output on import is dropped."""
    with contextlib.redirect_stdout(io.StringIO()):
        return importlib.import_module(f"mlx_lm.models.{architecture}")


def source(architecture: str) -> str:
    """The text of its module."""
    return _source(architecture)


def _source(name: str) -> str:
    path = Path(next(iter(mlx_lm.models.__path__)), f"{name}.py")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _bases(source: str) -> set[str]:
    return {name for match in _BASE.finditer(source) for name in match.groups() if name}


RECURRENT = (r"mamba", r"linear_attention", r"recurrent", r"conv_mixer|conv")
ATTENTION = ("full_attention", "attention")
_NAMES = ("layer_types", "layers_block_type", "block_types")
_ATTENTION_INDICES = ("full_attn_idxs", "sliding_window_layers")
_FLOATS = (
    (r".*eps(ilon)?", 1e-5),
    (r".*theta", 10000.0),
    (r".*soft_?cap.*", 30.0),
    (r"partial_rotary_factor", 0.5),
)
_OF_LARGE_MODELS = ("embedding_multiplier", "lm_head_multiplier")
"""Defaults for the widths of large models: with them the logits of a tiny one differ by less than `generate_step` rounds their logarithms to 16 bits."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Which layers a model has.

    Args:
        layers: their number.
        attention_first: the first layer is attention; else it is recurrent. They alternate.
        optional: values are given for fields that may be None, too.
        switches: the value of switches that have no default.
        scale: multiplies widths.
    """

    layers: int
    attention_first: bool = False
    optional: bool = False
    switches: bool = False
    scale: int = 1

    def is_attention(self, index: int) -> bool:
        return (index % 2 == 0) == self.attention_first


def arguments(architecture: str, layout: Layout) -> Any:
    """A tiny instance of the model's arguments.

    Raises:
        Exception: of the dataclass, which refuses the sizes.
    """
    taken = module(architecture).ModelArgs
    if "text_config" not in {field.name for field in dataclasses.fields(taken)}:
        return taken.from_dict(dict(_fields(taken, architecture, layout)))
    inner = next(iter(bases(architecture)), architecture)
    text = dict(_fields(_text_arguments(inner), inner, layout))
    return taken.from_dict({"model_type": architecture, "text_config": text})


def _text_arguments(architecture: str) -> Any:
    adapted = module(architecture)
    names = ("TextModelArgs", "TextArgs", "ModelArgs")
    return next(getattr(adapted, name) for name in names if hasattr(adapted, name))


def has_orders(architecture: str) -> bool:
    """Whether the kind of the first layer can be chosen."""
    names = {field.name for field in dataclasses.fields(module(architecture).ModelArgs)}
    return bool(names & {*_NAMES, *_ATTENTION_INDICES, "linear_attn_config", "attn_layer_offset"})


def _fields(arguments_type: Any, architecture: str, layout: Layout) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(arguments_type):
        value = _value(field, architecture, layout)
        if field.name == "num_key_value_heads" and "kv_lora_rank" in source(architecture):
            # Latent attention has as many heads for keys as for queries.
            value = tiny("num_attention_heads")
        if value is not None:
            yield field.name, value


def _value(field: Any, architecture: str, layout: Layout) -> Any:
    name, kind = field.name, str(field.type)
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    if name in ("num_hidden_layers", "num_layers"):
        return layout.layers
    if name in _NAMES:
        return _order(architecture, layout)
    if name in _ATTENTION_INDICES:
        return [index for index in range(layout.layers) if layout.is_attention(index)]
    if name == "linear_attn_config":
        return _linear_attention(layout)
    if name == "attn_layer_offset":
        return int(not layout.attention_first)
    if name == "model_type":
        return architecture
    if name in _OF_LARGE_MODELS:
        return 1.0
    size = tiny(name, layout.scale)
    if size is not None and "int" in kind:
        return size if required or layout.optional or field.default is not None else None
    if required or (layout.optional and field.default is None and "bool" in kind):
        return _required(name, kind, layout)
    return None


def _required(name: str, kind: str, layout: Layout) -> Any:
    """A value for a field that is no size and has no default."""
    if "Tuple" in kind or "tuple" in kind:
        return (0.0, 100.0)
    if "bool" in kind:
        return layout.switches
    if "List" in kind or "list" in kind:
        return []
    if "float" in kind:
        return next((value for pattern, value in _FLOATS if re.fullmatch(pattern, name)), 1.0)
    return 4 if "int" in kind else None


def _order(architecture: str, layout: Layout) -> Sequence[str] | None:
    text = source(architecture)
    recurrent = next(
        (found[1] for kind in RECURRENT if (found := re.search(rf"[\"']({kind})[\"']", text))), None
    )
    attention = next((kind for kind in ATTENTION if re.search(rf"[\"']{kind}[\"']", text)), None)
    if attention is None:
        return None
    # Some models take every other name for a recurrent layer.
    return [
        attention if layout.is_attention(index) else recurrent or "conv" for index in range(layout.layers)
    ]


def _linear_attention(layout: Layout) -> dict[str, Any]:
    numbers = range(1, layout.layers + 1)
    return {
        "kda_layers": [number for number in numbers if not layout.is_attention(number - 1)],
        "full_attn_layers": [number for number in numbers if layout.is_attention(number - 1)],
        "num_heads": 4,
        "head_dim": 8,
        "short_conv_kernel_size": 4,
    }


STANDARD_DEVIATIONS = (0.25, 0.35, 0.5)
"""Of weights with two dimensions. The first one under which the state shows is taken."""
_PROMPT, _ROUNDING = [1, 2, 3, 4, 5, 6, 7, 8], 0.001


@cache
def layout(architecture: str, *, attention_first: bool = False) -> Layout:
    """The smallest layout that the architecture accepts.

    Raises:
        NotBuilt: none of those that were tried; the message has the first error.
    """
    errors: list[str] = []
    # A model that runs only without a cache is built, too: that its cache fails is for the properties to say.
    candidates = list(_candidates(attention_first=attention_first))
    for with_cache, candidate in itertools.product((True, False), candidates):
        try:
            _run_once(architecture, candidate, with_cache=with_cache)
        except Exception as error:
            errors.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        else:
            return candidate
    raise NotBuilt(errors[0])


def orders(architecture: str) -> tuple[bool, ...]:
    """Whether attention is the first layer: both, where the configuration has a choice."""
    return (False, True) if has_orders(architecture) else (False,)


def build(architecture: str, seed: int, deviation: float, *, attention_first: bool = False) -> Any:
    """A model whose weights are drawn anew.

    Args:
        deviation: standard deviation of weights with two or more dimensions; those of convolutions over time have 1, decays are slow.
    """
    # Before the seed: a layout that is not known yet takes random numbers.
    given = arguments(architecture, layout(architecture, attention_first=attention_first))
    # Weights with one dimension keep the library's own initial values, which may be random.
    mx.random.seed(seed)
    model = module(architecture).Model(given)
    keys = mx.random.split(mx.random.key(seed), 1 + len(tree_flatten(model.parameters())))
    drawn = [
        (name, _drawn(name, weight, key, deviation))
        for (name, weight), key in zip(tree_flatten(model.parameters()), keys, strict=False)
    ]
    model.update(tree_unflatten(drawn))
    mx.eval(model.parameters())
    return model.eval() or model


WEIGHTS = ("float32", "8 bits", "4 bits", "bfloat16", "float16")
"""Types of weights. With those of fewer bits, in groups of 32, activations have 32 bits."""
GROUP = 32


def rounded(model: Any, weights: str) -> Any:
    """The model with weights of a type."""
    if weights == WEIGHTS[0]:
        return model
    if weights.endswith("bits"):
        nn.quantize(model, GROUP, int(weights[0]), class_predicate=_can_be_quantized)
    else:
        model.set_dtype(getattr(mx, weights))
    return model


def _can_be_quantized(_: str, layer: Any) -> bool:
    return hasattr(layer, "to_quantized") and layer.weight.shape[-1] % GROUP == 0


def verified(architecture: str, seed: int, least: float, *, attention_first: bool) -> Any:
    """A model with weights under which its states move the logits.

    Args:
        least: by how much of the largest logit.

    Raises:
        NotImplementedError: no weights that were tried show the states.
        NotBuilt: there is no such model.
    """
    moved = 0.0
    for deviation in STANDARD_DEVIATIONS:
        model = build(architecture, seed, deviation, attention_first=attention_first)
        moved = state_moves(model)
        if moved >= least:
            model.statecheck_deviation = deviation
            return model
    if loses_state(model):
        # That the logits do not depend on the states is for the properties to say.
        return model
    raise NotImplementedError(
        f"not verified: without its states the logits move by {moved:.2g} of their scale"
    )


def state_moves(model: Any) -> float:
    """By how much of the largest logit the next token's logits move if all states of a fixed size are zero."""
    held = make_prompt_cache(model)
    mx.eval(model(mx.array([_PROMPT]), cache=held))
    emptied = copy.deepcopy(held)
    for layer in _flat(emptied):
        if isinstance(layer, ArraysCache):
            layer.cache = [None if state is None else mx.zeros_like(state) for state in layer.cache]
    seen, without = (model(mx.array([[9]]), cache=cache).astype(mx.float32) for cache in (held, emptied))
    return float(mx.abs(seen - without).max() / mx.abs(seen).max())


def loses_state(model: Any) -> bool:
    """Whether the next token's logits behind a cache differ from those of a run over all tokens."""
    held = make_prompt_cache(model)
    mx.eval(model(mx.array([_PROMPT]), cache=held))
    seen = model(mx.array([[9]]), cache=held).astype(mx.float32)[0, -1]
    whole = model(mx.array([[*_PROMPT, 9]]), cache=make_prompt_cache(model)).astype(mx.float32)[0, -1]
    return float(mx.abs(seen - whole).max() / mx.abs(whole).max()) > _ROUNDING


def _flat(layers: Any) -> Iterator[Any]:
    for layer in layers:
        if isinstance(layer, CacheList):
            yield from _flat(layer.caches)
        else:
            yield layer


def _drawn(name: str, weight: mx.array, key: mx.array, deviation: float) -> mx.array:
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    noise = mx.random.normal(weight.shape, key=key).astype(weight.dtype)
    last = name.rsplit(".", 1)[-1]
    if "A_log" in last:
        return mx.full(weight.shape, -3.0, dtype=weight.dtype)
    if "conv" in name and weight.ndim >= 3:
        return noise
    if weight.ndim >= 2:
        return noise * deviation
    return weight + noise * 0.1 if last == "bias" or "dt" in last else weight


def _candidates(*, attention_first: bool) -> Iterator[Layout]:
    switches = (False, True)
    for scale, layers, optional, switch in itertools.product((1, 4), (2, 4), switches, switches):
        yield Layout(layers, attention_first=attention_first, optional=optional, switches=switch, scale=scale)


def _run_once(architecture: str, candidate: Layout, *, with_cache: bool) -> None:
    adapted = module(architecture)
    model = adapted.Model(arguments(architecture, candidate))
    mx.eval(model(mx.array([[1, 2, 3, 4, 5]]), cache=make_prompt_cache(model) if with_cache else None))
