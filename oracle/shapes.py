from oracle.rules import Refused, require, require_int, rule
from oracle.types import divide

ConvShape = tuple[int, int]
"""One block's convolution state in the order of the layout: rows and channels, or channels and rows."""


def _require_sizes(**sizes: int) -> None:
    for argument, size in sizes.items():
        require_int(argument, size, minimum=1)


def _require_taps(**kernel: int) -> None:
    """A kernel of one tap keeps no history, so it would have no state."""
    for argument, width in kernel.items():
        require_int(argument, width, minimum=2)


def _require_shards(tp_argument: str, tp: int, **sharded: int) -> None:
    """Each rank gets the same whole share."""
    for argument, count in sharded.items():
        require(count % tp == 0, argument, count, f"be divisible by {tp_argument} = {tp}")


@rule
def orient_conv_shape(dim: int, state_len: int, layout: str) -> ConvShape:
    """SD puts the rows first and the channels last, DS the channels first.

    Source: document 2, `_orient_conv_shape`.
    """
    match layout:
        case "SD":
            return (state_len, dim)
        case "DS":
            return (dim, state_len)
        case _:
            raise Refused("layout", layout, "be one of 'SD', 'DS'")


def extra_groups_for_head_shards(ngroups: int, tp_size: int) -> int:
    """Groups that must be repeated so that every rank holds whole ones: none, or up to one per rank.

    Repetition serves when all groups have the same number of ranks. Other counts are refused,
    because a rank would hold groups of other ranks' heads. Source: document 2.
    """
    _require_sizes(ngroups=ngroups, tp_size=tp_size)
    return repeated_groups("ngroups", ngroups, "tp_size", tp_size)


@rule
def repeated_groups(argument: str, groups: int, tp_argument: str, tp: int) -> int:
    """Groups that are repeated, refused under the name of either argument."""
    if groups % tp == 0:
        return 0
    require(tp % groups == 0, argument, groups, f"be divisible by {tp_argument} = {tp}, or divide it")
    return tp - groups


@rule
def history_rows(conv_kernel: int, num_spec: int) -> int:
    """Rows of a convolution's history: one fewer than its taps, and one for each draft."""
    return conv_kernel - 1 + num_spec


def linear_attention_state_shape(num_heads: int, tp_size: int, head_dim: int) -> tuple[tuple[int, int, int]]:
    """A rank holds its share of the heads, each with a square matrix. There is no convolution.

    Source: document 2.
    """
    _require_sizes(num_heads=num_heads, tp_size=tp_size, head_dim=head_dim)
    _require_shards("tp_size", tp_size, num_heads=num_heads)
    return ((divide(num_heads, tp_size), head_dim, head_dim),)


def mamba1_state_shape(
    tp_world_size: int, intermediate_size: int, state_size: int, conv_kernel: int, *, layout: str
) -> tuple[ConvShape, tuple[int, int]]:
    """A rank holds its share of the channels, each with the kernel's history and a vector of states.

    Source: document 2.
    """
    _require_sizes(tp_world_size=tp_world_size, intermediate_size=intermediate_size, state_size=state_size)
    _require_taps(conv_kernel=conv_kernel)
    _require_shards("tp_world_size", tp_world_size, intermediate_size=intermediate_size)
    channels = divide(intermediate_size, tp_world_size)
    return orient_conv_shape(channels, conv_kernel - 1, layout), (channels, state_size)


