"""The configuration of SGLang's engine in a scenario, and the sizes of its tiny model."""

import dataclasses

CONV_WIDTH = 4
"""Tokens that a convolution sees; one fewer of them are kept."""
LAYERS, INTERVAL = 4, 2
"""Layers of the model; every second one is attention."""
ATTENTION_LAYERS = tuple(layer for layer in range(LAYERS) if (layer + 1) % INTERVAL == 0)
RECURRENT_LAYERS = tuple(layer for layer in range(LAYERS) if (layer + 1) % INTERVAL)
"""Their numbers in the model, in the order in which the pools have them."""
VOCABULARY = 1000
"""Tokens that the model may say."""
ATTENTION, STATES = 0, 1
"""Groups, as the laws number them."""


@dataclasses.dataclass(frozen=True)
class RadixSettings:
    """The configuration of the engine; the names are those of the release.

    `max_total_tokens` are the slots of attention, `max_mamba_cache_size` those of recurrent states, both without the slot that
    padding uses. `strategy` is `--mamba-radix-cache-strategy`. `mamba_chunk_size` is the model's. A step verifies
    `num_draft_tokens` of a request: its last token and the drafts behind it; 0 is an engine without drafts; `draft_breadth` is 1 for
    drafts that stand one behind the other, and more for trees of them; `draft_method` is "ngram", or "eagle" for those of a draft model.
    `host_policy` is
    `--hicache-write-policy`, "" for an engine without host memory. `storage_policy` is `--hicache-storage-prefetch-policy`, "" for one without a
    storage behind it. `sessions` is `--enable-streaming-session`,
    `mixed` is `--enable-mixed-chunk`: decodes run together with a chunk of a prefill. The tree keeps `states_per_path`
    states at a path (`--mamba-max-states-per-path`), all with -1. `kind` is that of the recurrent layers: "gdn", or "mamba2". With
    `side_states` a slot has a context of tokens and windows of short convolutions beside, as those of Qwen4-Exp have. With `priorities` requests are
    scheduled by priority (`--enable-priority-scheduling`), the greatest first, and one of a greater priority than a running request may take its place:
    requests get these priorities in turn. The tree keeps its states in so many `checkpoints` (`--enable-int8-mamba-checkpoint`), in the slots of requests with 0.
    """

    page_size: int = 1
    max_total_tokens: int = 96
    max_mamba_cache_size: int = 12
    max_running_requests: int = 3
    chunked_prefill_size: int = 16
    max_model_len: int = 64
    radix_cache: bool = True
    overlap: bool = False
    strategy: str = "no_buffer"
    mamba_chunk_size: int = 4
    mamba_track_interval: int = 4
    core: str = "python"
    num_draft_tokens: int = 0
    draft_breadth: int = 1
    draft_method: str = "ngram"
    host_policy: str = ""
    storage_policy: str = ""
    sessions: bool = False
    mixed: bool = False
    states_per_path: int = -1
    kind: str = "gdn"
    side_states: bool = False
    priorities: tuple[int, ...] = ()
    checkpoints: int = 0
