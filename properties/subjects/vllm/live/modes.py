"""Which modes of caching recurrent states a release has, and for which layers."""

import typing

from properties.harness.subject.not_offered import NotOffered
from properties.subjects.vllm.live.config import CHUNK, LiveSettings
from properties.subjects.vllm.release import RELEASE, RELEASE_NAME, optional

_FIRST, _FIRST_IN_ALL = (0, 25), (0, 22)
"""The oldest releases of whose scenarios we know which failures are defects, and of those in mode "all"."""
_IN_ALL = ("mamba1", "mamba2")
"""Whose models support it (`SupportsMambaPrefixCaching`); others fall back to "align", or raise."""


def require_mode(settings: LiveSettings) -> None:
    """Leave out what a release would not run.

    Raises:
        ValueError: there is no such mode.
        NotOffered: the release does not have it, or not for these layers.
    """
    mode = settings.mamba_cache_mode
    if mode not in ("align", "all"):
        raise ValueError(f"mamba_cache_mode = {mode!r}, but should be align or all [LiveSettings]")
    if RELEASE < _FIRST and (settings.mode != "all" or settings.connector or RELEASE < _FIRST_IN_ALL):
        raise NotOffered(
            f"what scenarios of release {RELEASE_NAME} show was never told apart from errors of ours"
        )
    if settings.mode != "all":
        return
    if "all" not in typing.get_args(optional("vllm.config.cache:MambaCacheMode")):
        raise NotOffered(f"release {RELEASE_NAME} has no mamba_cache_mode 'all'")
    if settings.runner != "V1":
        raise NotOffered("mamba_cache_mode 'all' with the second runner, which does not implement it")
    if not set(settings.kinds) <= set(_IN_ALL):
        raise NotOffered(f"mamba_cache_mode 'all' with layers other than {' and '.join(_IN_ALL)}")
    if settings.padding and optional("vllm.v1.worker.block_table:get_block_table_width") is None:
        raise NotOffered(
            "mamba_cache_mode 'all' in full graphs with such small blocks, whose tables are wider than buffers"
        )
    if settings.block_size % CHUNK:
        raise NotOffered(f"mamba_cache_mode 'all' with blocks of parts of chunks of {CHUNK} tokens")
