"""Situations of the shapes of states."""

from oracle.shapes import ConvShape, history_rows, kda_state_shape, orient_conv_shape, repeated_groups
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("shapes")

ONE_ROW = _declare("a conv state of a single row")
DRAFT_ROWS = _declare("a conv state with a row more for each draft")
REPEATED = _declare("groups are repeated, as there are more ranks than groups")
SHARED = _declare("several ranks share the groups without a rest")
MANY_DRAFT_ROWS = _declare("a conv state with rows for five drafts or more")
KEYS_AS_VALUES = _declare("key heads are not given, and are those of the values")


@watches(orient_conv_shape)
def _conv(_: ConvShape, state_len: int) -> None:
    ONE_ROW.reached_if(state_len == 1)


@watches(history_rows)
def _rows(_: int, num_spec: int) -> None:
    DRAFT_ROWS.reached_if(num_spec)
    MANY_DRAFT_ROWS.reached_if(num_spec >= 5)


@watches(repeated_groups)
def _groups(answer: int, tp: int) -> None:
    REPEATED.reached_if(answer)
    SHARED.reached_if(not answer and tp > 1)


@watches(kda_state_shape)
def _kda(_: object, num_k_heads: int | None) -> None:
    KEYS_AS_VALUES.reached_if(num_k_heads is None)
