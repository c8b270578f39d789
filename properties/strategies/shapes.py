"""Model configurations: small random ones, and published models."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from properties.strategies.bounds import counts, drafts
from properties.strategies.layout import environment, layouts
from statecheck.case.values import Call


@dataclass(frozen=True)
class PublishedModel:
    """A published configuration, as far as its recurrent state goes.

    Args:
        source: the repository on Hugging Face and the fields of its config.json.
        family: the method of `MambaStateShapeCalculator` that its layers use.
        arguments: what that method takes beside the number of ranks and of speculative tokens.
    """

    name: str
    source: str
    family: str
    arguments: tuple[tuple[str, int], ...]


_MODELS = tomllib.loads(Path(__file__).with_name("published_models.toml").read_text(encoding="utf-8"))[
    "models"
]
PUBLISHED_MODELS = tuple(
    PublishedModel(**row | {"arguments": tuple(row["arguments"].items())}) for row in _MODELS
)
"""Nine published models, every family at least once."""
CALCULATOR = "MambaStateShapeCalculator"
TP_SIZES = (1, 2, 3, 4, 8, 16, 64)
"""Ranks: up to a node's eight and an odd number, and several nodes."""
TAKES_NUM_SPEC = frozenset(
    {"mamba2_state_shape", "short_conv_state_shape", "gated_delta_net_state_shape", "kda_state_shape"}
)


@dataclass(frozen=True)
class ShapeArguments:
    """A family's arguments, how many ranks share them, how many drafts, and the layout."""

    family: str
    arguments: tuple[tuple[str, int], ...]
    tp_size: int = 1
    num_spec: int = 0
    layout: str = "SD"
    published: str = ""

    @property
    def tp_argument(self) -> str:
        return "tp_size" if self.family == "linear_attention_state_shape" else "tp_world_size"

    def call(self) -> Call:
        spec = {"num_spec": self.num_spec} if self.family in TAKES_NUM_SPEC else {}
        keywords = {self.tp_argument: self.tp_size, **dict(self.arguments), **spec}
        chosen = tuple(environment(self.layout).items())
        return Call(f"{CALCULATOR}.{self.family}", (), tuple(keywords.items()), chosen)

    def on_one_rank(self) -> ShapeArguments:
        return replace(self, tp_size=1)


_OPTIONAL = {"kda_state_shape": frozenset({"num_k_heads", "head_k_dim", "conv_kernel_size"})}
WIDE_SIZES = (256, 2**16)
"""Sizes are numbers: where one has more than 8 or 16 bits; the product of two of the latter is no int32."""
_SMALL = counts(4, WIDE_SIZES, min_value=1, one_in=24)
_KERNELS = counts(5, (8,), min_value=2)
"""Taps of a convolution: models have 3 or 4; eight are a vector."""


@st.composite
def models(draw: st.DrawFn, *, families: tuple[str, ...] = ()) -> ShapeArguments:
    """Configurations that can be sharded over their ranks: small random ones and published ones.

    A published one is drawn in the place of a random one, which it therefore shrinks to.
    """
    family, tp_size = draw(_one_of(families or tuple(_RANDOM))), draw(_TP_SIZES)
    chosen = draw(_PUBLISHED[family])
    arguments = draw(_arguments(family, tp_size))
    num_spec = draw(_DRAFTS) if family in TAKES_NUM_SPEC else 0
    small = ShapeArguments(family, arguments, tp_size, num_spec, draw(_LAYOUTS))
    if chosen is None or not _divisible(dict(chosen.arguments), tp_size):
        return small
    return replace(small, arguments=chosen.arguments, published=chosen.name)


# Strategies are made once for each family: making them takes longer than drawing from them.
_TP_SIZES, _DRAFTS, _LAYOUTS = st.sampled_from(TP_SIZES), drafts(few=3), layouts()


@cache
def _one_of(families: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from(families)


@cache
def _arguments(family: str, tp_size: int) -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    """Arguments in the order of the family's sizes; those that are optional may be missing."""
    sizes, optional = _RANDOM[family](tp_size), _OPTIONAL.get(family, frozenset())
    needed = {name: size for name, size in sizes.items() if name not in optional}
    others = {name: size for name, size in sizes.items() if name in optional}
    return st.fixed_dictionaries(needed, optional=others).map(
        lambda found: tuple((name, found[name]) for name in sizes if name in found)
    )


def _divisible(arguments: dict[str, int], tp: int) -> bool:
    counts = [
        value for name, value in arguments.items() if name.startswith("num_") or name == "intermediate_size"
    ]
    groups = arguments.get("n_groups", tp)
    return all(count % tp == 0 for count in counts) and (groups % tp == 0 or tp % groups == 0)


def _shared(tp: int) -> st.SearchStrategy[int]:
    """Counts that `tp` ranks can share evenly."""
    return _SMALL.map(lambda n: n * tp)


def _groups(tp: int) -> st.SearchStrategy[int]:
    """Groups that the ranks share evenly, or that are fewer and divide the ranks."""
    divisors = [n for n in range(1, tp + 1) if tp % n == 0]
    return st.sampled_from(divisors) | _shared(tp)


# A failure shrinks to the first family that shows it, so those with the least to write down come first.
_RANDOM = {
    "linear_attention_state_shape": lambda tp: {"num_heads": _shared(tp), "head_dim": _SMALL},
    "short_conv_state_shape": lambda tp: {"intermediate_size": _shared(tp), "conv_kernel": _KERNELS},
    "mamba1_state_shape": lambda tp: {
        "intermediate_size": _shared(tp),
        "state_size": _SMALL,
        "conv_kernel": _KERNELS,
    },
    "kda_state_shape": lambda tp: {
        "num_heads": _shared(tp),
        "head_dim": _SMALL,
        "num_k_heads": _shared(tp),
        "head_k_dim": _SMALL,
        "conv_kernel_size": _KERNELS,
    },
    "gated_delta_net_state_shape": lambda tp: {
        "num_k_heads": _shared(tp),
        "num_v_heads": _shared(tp),
        "head_k_dim": _SMALL,
        "head_v_dim": _SMALL,
        "conv_kernel_size": _KERNELS,
    },
    "mamba2_state_shape": lambda tp: {
        "intermediate_size": _shared(tp),
        "n_groups": _groups(tp),
        "num_heads": _shared(tp),
        "head_dim": _SMALL,
        "state_size": _SMALL,
        "conv_kernel": _KERNELS,
    },
}
_PUBLISHED = {
    family: st.sampled_from((None, None, *(model for model in PUBLISHED_MODELS if model.family == family)))
    for family in _RANDOM
}
"""The published models of each family, or none of them."""
