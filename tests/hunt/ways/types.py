"""Plain Hypothesis: strategies derived from the types of the inputs, and nothing else.

Each field of an input is drawn by its annotation: a flag, an optional value, a tuple of any length, another dataclass. An int
is drawn between the bounds that its name has everywhere, whatever the other fields are; a string is one of the documented ones.
"""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import strategies as st

from properties.strategies.shapes import FAMILIES, ShapeArguments
from tests.hunt.ways.inputs import sizes_of

MOST = 6
"""Elements of a tuple."""
TOKENS = 64
BOUNDS: dict[str, tuple[int, int]] = {
    "numbers": (-(2**31), 2**31 - 1),
    "divisor": (-(2**31), 2**31 - 1),
    "lens": (0, TOKENS),
    "seq_lens": (0, TOKENS),
    "chunk_size": (1, TOKENS),
    "query_len": (0, TOKENS),
    "num_computed": (0, TOKENS),
    "max_model_len": (1, 2 * TOKENS),
    "max_num_seqs": (1, 8),
    "max_cudagraph_capture_size": (1, 16),
    "decode_context_parallel_size": (1, 2),
    "padded_rows": (0, 3),
    "padded_tokens": (0, 3),
    "padded": (0, 3),
    "rows": (0, 8),
    "decode_threshold": (1, 8),
    "slack": (0, 8),
    "block_size": (1, 16),
    "num_spec": (0, 3),
    "num_speculative_blocks": (0, 4),
    "spare_blocks": (0, 2),
    "spare_columns": (0, 2),
    "spare": (0, 4),
    "accepted": (0, 4),
    "drafts": (0, 4),
    "StepRequest.drafts": (-1, 4),
    "StepRequest.query_len": (1, TOKENS),
    "first_block": (1, 1000),
    "num_blocks": (1, 16),
    "block_shape": (1, 6),
    "shapes": (1, 6),
    "padding": (0, 64),
    "offset": (0, 16),
    "block_ids": (0, 16),
    "cur_block_idx": (0, MOST),
    "num_accepted_tokens": (0, 4),
    "tp_size": (1, 8),
    "groups": (1, 2),
    "layers": (1, 2),
    "conv_width": (1, 4),
    "channels": (1, 6),
    "heads": (1, 3),
    "head_dim": (1, 4),
    "computed": (0, TOKENS),
    "length": (1, TOKENS),
    "first_state": (0, TOKENS),
    "rejected": (0, 3),
    "slots": (0, 1000),
    "size": (1, 300),
    "distance": (-300, 300),
    "gap": (0, 32),
    "seed": (0, 1000),
}
"""Ints by the name of their field: what the documents call a size is at least 1, a count at least 0."""
WORDS: dict[str, tuple[str, ...]] = {
    "mode": ("none", "align", "all"),
    "layout": ("SD", "DS"),
    "dtype": ("float32", "bfloat16", "uint8"),
    "kind": ("mamba1", "mamba2", "gdn"),
}
BY_DEFAULT = frozenset({"flaw", "schedule", "published", "profile"})
"""Fields that no documented function has."""


def strategy_of(owner: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a dataclass, each field for itself."""
    if owner is ShapeArguments:
        return _shape_arguments()
    hints = typing.get_type_hints(owner)
    names = [one.name for one in fields(owner) if one.init and one.name not in BY_DEFAULT]
    return st.builds(owner, **{name: of_hint(hints[name], f"{owner.__name__}.{name}") for name in names})


def of_hint(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """By an annotation; `name` is that of the class and the field."""
    arguments, field = typing.get_args(hint), name.partition(".")[2]
    if hint is int:
        return st.integers(*BOUNDS.get(name, BOUNDS.get(field, ())))
    if hint is bool:
        return st.booleans()
    if hint is str:
        return st.sampled_from(WORDS[field])
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return strategy_of(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(of_hint(arguments[0], name), max_size=MOST).map(tuple)
    if isinstance(hint, types.UnionType):
        return st.one_of(*(st.none() if one is type(None) else of_hint(one, name) for one in arguments))
    raise TypeError(f"{name}: {hint} has no strategy")


def _shape_arguments() -> st.SearchStrategy[ShapeArguments]:
    """A family of shapes, with an int for each of its parameters."""
    return st.sampled_from(FAMILIES).flatmap(
        lambda family: st.builds(
            ShapeArguments,
            st.just(family),
            st.tuples(*(st.tuples(st.just(name), st.integers(1, 16)) for name in sizes_of(family))),
            st.integers(*BOUNDS["tp_size"]),
            st.integers(*BOUNDS["num_spec"]),
            st.sampled_from(WORDS["layout"]),
        )
    )
