"""An engine's Mamba-2 layers, in the scenarios of the layers of Gated DeltaNet: their scan goes over chunks of a whole batch."""

from __future__ import annotations

from dataclasses import replace

from properties.releases.test_radix_engine import DRAFTS, ENGINE, MIXED, OVERLAPPED, RadixRun
from properties.strategies.releases.radix import RadixStory, RadixWorld, radix_stories
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

_TRACKED, _DRAFTS, _MIXED, _LAST = (
    # A batch has room for several rows of more than a chunk.
    replace(world, kind="mamba2", chunked_prefill_size=20)
    for world in (OVERLAPPED, DRAFTS, MIXED, RadixWorld())
)


@prop("radix-engine/mamba2-overlap", "provenance", ENGINE, device="cpu", story=radix_stories(_TRACKED))
def test_requests_with_mamba2_layers_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with Mamba-2 layers read the state of their tokens.

    As in overlapping steps; the layers are of Mamba-2, whose scan leaves states before chunks of the whole batch.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/mamba2-no-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(_LAST))
def test_requests_that_cache_their_last_mamba2_state_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that cache their last Mamba-2 state read the state of their tokens.

    As where only the last state is cached; the layers are of Mamba-2.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/mamba2-mixed", "provenance", ENGINE, device="cpu", story=radix_stories(_MIXED))
def test_requests_with_mamba2_layers_in_mixed_batches_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with Mamba-2 layers in mixed batches read the state of their tokens.

    As in batches of prefills and decodes; the layers are of Mamba-2.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/mamba2-drafts", "provenance", ENGINE, device="cpu", story=radix_stories(_DRAFTS))
def test_requests_with_mamba2_layers_and_drafts_read_the_state_of_their_accepted_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with Mamba-2 layers and drafts read the state of their accepted tokens.

    As with drafts; the layers are of Mamba-2.
    """
    RadixRun(trial, story).run()
