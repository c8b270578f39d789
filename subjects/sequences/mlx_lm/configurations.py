"""Tiny configurations of mlx-lm: the fields of a model's dataclass of arguments by their names and types."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from subjects.sequences.mlx_lm.architectures import bases, module, source
from subjects.sequences.sizes import tiny

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
