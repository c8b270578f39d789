"""Small arithmetic and the cache specification."""

from __future__ import annotations

from hypothesis import strategies as st

from properties.strategies.bounds import WIDE_NUMBERS, counts, drafts
from properties.strategies.layout import DTYPES
from statecheck.case.values import DType, Record, Tensor, call, record
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

PAGE = "MambaSpec.page_size_bytes.fget"
BUDGET = "MambaSpec.max_memory_usage_bytes"
numbers = st.integers(-20, 20) | st.integers(-(2**62), 2**62)
divisors = st.integers(-9, 9).filter(bool)


@prop("cdiv/either-sign", "agreement", "cdiv", x=numbers, y=divisors)
def test_cdiv_either_sign(trial: Example, x: int, y: int) -> None:
    """Ceiling division rounds up for either sign."""
    trial.agrees(call("cdiv", x=x, y=y))


@prop(
    "cdiv/tensor",
    "agreement",
    "cdiv",
    values=st.lists(st.integers(-99, 99), max_size=6),
    y=divisors | st.sampled_from((2**31 - 1, 2**31, -(2**31) - 1)),
    wide=st.booleans(),
)
def test_cdiv_tensor(trial: Example, values: list[int], y: int, wide: bool) -> None:
    """Ceiling division of a tensor is elementwise and keeps its dtype."""
    tensor = Tensor("int64" if wide else "int32", (len(values),), tuple(values))
    trial.agrees(call("cdiv", x=tensor, y=y))


@prop("divide/exact", "agreement", "divide", x=numbers, y=st.integers(-4, 4))
def test_divide_exact(trial: Example, x: int, y: int) -> None:
    """Division is exact or refused."""
    trial.agrees(call("divide", x=x, y=y))


SMALL, MAX_AXES, MAX_STATES = 6, 3, 3
"""Elements of an axis, axes of a state, states of a layer: so few that all of them are small numbers."""
WIDE_AXES = (2**11, 2**16)
"""Elements of an axis, as numbers without memory: a page of two such axes has 16 MiB, 2 GiB or 4 GiB of one byte each."""
BLOCKS = (1600, 7168)
"""Tokens of a block beside those up to 64: as attention's pages make them in the field."""


def specs(*, wide: bool = True, **fixed: object) -> st.SearchStrategy[Record]:
    """Specifications of one to three states, padded or not, in every cache mode; pages of gigabytes if they are `wide`."""
    axes = counts(SMALL, WIDE_AXES, min_value=1) if wide else st.integers(1, SMALL)
    state = st.tuples(st.lists(axes, min_size=1, max_size=MAX_AXES).map(tuple), st.sampled_from(DTYPES))
    return st.builds(
        lambda states, block_size, mode, spec: record(
            "MambaSpec",
            block_size=block_size,
            shapes=tuple(shape for shape, _ in states),
            dtypes=tuple(DType(name) for _, name in states),
            mamba_cache_mode=mode,
            num_speculative_blocks=spec,
            **fixed,
        ),
        st.lists(state, min_size=1, max_size=MAX_STATES),
        counts(64, BLOCKS, min_value=1),
        st.sampled_from(("none", "align", "all")),
        drafts(few=3),
    )


PADDED_SPECS = specs(wide=False, page_size_padded=SMALL**MAX_AXES * 4 * MAX_STATES) | specs(
    page_size_padded=2**62
)
"""Pages with room for every state of small axes, of four bytes an element, and pages beyond all numbers of 32 bits."""
PAGES = (
    Configuration("page-size/all-states", spec=specs(), reason="which are one behind the other"),
    Configuration(
        "page-size/padded", spec=PADDED_SPECS, reason="and is as large as its padding says, if it is padded"
    ),
)


@prop(PAGES, "agreement", PAGE)
def a_page_is_as_large_as_the_rules_say(trial: Example, spec: Record) -> None:
    """A page holds all states of a block."""
    trial.agrees(call(PAGE, self=spec))


LONGEST = counts(300, WIDE_NUMBERS, min_value=1)
"""Tokens of a request at most: some blocks, or millions."""


@prop("memory-usage/cache-mode", "agreement", BUDGET, spec=specs(), max_model_len=LONGEST)
def test_memory_usage_cache_mode(trial: Example, spec: Record, max_model_len: int) -> None:
    """A request holds the pages that its cache mode needs."""
    config = record("VllmConfig", model_config=record("ModelConfig", max_model_len=max_model_len))
    trial.agrees(call(BUDGET, self=spec, vllm_config=config))