def mamba2_state_shape(
    tp_world_size: int,
    intermediate_size: int,
    n_groups: int,
    num_heads: int,
    head_dim: int,
    state_size: int,
    conv_kernel: int,
    num_spec: int = 0,
    *,
    layout: str,
) -> tuple[ConvShape, tuple[int, int, int]]:
    """The convolution covers the channels and, for each group, the inputs B and C of `state_size`.

    Each draft token adds a row to the history. Groups are repeated where ranks outnumber them.
    Source: document 2.
    """
    _require_sizes(tp_world_size=tp_world_size, intermediate_size=intermediate_size, n_groups=n_groups)
    _require_sizes(num_heads=num_heads, head_dim=head_dim, state_size=state_size)
    _require_taps(conv_kernel=conv_kernel)
    require_int("num_spec", num_spec, minimum=0)
    _require_shards("tp_world_size", tp_world_size, intermediate_size=intermediate_size, num_heads=num_heads)
    groups = n_groups + repeated_groups("n_groups", n_groups, "tp_world_size", tp_world_size)

    channels = divide(intermediate_size + 2 * groups * state_size, tp_world_size)
    conv = orient_conv_shape(channels, history_rows(conv_kernel, num_spec), layout)
    return conv, (divide(num_heads, tp_world_size), head_dim, state_size)


def short_conv_state_shape(
    tp_world_size: int, intermediate_size: int, conv_kernel: int, num_spec: int = 0, *, layout: str
) -> tuple[ConvShape]:
    """Only a convolution: a rank's share of the channels, and a row of history more per draft token.

    Source: document 2; the draft rows are ours.
    """
    _require_sizes(tp_world_size=tp_world_size, intermediate_size=intermediate_size)
    _require_taps(conv_kernel=conv_kernel)
    require_int("num_spec", num_spec, minimum=0)
    _require_shards("tp_world_size", tp_world_size, intermediate_size=intermediate_size)
    channels = divide(intermediate_size, tp_world_size)
    return (orient_conv_shape(channels, history_rows(conv_kernel, num_spec), layout),)


def gated_delta_net_state_shape(
    tp_world_size: int,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_kernel_size: int,
    num_spec: int = 0,
    *,
    layout: str,
) -> tuple[ConvShape, tuple[int, int, int]]:
    """The convolution covers queries and keys, both of the key heads, and values.

    The recurrent state has a matrix of value by key per value head. Source: document 2.
    """
    _require_sizes(tp_world_size=tp_world_size, num_k_heads=num_k_heads, num_v_heads=num_v_heads)
    _require_sizes(head_k_dim=head_k_dim, head_v_dim=head_v_dim)
    _require_taps(conv_kernel_size=conv_kernel_size)
    require_int("num_spec", num_spec, minimum=0)
    _require_shards("tp_world_size", tp_world_size, num_k_heads=num_k_heads, num_v_heads=num_v_heads)
    channels = divide(2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim, tp_world_size)
    conv = orient_conv_shape(channels, history_rows(conv_kernel_size, num_spec), layout)
    return conv, (divide(num_v_heads, tp_world_size), head_v_dim, head_k_dim)


@rule
def kda_state_shape(
    tp_world_size: int,
    num_heads: int,
    head_dim: int,
    num_k_heads: int | None = None,
    head_k_dim: int | None = None,
    conv_kernel_size: int = 4,
    num_spec: int = 0,
    *,
    layout: str,
) -> tuple[ConvShape, ConvShape, ConvShape, tuple[int, int, int]]:
    """Three convolutions, of values, keys and keys again, and a square matrix per head.

    Key heads and their size are those of the values unless given. All three histories grow by a row
    per draft token. Source: document 2; it leaves the draft rows out.
    """
    k_heads = num_heads if num_k_heads is None else num_k_heads
    k_dim = head_dim if head_k_dim is None else head_k_dim
    _require_sizes(tp_world_size=tp_world_size, num_heads=num_heads, head_dim=head_dim)
    _require_sizes(num_k_heads=k_heads, head_k_dim=k_dim)
    _require_taps(conv_kernel_size=conv_kernel_size)
    require_int("num_spec", num_spec, minimum=0)
    _require_shards("tp_world_size", tp_world_size, num_heads=num_heads, num_k_heads=k_heads)

    rows = history_rows(conv_kernel_size, num_spec)
    value_conv = orient_conv_shape(divide(num_heads * head_dim, tp_world_size), rows, layout)
    key_conv = orient_conv_shape(divide(k_heads * k_dim, tp_world_size), rows, layout)
    return value_conv, key_conv, key_conv, (divide(num_heads, tp_world_size), head_dim, head_dim)
