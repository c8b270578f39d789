"""An engine's own scheduler, radix tree and state pools, in scenarios of requests."""

from __future__ import annotations

from properties.strategies.radix import RadixStory, RadixWorld, radix_stories
from properties.test_real_engine import LiveRun
from statecheck.execution.example import Trial
from statecheck.execution.registry import prop

ENGINE = "RadixEngine"
_TRACKED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=12)
_PAGED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=12, page_size=4)
_OVERLAPPED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True)
_RUST = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True, core="rust")
_SCARCE = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=10, max_total_tokens=36, overlap=True)
_LAZY = RadixWorld(strategy="extra_buffer_lazy", max_mamba_cache_size=12, overlap=True)


@prop("radix-engine/no-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(RadixWorld()))
def test_requests_that_cache_their_last_state_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """Every forward reads the state of exactly the computed tokens, every prefix in the tree has the keys and the state of exactly
    its tokens, and no slot has two owners or none, whatever requests do.
    """
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/extra-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(_TRACKED))
def test_requests_that_keep_states_at_boundaries_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As where only the last state is cached; what is cached was copied to another slot when the boundary was passed."""
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/pages", "provenance", ENGINE, device="cpu", story=radix_stories(_PAGED))
def test_requests_whose_keys_lie_in_pages_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As with keys in slots of one token: a prefix ends where a page does."""
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/overlap", "provenance", ENGINE, device="cpu", story=radix_stories(_OVERLAPPED))
def test_requests_in_overlapping_steps_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As without overlap: the next step is scheduled before the results of the last one are known."""
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/lazy-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(_LAZY))
def test_requests_that_get_a_second_slot_when_they_need_it_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As in overlapping steps; a request's second slot for a state at a boundary is given to it when it comes to one."""
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/rust-core", "provenance", ENGINE, device="cpu", story=radix_stories(_RUST))
def test_requests_with_the_compiled_tree_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As in overlapping steps; the tree's nodes are those of the release's core in Rust."""
    LiveRun(trial, story, ENGINE).run()


@prop("radix-engine/scarce", "provenance", ENGINE, device="cpu", story=radix_stories(_SCARCE))
def test_requests_that_share_few_slots_read_the_state_of_their_tokens(
    trial: Trial, story: RadixStory
) -> None:
    """As in overlapping steps; the pools are too small for all requests, so that some are sent back to the queue and prefixes are evicted."""
    LiveRun(trial, story, ENGINE).run()
