"""An engine's own scheduler, radix tree and state pools, in scenarios of requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from properties.engine.radix_marks import RadixMarks
from properties.releases.live_marks import Marks
from properties.releases.test_real_engine import LiveRun
from properties.strategies.releases.live import LiveAdd
from properties.strategies.releases.radix import (
    KEYS_THAT_REMAIN,
    LONGEST_STEP,
    SCARCE_STATES,
    LateCopies,
    RadixAdd,
    RadixStory,
    RadixWorld,
    radix_stories,
)
from statecheck.case.values import Name, Value, call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

ENGINE = "RadixEngine"
_TRACKED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=12)
_PAGED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=12, page_size=4)
# A page has several chunks of a scan, and a chunk several pages.
# A step takes in several pages, so that a prefill passes the end of a page, and keeps the state there.
_WIDE_PAGES = RadixWorld(
    strategy="extra_buffer",
    max_mamba_cache_size=16,
    overlap=True,
    page_size=8,
    max_total_tokens=128,
    chunked_prefill_size=LONGEST_STEP,
    mamba_track_interval=8,
)
_WIDE_CHUNKS = replace(_WIDE_PAGES, page_size=4, mamba_chunk_size=8, mamba_track_interval=16)
OVERLAPPED = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True)
_RUST = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=16, overlap=True, core="rust")
SCARCE = RadixWorld(strategy="extra_buffer", max_mamba_cache_size=10, max_total_tokens=36, overlap=True)
DRAFTS = RadixWorld(
    strategy="extra_buffer",
    max_mamba_cache_size=16,
    overlap=True,
    # A request passes no two boundaries in two steps.
    mamba_track_interval=8,
    num_draft_tokens=3,
)
MIXED = replace(OVERLAPPED, mixed=True)
_CAPPED = replace(OVERLAPPED, states_per_path=2)
_TREES = replace(DRAFTS, num_draft_tokens=4, draft_breadth=2)
_EAGLE = replace(DRAFTS, draft_method="eagle")
_WRITE_THROUGH = replace(SCARCE, host_policy="write_through")
_WRITE_BACK = replace(SCARCE, host_policy="write_back")
_WRITE_SELECTIVE = replace(SCARCE, host_policy="write_through_selective")
_SCARCE_STATES = replace(
    _WRITE_THROUGH,
    max_mamba_cache_size=SCARCE_STATES,
    max_total_tokens=KEYS_THAT_REMAIN,
    # A step is a chunk of a scan, so that a prompt of some chunks leaves as many states.
    chunked_prefill_size=4,
)
# Prefixes can fill all slots of states before they fill those of keys.
_LAZY_DRAFTS = replace(
    DRAFTS, strategy="extra_buffer_lazy", max_mamba_cache_size=9, max_total_tokens=96, max_running_requests=2
)
_LAZY = RadixWorld(strategy="extra_buffer_lazy", max_mamba_cache_size=12, overlap=True)


@dataclass(eq=False)
class RadixRun(LiveRun):
    """A scenario of such an engine on its way."""

    engine: str = ENGINE
    stops: dict[str, int] = field(default_factory=dict)
    """By request, the number of the token that it says that is its stop token."""

    @property
    def world(self) -> RadixWorld:
        """The engine's settings."""
        world = self.story.world
        assert isinstance(world, RadixWorld)
        return world

    def new_marks(self) -> Marks:
        return RadixMarks(self.world, self.stops)

    @property
    def room(self) -> int:
        return self.world.room

    def added_with(self, event: LiveAdd, most: int) -> dict[str, Value]:
        if not isinstance(event, RadixAdd):
            return {}
        stop = min(event.stop_after, most)
        # The request that comes in is the last of those that live.
        self.stops[self.alive[-1]] = stop
        return {"stop_after": stop}

    def happens(self, event: object) -> None:
        if not isinstance(event, LateCopies):
            super().happens(event)
            return
        late = {"to_host": event.to_host, "from_host": event.from_host}
        self.call(call(f"{self.engine}.delay_copies", self=Name("engine"), **late))


@prop("radix-engine/no-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(RadixWorld()))
def test_requests_that_cache_their_last_state_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that cache their last state read the state of their tokens.

    Every forward reads the state of exactly the computed tokens, every prefix in the tree has the keys and the state of exactly
    its tokens, and no slot has two owners or none, whatever requests do.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/extra-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(_TRACKED))
def test_requests_that_keep_states_at_boundaries_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that keep states at boundaries read the state of their tokens.

    As where only the last state is cached; what is cached was copied to another slot when the boundary was passed.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/pages", "provenance", ENGINE, device="cpu", story=radix_stories(_PAGED))
def test_requests_whose_keys_lie_in_pages_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose keys lie in pages read the state of their tokens.

    As with keys in slots of one token: a prefix ends where a page does.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/wide-pages", "provenance", ENGINE, device="cpu", story=radix_stories(_WIDE_PAGES))
def test_requests_whose_pages_have_several_chunks_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose pages have several chunks read the state of their tokens.

    As in overlapping steps; a page of keys has the tokens of two chunks of a scan, so that states are kept at every second chunk.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/wide-chunks", "provenance", ENGINE, device="cpu", story=radix_stories(_WIDE_CHUNKS))
