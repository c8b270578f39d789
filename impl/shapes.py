"""Shapes of one block's states per tensor-parallel rank.

The document shards sums: it divides the channels of all heads together, or floors. A rank can only hold
whole heads and groups, so everything that is sharded must divide on its own here; what the document
accepts beyond that describes ranks whose shares do not add up to the layer.
"""

from .checks import int_at_least, refuse
from .layout import is_conv_state_dim_first

ConvShape = tuple[int, int]


def _at_least(least: int, function: str, **values: int) -> tuple[int, ...]:
    return tuple(int_at_least(name, value, least, function) for name, value in values.items())


def _share(function: str, tp_name: str, tp: int, **sizes: int) -> tuple[int, ...]:
    for name, size in sizes.items():
        if size % tp != 0:
            refuse(name, size, f"divisible by {tp_name} = {tp}", function)
    return tuple(size // tp for size in sizes.values())


def _extra_groups(groups_name: str, groups: int, tp_name: str, tp: int, function: str) -> int:
    if groups % tp != 0 and tp % groups != 0:
        refuse(groups_name, groups, f"a multiple or a divisor of {tp_name} = {tp}", function)
    return 0 if groups % tp == 0 else tp - groups


class MambaStateShapeCalculator:
    """State shapes of every layer family, without the leading block dimension.

    Conv shapes are (state_len, channels) in layout SD and (channels, state_len) in DS; state_len is
    kernel - 1, plus one row per speculative token where `num_spec` exists. Each method raises ValueError
    naming the argument if a size is not an int >= 1, a kernel is < 2, num_spec is < 0, or a sharded size is
    not divisible by the number of ranks. Source: document 2, MambaStateShapeCalculator.
    """

    @classmethod
    def linear_attention_state_shape(
        cls, num_heads: int, tp_size: int, head_dim: int
    ) -> tuple[tuple[int, int, int], ...]:
        """((num_heads / tp, head_dim, head_dim),): no conv state."""
        function = "linear_attention_state_shape"
        num_heads, tp, head_dim = _at_least(
            1, function, num_heads=num_heads, tp_size=tp_size, head_dim=head_dim
        )
        (heads,) = _share(function, "tp_size", tp, num_heads=num_heads)
        return ((heads, head_dim, head_dim),)

    @staticmethod
    def _orient_conv_shape(dim: int, state_len: int) -> ConvShape:
        return (dim, state_len) if is_conv_state_dim_first() else (state_len, dim)

    @classmethod
    def mamba1_state_shape(
        cls, tp_world_size: int, intermediate_size: int, state_size: int, conv_kernel: int
    ) -> tuple[ConvShape, tuple[int, int]]:
        """Conv of intermediate / tp channels, and (intermediate / tp, state_size)."""
        function = "mamba1_state_shape"
        tp, inner, state_size = _at_least(
            1,
            function,
            tp_world_size=tp_world_size,
            intermediate_size=intermediate_size,
            state_size=state_size,
        )
        (kernel,) = _at_least(2, function, conv_kernel=conv_kernel)
        (channels,) = _share(function, "tp_world_size", tp, intermediate_size=inner)
        return cls._orient_conv_shape(channels, kernel - 1), (channels, state_size)

    @classmethod
    def mamba2_state_shape(
        cls,
        tp_world_size: int,
        intermediate_size: int,
        n_groups: int,
        num_heads: int,
        head_dim: int,
        state_size: int,
        conv_kernel: int,
        num_spec: int = 0,
    ) -> tuple[ConvShape, tuple[int, int, int]]:
        """Conv of (intermediate + 2 * groups * state_size) / tp channels, and (heads / tp, head_dim, state).

        groups is n_groups, extended so that each rank holds whole ones (`extra_groups_for_head_shards`).
        """
        function = "mamba2_state_shape"
        tp, inner, groups, heads, head_dim, state_size = _at_least(
            1,
            function,
            tp_world_size=tp_world_size,
            intermediate_size=intermediate_size,
            n_groups=n_groups,
            num_heads=num_heads,
            head_dim=head_dim,
            state_size=state_size,
        )
        (kernel,) = _at_least(2, function, conv_kernel=conv_kernel)
        (spec,) = _at_least(0, function, num_spec=num_spec)
        inner, heads = _share(function, "tp_world_size", tp, intermediate_size=inner, num_heads=heads)
        groups = (groups + _extra_groups("n_groups", groups, "tp_world_size", tp, function)) // tp
        conv = cls._orient_conv_shape(inner + 2 * groups * state_size, kernel - 1 + spec)
        return conv, (heads, head_dim, state_size)

    @classmethod
    def short_conv_state_shape(
        cls, tp_world_size: int, intermediate_size: int, conv_kernel: int, num_spec: int = 0
    ) -> tuple[ConvShape]:
        """(conv of intermediate / tp channels,). `num_spec` goes beyond the document, which has none."""
        function = "short_conv_state_shape"
        tp, inner = _at_least(1, function, tp_world_size=tp_world_size, intermediate_size=intermediate_size)
        (kernel,) = _at_least(2, function, conv_kernel=conv_kernel)
        (spec,) = _at_least(0, function, num_spec=num_spec)
        (channels,) = _share(function, "tp_world_size", tp, intermediate_size=inner)
        return (cls._orient_conv_shape(channels, kernel - 1 + spec),)

    @classmethod
    def extra_groups_for_head_shards(cls, ngroups: int, tp_size: int) -> int:
        """Groups to add so that every rank holds whole ones: 0, or tp_size - ngroups by replication.

        Raises ValueError naming `ngroups` if neither number divides the other: the document then replicates
        groups that do not match the head shards, or returns a negative number.
        """
        function = "extra_groups_for_head_shards"
        groups, tp = _at_least(1, function, ngroups=ngroups, tp_size=tp_size)
        return _extra_groups("ngroups", groups, "tp_size", tp, function)

    @classmethod
    def gated_delta_net_state_shape(
        cls,
        tp_world_size: int,
        num_k_heads: int,
        num_v_heads: int,
        head_k_dim: int,
        head_v_dim: int,
        conv_kernel_size: int,
        num_spec: int = 0,
    ) -> tuple[ConvShape, tuple[int, int, int]]:
        """Conv of (2 * k_heads * k_dim + v_heads * v_dim) / tp channels, and (v_heads / tp, v_dim, k_dim)."""
        function = "gated_delta_net_state_shape"
        tp, k_heads, v_heads, k_dim, v_dim = _at_least(
            1,
            function,
            tp_world_size=tp_world_size,
            num_k_heads=num_k_heads,
            num_v_heads=num_v_heads,
            head_k_dim=head_k_dim,
            head_v_dim=head_v_dim,
        )
        (kernel,) = _at_least(2, function, conv_kernel_size=conv_kernel_size)
        (spec,) = _at_least(0, function, num_spec=num_spec)
        k_heads, v_heads = _share(function, "tp_world_size", tp, num_k_heads=k_heads, num_v_heads=v_heads)
        channels = 2 * k_heads * k_dim + v_heads * v_dim
        return cls._orient_conv_shape(channels, kernel - 1 + spec), (v_heads, v_dim, k_dim)

    @classmethod
    def kda_state_shape(
        cls,
        tp_world_size: int,
        num_heads: int,
        head_dim: int,
        num_k_heads: int | None = None,
        head_k_dim: int | None = None,
        conv_kernel_size: int = 4,
        num_spec: int = 0,
    ) -> tuple[ConvShape, ConvShape, ConvShape, tuple[int, int, int]]:
        """(v conv, k conv, k conv, (num_heads / tp, head_dim, head_dim)); num_k_heads and head_k_dim default
        to num_heads and head_dim. `num_spec` lengthens all three convs; the document ignores it.
        """
        function = "kda_state_shape"
        tp, heads, dim, k_heads, k_dim = _at_least(
            1,
            function,
            tp_world_size=tp_world_size,
            num_heads=num_heads,
            head_dim=head_dim,
            num_k_heads=num_heads if num_k_heads is None else num_k_heads,
            head_k_dim=head_dim if head_k_dim is None else head_k_dim,
        )
        (kernel,) = _at_least(2, function, conv_kernel_size=conv_kernel_size)
        (spec,) = _at_least(0, function, num_spec=num_spec)
        heads, k_heads = _share(function, "tp_world_size", tp, num_heads=heads, num_k_heads=k_heads)
        conv = cls._orient_conv_shape(heads * dim, kernel - 1 + spec)
        k_conv = cls._orient_conv_shape(k_heads * k_dim, kernel - 1 + spec)
        return conv, k_conv, k_conv, (heads, dim, dim)
