"""The settings of a small hybrid model and its engine, the sizes that follow from them, and which of them a release has."""

import dataclasses
import math
import typing

from oracle.recurrences import layer
from statecheck.case.values import ITEM_SIZES
from statecheck.subject.subject import NotOffered
from subjects.vllm.release import RELEASE, RELEASE_NAME, optional

CHUNK = 4
"""Tokens in a chunk of the recurrent layers."""
CONV_WIDTH, CONV_CHANNELS, TEMPORAL = 3, 2, 2
_IN_ALL = ("mamba1", "mamba2")
"""Whose models support it (`SupportsMambaPrefixCaching`); others fall back to "align", or raise."""


RELEASED = ("offloading", "simple", "simple-lazy", "mooncake", "nixl")
"""Values of the setting `connector` that name one of the release's own."""


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """The configuration of the engine; the names are those of the release.

    `kinds` has a recurrent group for each entry, of `layers` layers each, beside one group of attention. `num_blocks` counts the
    null block. `padding` rows are added to batches of decodes, as for full graphs. `inside` names a module whose functions stand in
    the place of the release's.

    A `connector` loads what it has saved in the step that wants it ("sync") or while others run ("async"); "" is none. The loads
    that are "async" take `load_steps` of the worker, one after the other, and those with a number in `failing_loads` fail. Saves take
    `save_steps`; `saves_at_end` are of requests that are gone. It says `late_lookups` times of each request that it does not know yet.
    The release's own connectors are "offloading", "simple" and "simple-lazy", with `host_blocks` in host memory, and "mooncake", with a store that is never full; their copies
    take `load_steps` and `save_steps`. "nixl" loads the prompt of a request from the blocks of another one.

    Each prompt with room for them has `items` at these places (offset and tokens), which an encoder computes before the step that has their first token.

    With `kernels` the recurrent layer is the release's own, of one kind, and computes with real numbers; see `kernels.py`. With a `replayssm_buffer_len`
    a layer of Mamba-2 keeps the inputs of so many decodes beside a state that is older (ReplaySSM), which is the V1 model runner's, without drafts.

    With a `sliding_window` one group of attention more stands behind the recurrent ones, whose layers see so many tokens, the one that they compute among them.

    With `priorities` requests are scheduled by priority: requests get these priorities in turn. With `dummy_batches` the engine is one of a data-parallel
    group: in a step without a batch, and in a pause, it runs a dummy batch.

    `stages` share the layers, `layers` of each group in each of them. A stage comes to a batch so many batches late as its number in
    `late_stages` says, or as early as another one waits for it.
    """

    kinds: tuple[str, ...] = ("gdn",)
    layers: int = 1
    block_size: int = 4
    attention_block_size: int = 0
    num_blocks: int = 16
    max_model_len: int = 48
    max_num_batched_tokens: int = 16
    max_num_seqs: int = 4
    num_spec: int = 0
    method: str = "ngram"
    prefix_caching: bool = True
    mamba_cache_mode: str = "align"
    async_scheduling: bool = False
    prefix_match_unit: int = 0
    retention_interval: int = -1
    checkpoints: bool = False
    shared_prefix_checkpoint: bool = False
    padding: int = 0
    runner: str = "V2"
    connector: str = ""
    load_steps: tuple[int, ...] = (0,)
    save_steps: tuple[int, ...] = (0,)
    failing_loads: tuple[int, ...] = ()
    saves_at_end: bool = False
    late_lookups: int = 0
    host_blocks: int = 0
    inside: str = ""
    items: tuple[tuple[int, int], ...] = ()
    kernels: bool = False
    replayssm_buffer_len: int = 0
    stages: int = 1
    late_stages: tuple[int, ...] = ()
    sliding_window: int = 0
    priorities: tuple[int, ...] = ()
    dummy_batches: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """The kind of each group's layers."""
        return ("attention", *self.kinds, *["attention"] * bool(self.sliding_window))

    @property
    def mode(self) -> str:
        return self.mamba_cache_mode if self.prefix_caching else "none"

    @property
    def mamba_block_size(self) -> int:
        """Without prefix caching a request has one block of states, as long as it may get."""
        return self.block_size if self.prefix_caching else self.max_model_len

    @property
    def kv_block_size(self) -> int:
        return self.attention_block_size or self.block_size


