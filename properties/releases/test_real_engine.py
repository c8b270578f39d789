"""vLLM's own engine: its scheduler, its cache manager and its worker, in scenarios of requests."""

from __future__ import annotations

from properties.releases.engine_run import EngineRun
from properties.releases.marks import (
    BEHIND_A_LOAD,
    HIT,
    IN_FLIGHT,
    LOADED,
    MIXED,
    REPLAYS,
    SAVED,
    SLID,
    STAGE,
    LiveMarks,
)
from properties.strategies.releases.live import (
    LiveStory,
    connected_stories,
    kernel_stories,
    live_stories,
    offloaded_stories,
    paired_live_stories,
    replayed_stories,
    served_stories,
    sliding_stories,
    staged_stories,
)
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

ENGINE = "LiveEngine"
# By id: scenarios, the situations that they are for, and how the configuration differs from others.
CONFIGURATIONS = (
    Configuration("real-engine/v2", story=live_stories("V2"), situations=(HIT, MIXED),
        reason="in the V2 model runner, which keeps requests in slots"),
    Configuration("real-engine/v1", story=live_stories("V1"), situations=(MIXED,),
        reason="in the V1 model runner, which keeps requests in rows"),
    Configuration("real-engine/connector-v2", story=connected_stories("V2"), situations=(LOADED, SAVED),
        reason="in the V2 model runner with a connector, which loads blocks and saves them"),
    Configuration("real-engine/connector-v1", story=connected_stories("V1"), situations=(LOADED, SAVED),
        reason="in the V1 model runner with a connector, which loads blocks and saves them"),
    Configuration("real-engine/offloading-v2", story=offloaded_stories("V2", "offloading"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V2 model runner with the release's own connector for offloading"),
    Configuration("real-engine/offloading-v1", story=offloaded_stories("V1", "offloading"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V1 model runner with the release's own connector for offloading"),
    Configuration("real-engine/simple-offloading-v2", story=offloaded_stories("V2", "simple", "simple-lazy"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V2 model runner with the release's own connector for host memory, which saves at once or before a block is given up"),
    Configuration("real-engine/simple-offloading-v1", story=offloaded_stories("V1", "simple", "simple-lazy"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V1 model runner with the release's own connector for host memory, which saves at once or before a block is given up"),
    Configuration("real-engine/mooncake-offloading-v2", story=offloaded_stories("V2", "mooncake"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V2 model runner with the release's connector for Mooncake's store, which engines may share"),
    Configuration("real-engine/mooncake-offloading-v1", story=offloaded_stories("V1", "mooncake"), situations=(BEHIND_A_LOAD, SAVED),
        reason="in the V1 model runner with the release's connector for Mooncake's store, which engines may share"),
    Configuration("real-engine/nixl-v2", story=served_stories("V2"), situations=(BEHIND_A_LOAD,),
        reason="in the V2 model runner with the release's connector for NIXL, which loads a prompt that another request has computed"),
    Configuration("real-engine/nixl-v1", story=served_stories("V1"), situations=(BEHIND_A_LOAD,),
        reason="in the V1 model runner with the release's connector for NIXL, which loads a prompt that another request has computed"),
    Configuration("real-engine/kernels", story=kernel_stories(), situations=(MIXED,),
        reason="with a recurrent layer of the release that its own kernels compute"),
    Configuration("real-engine/replay", story=replayed_stories(), situations=(REPLAYS,),
        reason="with a layer of Mamba-2 that keeps the inputs of its last decodes beside an older state, and replays them"),
    Configuration("real-engine/stages-v2", story=staged_stories(), situations=(STAGE, IN_FLIGHT),
        reason="in pipeline stages of the V2 model runner, each of which comes to a batch late"),
    Configuration("real-engine/sliding-v2", story=sliding_stories("V2"), situations=(SLID, HIT),
        reason="in the V2 model runner with layers of sliding-window attention, whose blocks before the window are freed"),
    Configuration("real-engine/sliding-v1", story=sliding_stories("V1"), situations=(SLID, HIT),
        reason="in the V1 model runner with layers of sliding-window attention, whose blocks before the window are freed"),
    Configuration("real-engine/pairs-v2", story=paired_live_stories("V2"), situations=(HIT, MIXED, SAVED, IN_FLIGHT, STAGE),
        reason="in the V2 model runner, in engines that combine any two features"),
    Configuration("real-engine/pairs-v1", story=paired_live_stories("V1"), situations=(HIT, MIXED, SAVED),
        reason="in the V1 model runner, in engines that combine any two features"),
)  # fmt: skip


@prop(CONFIGURATIONS, "provenance", ENGINE, device="cpu")
def requests_read_the_state_of_their_tokens(trial: Example, story: LiveStory) -> None:
    """Requests read the state of exactly their tokens.

    Every forward reads the state after exactly the computed tokens, every block that may be hit holds the state at its end, and nothing is
    owned twice or lost, whatever requests do. A block that is being loaded is its request's alone until that is done, a block that is being
    saved is not written before that is done, and what is saved is the state of exactly its tokens. Behind a load of c tokens the blocks that
    the next forward reads hold the state after exactly c. What a layer's kernels make of a token is the recurrence over the request's tokens up to it. No stage reads rows, tables or host memory
    of a later batch. Sliding-window attention reads the tokens of its window alone, and a hit needs no others of them.
    """
    EngineRun(trial, story, ENGINE, LiveMarks(story.world)).run()
