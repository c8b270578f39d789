"""SGLang's own engine: its scheduler, radix tree and state pools, in scenarios of requests and sessions."""

from __future__ import annotations

from dataclasses import replace

from properties.releases.marks import (
    ACCEPTED,
    AGAIN,
    BATCH,
    BESIDE,
    BOUNDARY,
    CAPPED,
    FULL,
    GRID,
    HIT,
    HOST,
    MIXED,
    PAGES,
    PASSED,
    SLEPT,
    STORED,
    UNREAD,
)
from properties.releases.radix_run import RadixRun
from properties.strategies.releases.radix import (
    KEYS_THAT_REMAIN,
    LONGEST_STEP,
    SCARCE_STATES,
    RadixStory,
    RadixWorld,
    paired_radix_stories,
    radix_stories,
    sleeping_radix_stories,
)
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

_LAST = RadixWorld()
_BOUNDARIES = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=12)
_OVERLAP = replace(_BOUNDARIES, max_mamba_cache_size=16, overlap=True)
# A step takes in several pages, so that a prefill passes the end of a page, and keeps the state there.
_WIDE_PAGES = replace(
    _OVERLAP, page_size=8, max_total_tokens=128, chunked_prefill_size=LONGEST_STEP, mamba_track_interval=8
)
_WIDE_CHUNKS = replace(_WIDE_PAGES, page_size=4, mamba_chunk_size=8, mamba_track_interval=16)
_LAZY = replace(_OVERLAP, strategy="extra_buffer_lazy", max_mamba_cache_size=12)
_MIXED = replace(_OVERLAP, mixed=True)
# Two rows, and room for the keys of several requests, so that a request is preempted for a row and not for pages.
_PRIORITIES = replace(_OVERLAP, max_running_requests=2, max_total_tokens=96, priorities=(0, 1, 2, 1))
# Fewer checkpoints than prefixes, so that some are evicted.
_CHECKPOINTS = replace(_OVERLAP, checkpoints=4)
_SCARCE = replace(_OVERLAP, max_mamba_cache_size=10, max_total_tokens=36)
# A request passes no two boundaries in two steps.
_DRAFTS = replace(_OVERLAP, mamba_track_interval=8, num_draft_tokens=3)
# Prefixes can fill all slots of states before they fill those of keys.
_LAZY_DRAFTS = replace(
    _DRAFTS, strategy="extra_buffer_lazy", max_mamba_cache_size=7, max_total_tokens=96, max_running_requests=2
)
_HOST = replace(_SCARCE, host_policy="write_through")
# A step is a chunk of a scan, so that a prompt of three chunks leaves as many states in as many steps, while the first is copied.
_CAPPED = replace(_OVERLAP, states_per_path=2, chunked_prefill_size=4, host_policy="write_through")
_STORAGE = replace(_HOST, max_total_tokens=64, max_mamba_cache_size=12, storage_policy="wait_complete")
_SIDE_STATES = replace(_LAST, side_states=True)
_FEW_STATES = replace(
    _HOST,
    max_mamba_cache_size=SCARCE_STATES,
    max_total_tokens=KEYS_THAT_REMAIN,
    # A step is a chunk of a scan, so that a prompt of some chunks leaves as many states.
    chunked_prefill_size=4,
)
_SESSIONS = replace(
    _OVERLAP,
    max_total_tokens=160,
    max_mamba_cache_size=24,
    max_running_requests=5,
    chunked_prefill_size=16,
    sessions=True,
)


def _rust(world: RadixWorld) -> RadixWorld:
    return replace(world, core="rust")


def _mamba2(world: RadixWorld) -> RadixWorld:
    """A batch has room for several rows of more than a chunk."""
    return replace(world, kind="mamba2", chunked_prefill_size=20)


def _radix(id_: str, world: RadixWorld, situations: tuple[str, ...], reason: str) -> Configuration:
    return Configuration(id_, story=radix_stories(world), situations=situations, reason=reason)


