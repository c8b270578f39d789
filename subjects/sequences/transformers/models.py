"""Tiny models of transformers, each from its configuration class alone.

Which causal architectures have recurrent state is said by the installed release's own registry and sources. A configuration is made of the fields of
its class, by their names, and of the kinds of layers by its own default.
"""

import inspect
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from subjects.sequences.sizes import NotBuilt, tiny

_STATE = re.compile(r"\b(conv|ssm|recurrent)_states?\b|\blinear_attention\b|\b_is_stateful = True\b")
"""Marks in the sources of models with recurrent state: a name of a state, a kind of layer, or the flag that forbids rollback."""


@cache
def architectures() -> dict[str, str]:
    """The class of each architecture by its model type; where several types share a class, the last one, which is that of the text model."""
    types = {
        class_name: model_type
        for model_type, class_name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
        if _has_state(model_type, class_name)
    }
    return {
        model_type: class_name for class_name, model_type in sorted(types.items(), key=lambda item: item[1])
    }


def model_class(architecture: str) -> Any:
    """The class of an architecture."""
    return getattr(transformers, architectures()[architecture])


def configuration_class(architecture: str) -> Any:
    """The class of its configuration; that of the text model, where the registered one has several parts."""
    expected = getattr(model_class(architecture), "config_class", None)
    return expected if expected is not None else CONFIG_MAPPING[architecture]


def _has_state(model_type: str, class_name: str) -> bool:
    """Whether the module of the class mentions a state. The source is read, not imported: an import of all, which are hundreds, takes ten seconds."""
    folder = (
        Path(transformers.__file__).parent
        / "models"
        / model_type_to_module_name(model_type).replace(".", "/")
    )
    defines = re.compile(rf"^class {re.escape(class_name)}\b", re.MULTILINE)
    sources = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("modeling_*.py")))
    return any(defines.search(source) and _STATE.search(source) for source in sources)


_TOKENS = re.compile(r"(bos|eos|pad)_token_id")
_LAYER_COUNTS = ("num_hidden_layers", "num_blocks")
_KINDS = ("layer_types", "layers_block_type", "block_types")
_PLACES = ("attn_layer_indices", "attn_layer_offset")
"""Where attention layers stand between the others."""
_OTHER_LISTS = ("mlp_layer_types",)
_TEXTS = {"autocast_kernel_dtype": "float32"}
"""Kernels that compute in half precision by default would hide small differences."""
_KNOWN_KINDS = ("conv", "full_attention", "linear_attention", "sliding_attention", "hybrid", "hybrid_sliding")


@cache
def default_kinds(architecture: str) -> tuple[str, ...]:
    """The kinds of layers in the default configuration; () where it has no list of them."""
    name, default = _kinds_of_default(architecture)
    if name in _PLACES:
        return ("linear_attention", "full_attention")
    return tuple(kind for kind in dict.fromkeys(default) if kind not in ("moe", "mlp"))


@cache
def named_kinds(architecture: str) -> tuple[str, ...]:
    """Further kinds that the model's source names, where the default has less than two: the architecture may refuse them."""
    name, _ = _kinds_of_default(architecture)
    if name is None or len(default_kinds(architecture)) > 1:
        return ()
    source = Path(inspect.getfile(model_class(architecture))).read_text(encoding="utf-8")
    named = [kind for kind in _KNOWN_KINDS if re.search(rf"[\"']{kind}[\"']", source)]
    return tuple(kind for kind in named if kind not in default_kinds(architecture))


def configuration(
    architecture: str,
    kinds: Sequence[str],
    layers: int,
    first: str | None = None,
    scale: int = 1,
    **fields: Any,
) -> Any:
    """A tiny configuration.

    Args:
        kinds: of layers.
        layers: their number.
        first: the kind of the first layer; the others follow in their order, round and round.
        scale: multiplies widths.
        fields: override those that the tables of sizes give.

    Raises:
        Exception: of the configuration class, which refuses the sizes.
    """
    windows = any("sliding" in kind for kind in kinds)
    given = dict(_fields(architecture, layers, scale, windows=windows))
    name, _ = _kinds_of_default(architecture)
    if name == "attn_layer_offset":
        given[name] = int(first == "linear_attention")
    elif name == "attn_layer_indices":
        order = rotated(kinds, first, layers)
        given[name] = [index for index, kind in enumerate(order) if kind == "full_attention"]
    elif name is not None and kinds:
        given[name] = rotated(kinds, first, layers)
    given.update(fields)
    made = configuration_class(architecture)(**given)
    made.bos_token_id = made.eos_token_id = None
    made.pad_token_id = 0
    return made