def require_mode(settings: LiveSettings) -> None:
    """Leave out what a release would not run.

    Raises:
        ValueError: there is no such mode.
        NotOffered: the release does not have it, or not for these layers.
    """
    mode = settings.mamba_cache_mode
    if settings.kernels and (RELEASE < (0, 33) or settings.inside):
        # Layers of earlier releases were not looked at, and a port's metadata are no release's.
        raise NotOffered(f"the layers of release {RELEASE_NAME} with {settings.inside or 'its own metadata'}")
    if settings.sliding_window and (
        settings.connector or settings.stages > 1 or settings.kernels or RELEASE < (0, 33)
    ):
        # Nor were earlier releases looked at.
        raise NotOffered("sliding windows with a connector, with stages, with kernels, or before 0.33")
    if settings.dummy_batches and (settings.stages > 1 or settings.kernels or RELEASE < (0, 33)):
        raise NotOffered("dummy batches with stages, with kernels, or before 0.33")
    if settings.replayssm_buffer_len and (settings.runner != "V1" or settings.num_spec):
        raise NotOffered(
            "ReplaySSM with the V2 model runner or drafts, which the release refuses without flashinfer"
        )
    if mode not in ("align", "all"):
        raise ValueError(f"mamba_cache_mode = {mode!r}, but should be align or all [LiveSettings]")
    if settings.mode != "all":
        return
    if "all" not in typing.get_args(optional("vllm.config.cache:MambaCacheMode")):
        raise NotOffered(f"release {RELEASE_NAME} has no mamba_cache_mode 'all'")
    if settings.runner != "V1":
        raise NotOffered("mamba_cache_mode 'all' with the V2 model runner, which does not implement it")
    if not set(settings.kinds) <= set(_IN_ALL):
        raise NotOffered(f"mamba_cache_mode 'all' with layers other than {' and '.join(_IN_ALL)}")
    if settings.block_size % CHUNK:
        raise NotOffered(f"mamba_cache_mode 'all' with blocks of parts of chunks of {CHUNK} tokens")


def states_of(settings: LiveSettings, dim_first: bool) -> tuple[tuple[tuple[int, ...], ...], int]:
    """The shapes of a layer's states, and how many tokens a conv state holds."""
    length = CONV_WIDTH - 1 + settings.num_spec
    channels, temporal = CONV_CHANNELS, list[tuple[int, ...]]([(TEMPORAL,)])
    if settings.kernels:
        kind = layer.KINDS[settings.kinds[0]]
        channels, temporal = kind.channels, [(kind.heads, kind.values, layer.KEYS)] if kind.heads else []
        if ring := settings.replayssm_buffer_len:
            # Inputs, times and keys, as `append_replayssm_ring` has them.
            temporal += [(kind.heads, ring, kind.values), (kind.heads, ring), (1, ring, layer.KEYS)]
    return ((channels, length) if dim_first else (length, channels), *temporal), length


def types_of(settings: LiveSettings) -> tuple[str, ...]:
    """The types of a layer's states."""
    kind = layer.KINDS[settings.kinds[0]] if settings.kernels else None
    if kind is None:
        return "int64", "int64"
    states = 4 if settings.replayssm_buffer_len else int(kind.heads > 0)
    return kind.stored, *["float32"] * states


def retention(settings: LiveSettings) -> int | None:
    """Of states at boundaries, in tokens: 0 keeps those that a prompt is likely to be resumed at, None all of them."""
    return None if settings.retention_interval < 0 else settings.retention_interval


def layer_names(settings: LiveSettings, group: int) -> list[str]:
    return [f"layers.{group * settings.layers + at}" for at in range(settings.layers)]


def page_size(settings: LiveSettings, dim_first: bool) -> int:
    """Bytes of a block in one layer, whichever group it is of."""
    shapes, types = states_of(settings, dim_first)[0], types_of(settings)
    recurrent = sum(math.prod(shape) * ITEM_SIZES[type_] for shape, type_ in zip(shapes, types, strict=True))
    return max(recurrent, 8 * settings.kv_block_size)
