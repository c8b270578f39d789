"""Steps of builders that drawn examples seldom are: decodes that one field tells from prompts, stale values in padding, no drafts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from properties.strategies.builder_sessions import Session, inside_domain
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest

DECODE, SHORT = StepRequest(1, 4), StepRequest(2, 7)
DRAFTED = StepRequest(3, 4, drafts=2, accepted=2), StepRequest(2, 7, drafts=1, accepted=3)
WITHOUT_DRAFTS = StepRequest(1, 9, accepted=3)
PROMPT, FIRST = StepRequest(5, 4, prefilling=True), StepRequest(9, 0, prefilling=True)
# Rows of padding whose counts and drafts are those of an earlier step.
STALE = StepRequest(0, accepted=9, drafts=1), StepRequest(0, accepted=0, drafts=0)
# A first token that the engine does not mark as a prompt's.
NEW = StepRequest(1, 0)
PLAIN = (
    BuildCall((DECODE, SHORT)),
    BuildCall((DECODE, PROMPT, FIRST, *STALE)),
    BuildCall((DECODE, NEW)),
    BuildCall((NEW,), marks=False),
    BuildCall((DECODE, PROMPT, FIRST), bounds=False),
    BuildCall((NEW, DECODE), bounds=False),
    BuildCall((DECODE, SHORT), marks=False, bounds=False),
)
SPECULATIVE = (
    BuildCall((*DRAFTED, WITHOUT_DRAFTS, *STALE)),
    BuildCall((*DRAFTED, *STALE), marks=False, bounds=False),
    BuildCall(STALE),
)
WITHOUT_COUNTS = (
    BuildCall((DECODE, SHORT), counts=False),
    BuildCall((DECODE, replace(STALE[0], prefilling=True))),
)
SPECULATIVE_GDN = (
    BuildCall((DECODE, PROMPT, *STALE), counts=False, drafts=False),
    BuildCall((DRAFTED[0], PROMPT, WITHOUT_DRAFTS, FIRST, DRAFTED[1])),
    BuildCall((FIRST, PROMPT, DRAFTED[1], *STALE)),
    BuildCall((*DRAFTED, WITHOUT_DRAFTS, PROMPT, *STALE)),
)
BUILDERS = (("mamba1", 0), ("mamba2", 0), ("mamba2", 2), ("gdn", 0), ("gdn", 2))


def _setups(kind: str, spec: int) -> list[BuilderSetup]:
    """For each mode: graphs up to the default number of rows, up to 4 rows, and none."""
    return [
        BuilderSetup(kind, mode, num_spec=spec, full_cudagraphs=graphs, max_cudagraph_capture_size=largest)
        for mode in ("none", "align", "all")
        if kind != "gdn" or mode != "all"
        for graphs, largest in ((True, None), (True, 4), (False, None))
    ]


def written_sessions() -> Iterator[Session]:
    """Each step with two of the setups of its builder, all of which have steps."""
    for kind, spec in BUILDERS:
        steps = PLAIN + (SPECULATIVE if spec else WITHOUT_COUNTS if kind == "mamba2" else ())
        steps += SPECULATIVE_GDN if spec and kind == "gdn" else ()
        setups = _setups(kind, spec)
        for number, step in enumerate(steps):
            for setup in (setups[number % len(setups)], setups[(number + 4) % len(setups)]):
                yield Session(setup, (inside_domain(step, setup),))


def written_captures() -> Iterator[dict[str, object]]:
    """Captures of no row, of one row, and of as many rows as the setup has, with and without padding."""
    for kind, spec in BUILDERS:
        for setup in _setups(kind, spec):
            if setup.full_cudagraphs:
                most = setup.capture_rows // (1 + spec)
                for rows, padded in ((0, 0), (0, 2), (1, 0), (1, 1), (most, 0)):
                    yield {"setup": setup, "rows": rows, "padded": padded}
