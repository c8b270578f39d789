"""The core in Rust of an engine's radix tree, in the scenarios of the core in Python."""

from __future__ import annotations

from dataclasses import replace

from properties.releases.test_radix_engine import DRAFTS, ENGINE, MIXED, SCARCE, RadixRun
from properties.releases.test_radix_sessions import SESSIONS, SessionRun
from properties.strategies.releases.radix import RadixStory, radix_stories
from properties.strategies.releases.radix_sessions import SessionStory, session_stories
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

_DRAFTS, _MIXED, _SCARCE, _SESSIONS = (
    replace(world, core="rust") for world in (DRAFTS, MIXED, SCARCE, SESSIONS)
)
_HOST = replace(_SCARCE, host_policy="write_through")


@prop("radix-engine/rust-scarce", "provenance", ENGINE, device="cpu", story=radix_stories(_SCARCE))
def test_requests_that_share_few_slots_with_the_compiled_tree_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that share few slots with the compiled tree read the state of their tokens.

    As with few slots; the tree's nodes are those of the release's core in Rust.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/rust-drafts", "provenance", ENGINE, device="cpu", story=radix_stories(_DRAFTS))
def test_requests_with_drafts_and_the_compiled_tree_read_the_state_of_their_accepted_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with drafts and the compiled tree read the state of their accepted tokens.

    As with drafts; the tree's nodes are those of the release's core in Rust.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/rust-mixed", "provenance", ENGINE, device="cpu", story=radix_stories(_MIXED))
def test_requests_in_mixed_batches_with_the_compiled_tree_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests in mixed batches with the compiled tree read the state of their tokens.

    As in batches of prefills and decodes; the tree's nodes are those of the release's core in Rust.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/rust-write-through", "provenance", ENGINE, device="cpu", story=radix_stories(_HOST))
def test_requests_whose_prefixes_the_compiled_tree_copies_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose prefixes the compiled tree copies read the state of their tokens.

    As with prefixes that are copied to host memory, by the release's core in Rust. What is there is seen when it is loaded back.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/rust-sessions", "provenance", ENGINE, device="cpu", story=session_stories(_SESSIONS))
def test_requests_of_sessions_with_the_compiled_tree_read_the_state_of_their_tokens(
    trial: Example, story: SessionStory
) -> None:
    """Requests of sessions with the compiled tree read the state of their tokens.

    As with sessions; the tree's nodes are those of the release's core in Rust.
    """
    SessionRun(trial, story).run()