def rotated(kinds: Sequence[str], first: str | None, length: int) -> list[str]:
    """`length` kinds in their order, beginning with `first`."""
    start = kinds.index(first) if first is not None else 0
    return [kinds[(start + index) % len(kinds)] for index in range(length)]


def _fields(architecture: str, layers: int, scale: int, *, windows: bool) -> Iterator[tuple[str, Any]]:
    default = _default(architecture)
    count = max(getattr(default, name, None) or 0 for name in _LAYER_COUNTS)
    heads = getattr(default, "num_attention_heads", None)
    for name, parameter in _parameters(architecture).items():
        if name in _TEXTS:
            yield name, _TEXTS[name]
        elif _TOKENS.fullmatch(name):
            yield name, 0 if name == "pad_token_id" else None
        elif name in _LAYER_COUNTS:
            if parameter.default is not None:
                yield name, layers
        elif name in _OTHER_LISTS:
            values: Sequence[Any] = getattr(default, name, None) or ()
            if len(values) == count:
                yield name, [values[-1] if index else values[0] for index in range(layers)]
        elif (size := _size(name, parameter.default, scale, windows=windows)) is not None:
            # Latent attention has as many heads for keys as for queries.
            yield name, 4 if name == "num_key_value_heads" and parameter.default in (heads, None) else size


def _size(name: str, default: Any, scale: int, *, windows: bool) -> int | None:
    optional = default is None and (name.startswith("indexer_") or (windows and name == "sliding_window"))
    if (not isinstance(default, int) or isinstance(default, bool)) and not optional:
        return None
    size = tiny(name, scale)
    return size if size is None or default is None or name == "pad_token_id" else min(size, max(default, 1))


@cache
def _parameters(architecture: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(configuration_class(architecture).__init__).parameters)


@cache
def _default(architecture: str) -> Any:
    return configuration_class(architecture)()


@cache
def _kinds_of_default(architecture: str) -> tuple[str | None, tuple[str, ...]]:
    """The field that lists the kinds of layers, and its value by default."""
    for name in (*_KINDS, *_PLACES):
        if name in _parameters(architecture):
            return name, tuple(
                map(str, getattr(_default(architecture), name, None) or ())
            ) if name in _KINDS else ()
    return None, ()


_SECONDS = 60.0
_SCALES = (1, 2, 4)


@dataclass(frozen=True)
class ModelSizes:
    """Sizes with which an architecture can be built and runs."""

    kinds: tuple[str, ...]
    layers: int
    scale: int


@cache
def layer_kinds(architecture: str) -> tuple[str, ...]:
    """The kinds of layers that an architecture mixes; () where it has no list of them."""
    kinds = list(default_kinds(architecture))
    for kind in named_kinds(architecture):
        try:
            _plan(architecture, (*kinds, kind), None)
        except NotBuilt:
            continue
        kinds.append(kind)
    return tuple(kinds)


def plan(architecture: str, first: str | None = None) -> ModelSizes:
    """The smallest sizes that the architecture accepts.

    Raises:
        NotBuilt: none of those that were tried; the message has the first error.
    """
    return _plan(architecture, layer_kinds(architecture), first)


@cache
def _plan(architecture: str, kinds: tuple[str, ...], first: str | None) -> ModelSizes:
    errors: list[str] = []
    end = time.monotonic() + _SECONDS
    # A model that runs only without a cache is built, too: that its cache fails is for the properties to say.
    for with_cache in (True, False):
        for candidate in _candidates(kinds):
            if time.monotonic() > end:
                break
            try:
                _run_once(architecture, candidate, first, with_cache=with_cache)
            except Exception as error:
                errors.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
            else:
                return candidate
    raise NotBuilt(errors[0] if errors else "no time")


def build(architecture: str, seed: int, first: str | None = None) -> Any:
    """A model in evaluation mode, with the library's own initial weights of that seed."""
    sizes = plan(architecture, first)
    torch.manual_seed(seed)
    return _made(architecture, sizes, first)


def _candidates(kinds: tuple[str, ...]) -> Iterator[ModelSizes]:
    least = max(2, len(kinds))
    for scale in _SCALES:
        for layers in sorted({least, max(3, least), 2 * least}):
            yield ModelSizes(kinds, layers, scale)


def _made(architecture: str, sizes: ModelSizes, first: str | None) -> Any:
    return model_class(architecture)(
        configuration(architecture, sizes.kinds, sizes.layers, first, sizes.scale)
    ).eval()


def _run_once(architecture: str, sizes: ModelSizes, first: str | None, *, with_cache: bool) -> None:
    model = _made(architecture, sizes, first)
    tokens = torch.arange(1, 8)[None]
    with torch.no_grad():
        model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=with_cache)
