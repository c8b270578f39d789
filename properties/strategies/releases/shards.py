"""States that one engine sends to another: a model, sizes, numbers of ranks, slots and element types."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from oracle.shards import FAMILIES
from statecheck.case.values import Call, call

SLOTS = 4
"""Slots of each pool; the first is not used."""
MODELS = {
    "bailing_hybrid": "linear",
    "lfm2": "short_conv",
    "mamba": "mamba1",
    "kimi_linear": "kda",
    "qwen3_next": "gdn",
    "gigachat35": "gdn",
    "mamba2": "mamba2",
    "nemotron_h": "mamba2",
    "falcon_h1": "mamba2",
    "granitemoehybrid": "mamba2",
    "zaya": "cca",
}
"""Models, by the type that their configuration names, with the family of their recurrent layers."""


@dataclass(frozen=True)
class SentState:
    """A request's states, sent from a slot of `source_tp` ranks to a slot of `target_tp` ranks."""

    family: str
    model: str
    sizes: tuple[tuple[str, int], ...]
    source_tp: int
    target_tp: int
    source_slot: int = 1
    target_slot: int = 1
    dtypes: tuple[str, str] = ("float32", "float32")
    padding: int = 0
    """How much larger a slot is than its states, where slots have padding; an odd one divides a block among two pages of the attention kernel."""

    def call(self, mechanism: str) -> Call:
        return call(
            f"StateTransfer.{mechanism}",
            family=self.family,
            model=self.model,
            sizes=self.sizes,
            source_tp=self.source_tp,
            target_tp=self.target_tp,
            slots=(self.source_slot, self.target_slot),
            dtypes=self.dtypes,
            padding=self.padding,
        )


_SMALL, _COMPARED_BY_LEVEL = st.integers(1, 3), st.integers(1, 2)
_SIZES = {
    "head_dim": _SMALL,
    "head_k_dim": _SMALL,
    "head_v_dim": _SMALL,
    "state_size": _SMALL,
    "hidden_size": _SMALL,
    "conv_kernel": st.integers(2, 4),
}
_RANKS = st.sampled_from((1, 2, 3, 4))
_RATIOS = st.sampled_from((1, 2, 4))


@st.composite
def sent_states(draw: st.DrawFn) -> SentState:
    """States between engines of which one has a whole multiple of the other's ranks."""
    model, family = draw(st.sampled_from(tuple(MODELS.items())))
    few = draw(_RANKS)
    many = few * draw(_RATIOS)
    source, target = (few, many) if draw(st.booleans()) else (many, few)
    sizes = tuple((name, _size(draw, name, many)) for name in FAMILIES[family])
    return SentState(
        family,
        model,
        sizes,
        source,
        target,
        draw(st.integers(1, SLOTS - 1)),
        draw(st.integers(1, SLOTS - 1)),
        (draw(_DTYPES), draw(_DTYPES)),
        draw(st.integers(0, 2)),
    )


_DTYPES = st.sampled_from(("float32", "bfloat16"))


def _size(draw: st.DrawFn, name: str, ranks: int) -> int:
    """A size; all ranks hold as many heads and channels, and groups, unless there is one for all."""
    if name in _SIZES:
        return draw(_SIZES[name])
    if name == "n_groups" and draw(st.booleans()):
        return 1
    return draw(_COMPARED_BY_LEVEL) * ranks