# By id: the engine, the situations that it is for, each of which one scenario in twelve or more reaches, and how the configuration differs from others.
CONFIGURATIONS = (
    _radix("radix-engine/no-buffer", _LAST, (HIT,),
        "where the tree keeps the last state of a request alone"),
    _radix("radix-engine/extra-buffer", _BOUNDARIES, (HIT, BOUNDARY),
        "where a state is copied to another slot when its boundary is passed"),
    _radix("radix-engine/pages", replace(_BOUNDARIES, page_size=4), (PAGES,),
        "where keys lie in pages, so that a prefix ends where a page does"),
    _radix("radix-engine/wide-pages", _WIDE_PAGES, (PASSED,),
        "where a page has two chunks of a scan, so that states are kept at every second chunk"),
    _radix("radix-engine/wide-chunks", _WIDE_CHUNKS, (PASSED, BOUNDARY),
        "where a chunk of a scan has two pages, and decodes keep states at every second chunk"),
    _radix("radix-engine/overlap", _OVERLAP, (HIT, BESIDE),
        "where a step is scheduled before the results of the last one are known"),
    _radix("radix-engine/lazy-buffer", _LAZY, (BOUNDARY,),
        "where a request gets its second slot when it comes to a boundary"),
    _radix("radix-engine/mixed", _MIXED, (MIXED,),
        "where decodes run in one batch with a chunk of another request's prompt"),
    _radix("radix-engine/lazy-mixed", replace(_LAZY, mixed=True), (MIXED, BOUNDARY),
        "where a request that comes to a boundary runs in one batch with a prompt, and gets no second slot"),
    _radix("radix-engine/checkpoints", _CHECKPOINTS, (HIT,),
        "where the tree keeps its states in a pool of their own (int8), from which a hit copies them"),
    _radix("radix-engine/priorities", _PRIORITIES, (AGAIN,),
        "where a request of a greater priority takes the row of a running one, which runs again later"),
    _radix("radix-engine/capped", _CAPPED, (CAPPED,),
        "where the tree drops states of a path that has more than two, but those that are copied to host memory"),
    _radix("radix-engine/side-states-tree", _SIDE_STATES, (HIT,),
        "where a slot has more states than those of its layers, as those of Qwen4-Exp have"),
    _radix("radix-engine/side-states-host", replace(_SIDE_STATES, host_policy="write_through"), (HOST,),
        "where these are copied to host memory, too"),
    _radix("radix-engine/no-cache", replace(_OVERLAP, radix_cache=False, strategy="no_buffer"), (BATCH,),
        "where there is no tree of prefixes"),
    _radix("radix-engine/scarce", _SCARCE, (AGAIN,),
        "where pools are too small for all requests, so that some run again and prefixes are evicted"),
    _radix("radix-engine/drafts", _DRAFTS, (ACCEPTED,),
        "where each step verifies drafts, and copies the state after the last accepted one"),
    _radix("radix-engine/draft-trees", replace(_DRAFTS, num_draft_tokens=4, draft_breadth=2), (ACCEPTED,),
        "where wrong drafts stand beside right ones, so that accepted ones lie apart in the batch"),
    _radix("radix-engine/eagle", replace(_DRAFTS, draft_method="eagle"), (ACCEPTED,),
        "where a step hands its part of the draft model to the next one (EAGLE)"),
    _radix("radix-engine/lazy-drafts", _LAZY_DRAFTS, (FULL,),
        "where steps verify drafts, and a request gets its second slot near a boundary"),
    _radix("radix-engine/write-through", _HOST, (HOST,),
        "where the tree copies prefixes to host memory, and loads them back"),
    _radix("radix-engine/write-back", replace(_SCARCE, host_policy="write_back"), (HOST,),
        "where prefixes are copied to host memory when they are evicted"),
    _radix("radix-engine/write-selective", replace(_SCARCE, host_policy="write_through_selective"), (HOST,),
        "where prefixes are copied to host memory at their second hit"),
    _radix("radix-engine/storage-tokens", _STORAGE, (STORED, UNREAD),
        "where prefixes are saved in a storage behind host memory, under keys of their tokens, and loaded from it"),
    _radix("radix-engine/storage-pages", replace(_STORAGE, page_size=4), (STORED, UNREAD),
        "where the storage has pages of several tokens, of which the last one alone has a state"),
    _radix("radix-engine/few-states", _FEW_STATES, (FULL,),
        "where prefixes fill all slots of states while most slots of keys are free"),
    _radix("radix-engine/sessions", _SESSIONS, (HIT,),
        "where requests continue what a session keeps, and a closed session keeps nothing"),
    _radix("radix-engine/plain-sessions", replace(_SESSIONS, strategy="no_buffer", overlap=False), (HIT,),
        "where requests continue sessions without states at boundaries"),
    _radix("radix-engine/session-drafts", replace(_SESSIONS, mamba_track_interval=8, num_draft_tokens=3), (HIT, ACCEPTED),
        "where requests continue sessions, and steps verify drafts"),
    _radix("radix-engine/rust-core", _rust(_OVERLAP), (HIT, BOUNDARY),
        "where the tree's nodes are those of the core in Rust"),
    _radix("radix-engine/rust-scarce", _rust(_SCARCE), (AGAIN,),
        "where the core in Rust evicts prefixes from small pools"),
    _radix("radix-engine/rust-drafts", _rust(_DRAFTS), (ACCEPTED,),
        "where steps verify drafts over the core in Rust"),
    _radix("radix-engine/rust-mixed", _rust(_MIXED), (MIXED,),
        "where decodes run with prompts over the core in Rust"),
    _radix("radix-engine/rust-write-through", _rust(_HOST), (AGAIN,),
        "where the core in Rust copies prefixes to host memory, which is seen when they are loaded back"),
    _radix("radix-engine/rust-sessions", _rust(_SESSIONS), (HIT,),
        "where requests continue sessions over the core in Rust"),
    _radix("radix-engine/mamba2-overlap", _mamba2(_OVERLAP), (GRID, BESIDE),
        "where layers are of Mamba-2, whose scan leaves states before chunks of the whole batch"),
    _radix("radix-engine/mamba2-no-buffer", _mamba2(_LAST), (HIT, GRID),
        "where layers are of Mamba-2, and the tree keeps their last state"),
    _radix("radix-engine/mamba2-mixed", _mamba2(_MIXED), (MIXED, GRID),
        "where layers are of Mamba-2, and decodes run with prompts"),
    _radix("radix-engine/mamba2-drafts", _mamba2(_DRAFTS), (ACCEPTED, GRID),
        "where layers are of Mamba-2, and steps verify drafts"),
    Configuration("radix-engine/sleep-overlap", story=sleeping_radix_stories(_OVERLAP), situations=(SLEPT,),
        reason="where the engine gives its memory back and takes it again, or the model gets other weights, while requests run"),
    Configuration("radix-engine/sleep-drafts", story=sleeping_radix_stories(_DRAFTS), situations=(SLEPT,),
        reason="where the same happens between steps that verify drafts"),
    Configuration("radix-engine/pairs", story=paired_radix_stories(), situations=(BOUNDARY,),
        reason="in engines that combine any two features"),
)  # fmt: skip


@prop(CONFIGURATIONS, "provenance", "RadixEngine", device="cpu")
def requests_read_the_state_of_their_tokens(trial: Example, story: RadixStory) -> None:
    """Requests read the state of exactly their tokens.

    Every forward reads the state after exactly the computed tokens, every prefix in the tree, in a session or in host memory has the keys and
    the state of exactly its tokens, and no slot has two owners or none, whatever requests do.
    """
    RadixRun(trial, story).run()