def test_requests_whose_chunks_have_several_pages_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose chunks have several pages read the state of their tokens.

    As in overlapping steps; a chunk of a scan has the tokens of two pages, and decodes keep states at every second chunk.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/overlap", "provenance", ENGINE, device="cpu", story=radix_stories(OVERLAPPED))
def test_requests_in_overlapping_steps_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests in overlapping steps read the state of their tokens.

    As without overlap: the next step is scheduled before the results of the last one are known.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/lazy-buffer", "provenance", ENGINE, device="cpu", story=radix_stories(_LAZY))
def test_requests_that_get_a_second_slot_when_they_need_it_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that get a second slot when they need it read the state of their tokens.

    As in overlapping steps; a request's second slot for a state at a boundary is given to it when it comes to one.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/rust-core", "provenance", ENGINE, device="cpu", story=radix_stories(_RUST))
def test_requests_with_the_compiled_tree_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with the compiled tree read the state of their tokens.

    As in overlapping steps; the tree's nodes are those of the release's core in Rust.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/scarce", "provenance", ENGINE, device="cpu", story=radix_stories(SCARCE))
def test_requests_that_share_few_slots_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that share few slots read the state of their tokens.

    As in overlapping steps; the pools are too small for all requests, so that some are sent back to the queue and prefixes are evicted.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/drafts", "provenance", ENGINE, device="cpu", story=radix_stories(DRAFTS))
def test_requests_with_drafts_read_the_state_of_their_accepted_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with drafts read the state of their accepted tokens.

    As in overlapping steps; each step verifies drafts, and the state after the last accepted one is copied to the request's slot.
    """
    RadixRun(trial, story).run()


@prop(
    "radix-engine/lazy-drafts",
    "provenance",
    ENGINE,
    device="cpu",
    story=radix_stories(_LAZY_DRAFTS),
)
def test_requests_with_drafts_and_a_second_slot_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with drafts and a second slot read the state of their tokens.

    As with drafts; a request's second slot for a state at a boundary is given to it when it comes near one.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/mixed", "provenance", ENGINE, device="cpu", story=radix_stories(MIXED))
def test_requests_in_batches_of_prefills_and_decodes_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests in batches of prefills and decodes read the state of their tokens.

    As in overlapping steps; decodes run in the same batch as a chunk of another request's prompt.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/capped", "provenance", ENGINE, device="cpu", story=radix_stories(_CAPPED))
def test_requests_whose_paths_keep_few_states_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose paths keep few states read the state of their tokens.

    As in overlapping steps; the tree drops states of a path that has more than two.
    """
    RadixRun(trial, story).run()


@prop(
    "radix-engine/no-cache",
    "provenance",
    ENGINE,
    device="cpu",
    story=radix_stories(replace(OVERLAPPED, radix_cache=False, strategy="no_buffer")),
)
def test_requests_without_a_cache_read_the_state_of_their_tokens(trial: Example, story: RadixStory) -> None:
    """Requests without a cache read the state of their tokens.

    As in overlapping steps; there is no tree of prefixes.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/draft-trees", "provenance", ENGINE, device="cpu", story=radix_stories(_TREES))
def test_requests_with_trees_of_drafts_read_the_state_of_their_accepted_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with trees of drafts read the state of their accepted tokens.

    As with drafts; wrong drafts stand beside right ones, and the accepted ones lie apart from each other in the batch.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/eagle", "provenance", ENGINE, device="cpu", story=radix_stories(_EAGLE))
def test_requests_with_drafts_of_a_model_read_the_state_of_their_accepted_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests with drafts of a model read the state of their accepted tokens.

    As with drafts; they are those of a draft model, whose part each step hands to the next one (EAGLE).
    """
    RadixRun(trial, story).run()


@prop("radix-engine/write-through", "provenance", ENGINE, device="cpu", story=radix_stories(_WRITE_THROUGH))
def test_requests_whose_prefixes_are_copied_to_host_memory_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose prefixes are copied to host memory read the state of their tokens.

    As with few slots; the tree copies prefixes to host memory, which holds the keys and states of exactly their tokens, and loads them back.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/few-states", "provenance", ENGINE, device="cpu", story=radix_stories(_SCARCE_STATES))
def test_requests_that_share_few_slots_of_states_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests that share few slots of states read the state of their tokens.

    As with prefixes that are copied to host memory; they fill all slots of states while most slots of keys are free.
    """
    RadixRun(trial, story).run()


@prop("radix-engine/write-back", "provenance", ENGINE, device="cpu", story=radix_stories(_WRITE_BACK))
def test_requests_whose_prefixes_go_to_host_memory_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose prefixes go to host memory read the state of their tokens.

    As with prefixes that are copied to host memory; they are copied when they are evicted.
    """
    RadixRun(trial, story).run()


@prop(
    "radix-engine/write-selective", "provenance", ENGINE, device="cpu", story=radix_stories(_WRITE_SELECTIVE)
)
def test_requests_whose_prefixes_are_copied_at_the_second_hit_read_the_state_of_their_tokens(
    trial: Example, story: RadixStory
) -> None:
    """Requests whose prefixes are copied at the second hit read the state of their tokens.

    As with prefixes that are copied to host memory; a prefix is copied when it is used again.
    """
    RadixRun(trial, story).run()
