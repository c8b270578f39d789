"""State shapes of the six families, for every number of ranks."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from properties.strategies.layout import environment, layouts
from properties.strategies.shapes import CALCULATOR, TAKES_NUM_SPEC, ShapeArguments, models
from statecheck.case.values import Call, call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

FAMILIES = tuple(
    f"{CALCULATOR}.{family}_state_shape"
    for family in ("linear_attention", "mamba1", "mamba2", "short_conv", "gated_delta_net", "kda")
)
SPECULATIVE = tuple(f"{CALCULATOR}.{family}" for family in sorted(TAKES_NUM_SPEC))
EXTRA, ORIENT = f"{CALCULATOR}.extra_groups_for_head_shards", f"{CALCULATOR}._orient_conv_shape"
CONV_COUNT = {"linear_attention_state_shape": 0, "kda_state_shape": 3}
"""Conv states of a family, which come first; 1 where it is not named."""


@prop("state-shape/formula", "agreement", *FAMILIES, model=models())
def test_state_shape_formula(trial: Example, model: ShapeArguments) -> None:
    """State shapes follow the family's formula."""
    trial.agrees(model.call())


@prop("state-shape/temporal-ranks", "algebra", *FAMILIES, model=models())
def test_state_shape_temporal_ranks(trial: Example, model: ShapeArguments) -> None:
    """Temporal states of all ranks add up to the whole."""
    shard, whole = trial.returns(model.call()), trial.returns(model.on_one_rank().call())
    convs = CONV_COUNT.get(model.family, 1)
    for part, total in zip(shard[convs:], whole[convs:], strict=True):
        added = (part[0] * model.tp_size, *part[1:])
        trial.equals("temporal states", added, total)


@prop("state-shape/conv-ranks", "algebra", *FAMILIES, model=models())
def test_state_shape_conv_ranks(trial: Example, model: ShapeArguments) -> None:
    """Conv channels of all ranks add up to the whole and its replicated groups."""
    model = replace(model, layout="SD")
    shard, whole = trial.returns(model.call()), trial.returns(model.on_one_rank().call())
    convs = CONV_COUNT.get(model.family, 1)
    sizes = dict(model.arguments)
    groups = sizes.get("n_groups", model.tp_size)
    replicated = (
        2 * sizes.get("state_size", 0) * max(0, model.tp_size - groups) if groups % model.tp_size else 0
    )
    for (rows, part), (all_rows, total) in zip(shard[:convs], whole[:convs], strict=True):
        wanted = (all_rows, total + replicated)
        added = (rows, part * model.tp_size)
        trial.equals("conv states", added, wanted)


@prop("state-shape/channels-first", "metamorphic", *FAMILIES, model=models())
def test_state_shape_channels_first(trial: Example, model: ShapeArguments) -> None:
    """Channel first shapes are the others turned around."""
    rows_first = trial.returns(replace(model, layout="SD").call())
    channels_first = trial.returns(replace(model, layout="DS").call())
    convs = CONV_COUNT.get(model.family, 1)
    wanted = (*(shape[::-1] for shape in rows_first[:convs]), *rows_first[convs:])
    trial.equals("result", channels_first, wanted)


@prop(
    "state-shape/draft-rows",
    "metamorphic",
    *SPECULATIVE,
    model=models(families=tuple(sorted(TAKES_NUM_SPEC))),
)
def test_state_shape_draft_rows(trial: Example, model: ShapeArguments) -> None:
    """Each speculative token adds one row to every conv state and nothing else."""
    model = replace(model, layout="SD")
    plain, wide = trial.returns(replace(model, num_spec=0).call()), trial.returns(model.call())
    convs = CONV_COUNT.get(model.family, 1)
    wanted = (*((rows + model.num_spec, dim) for rows, dim in plain[:convs]), *plain[convs:])
    trial.equals("result", wide, wanted)


@prop(
    "state-shape/replicated-groups",
    "agreement",
    EXTRA,
    ngroups=st.integers(-1, 17),
    tp_size=st.integers(-1, 17),
)
def test_state_shape_replicated_groups(trial: Example, ngroups: int, tp_size: int) -> None:
    """Groups are replicated so that each rank holds whole ones."""
    trial.agrees(call(EXTRA, ngroups=ngroups, tp_size=tp_size))


@prop(
    "state-shape/conv-layout",
    "agreement",
    ORIENT,
    dim=st.integers(1, 9),
    state_len=st.integers(1, 9),
    layout=layouts(),
)
def test_state_shape_conv_layout(trial: Example, dim: int, state_len: int, layout: str) -> None:
    """A conv shape is oriented by the layout."""
    arguments = (("dim", dim), ("state_len", state_len))
    trial.agrees(Call(ORIENT, arguments, environment=tuple(environment(layout).items())))
