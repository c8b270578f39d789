"""A builder over many steps: earlier results never show in later ones."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from properties.strategies.builders import CLASSES, BuildCall, BuilderSetup, captured_step, setups, steps
from statecheck.execution.property import ExampleMachine
from statecheck.execution.registry import prop

BUILDERS = tuple(CLASSES.values())
UPDATABLE = tuple(CLASSES[kind] for kind in ("mamba1", "mamba2"))


@prop(
    "builder/no-stale-step",
    "ownership",
    *(f"{name}.build" for name in BUILDERS),
    *(f"{name}.build_for_cudagraph_capture" for name in BUILDERS),
    *(f"{name}.update_block_table" for name in UPDATABLE),
)
class AnOldStepNeverShowsInANewOne(ExampleMachine):
    """An old step never shows in a new one.

    Whatever a builder built or captured before, its next result is that of a new builder.
    """

    setup: BuilderSetup
    latest: BuildCall | None = None

    @initialize(setup=setups())
    def construct(self, setup: BuilderSetup) -> None:
        self.setup = setup
        self.agrees(setup.construct())

    @rule(data=st.data())
    def build(self, data: st.DataObject) -> None:
        step = data.draw(steps(self.setup))
        self.agrees(step.build(self.setup))
        self.latest = step if step.counts or not self.setup.num_spec else None

    @rule(data=st.data())
    def build_decodes_only(self, data: st.DataObject) -> None:
        step = data.draw(steps(self.setup, rows="decodes"))
        self.agrees(step.build(self.setup))
        self.latest = None

    @rule(rows=st.integers(0, 4), padded=st.integers(0, 2))
    def capture(self, rows: int, padded: int) -> None:
        self.agrees(captured_step(self.setup, rows, padded))
        self.latest = None

    @precondition(
        lambda self: self.latest is not None and self.setup.kind != "gdn" and not self.setup.num_spec
    )
    @rule(first_block=st.integers(500, 600))
    def change_the_block_table(self, first_block: int) -> None:
        assert self.latest is not None
        self.agrees(self.latest.with_blocks_from(first_block).update(self.setup))
