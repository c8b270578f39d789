"""vLLM's own engine: its scheduler, its cache manager and its worker, in scenarios of requests."""

from __future__ import annotations

from properties.releases.engine_run import EngineRun
from properties.releases.marks import LiveMarks
from properties.strategies.releases.live import LiveStory, connected_stories, live_stories, staged_stories
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

ENGINE = "LiveEngine"
_REQUESTS = (
    "a prefix hit",
    "a step with prompts and decodes",
    "a prompt in several steps",
    "a block that a prompt fills in several steps",
    "some drafts accepted, others rejected",
    "more drafts in a row than usual",
    "more rows in a step than usual",
    "a request waits for a row",
    "a request waits for blocks while a row is free",
    "a running request is preempted for blocks",
    "a request comes back",
    "no block is free",
    "a request is aborted while it runs",
    "the prefix cache is emptied while requests run",
)
_TRANSFERS = (
    "a block is loaded",
    "a block is loaded in a step that runs another request",
    "a block is saved",
    "a load fails",
    "a prefix hit",
    "a request comes back",
)
_STAGES = (
    "a stage is a batch late",
    "a step with rows behind a step in flight",
    "a prefix hit",
    "some drafts accepted, others rejected",
    "a request comes back",
)
_INSIDE = "a hit inside of a block"
# By id: scenarios, situations that a few hundred of them come to, and how the configuration differs from others.
CONFIGURATIONS = (
    Configuration("real-engine/v2", story=live_stories("V2"), situations=(*_REQUESTS, _INSIDE),
        reason="in the second model runner, which keeps requests in slots"),
    Configuration("real-engine/v1", story=live_stories("V1"), situations=_REQUESTS,
        reason="in the first model runner, which keeps requests in rows"),
    Configuration("real-engine/connector-v2", story=connected_stories("V2"), situations=(*_TRANSFERS, _INSIDE),
        reason="in the second model runner with a connector, which loads blocks and saves them"),
    Configuration("real-engine/connector-v1", story=connected_stories("V1"), situations=_TRANSFERS,
        reason="in the first model runner with a connector, which loads blocks and saves them"),
    Configuration("real-engine/stages-v2", story=staged_stories(), situations=_STAGES,
        reason="in pipeline stages of the second model runner, each of which comes to a batch late"),
)  # fmt: skip


@prop(CONFIGURATIONS, "provenance", ENGINE, device="cpu")
def requests_read_the_state_of_their_tokens(trial: Example, story: LiveStory) -> None:
    """Requests read the state of exactly their tokens.

    Every forward reads the state after exactly the computed tokens, every block that may be hit holds the state at its end, and nothing is
    owned twice or lost, whatever requests do. A block that is being loaded is its request's alone until that is done, a block that is being
    saved is not written before that is done, and what is saved is the state of exactly its tokens. No stage reads rows, tables or host memory
    of a later batch.
    """
    EngineRun(trial, story, ENGINE, LiveMarks(story.world)).run()
