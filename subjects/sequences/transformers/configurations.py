"""Tiny configurations: the fields of a configuration class by their names, and the kinds of layers by its own default."""

import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from subjects.sequences.sizes import tiny
from subjects.sequences.transformers.architectures import configuration_class, model_class

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
