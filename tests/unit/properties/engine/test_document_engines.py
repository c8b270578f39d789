"""An engine that decides by one of the documents' own rules, where ours differ, fails a state machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st

from oracle.lifecycle.requests import ScheduledRequest
from oracle.lifecycle.requests import SchedulerStep as Scheduled
from properties import test_lifecycle
from properties.engine.driver import RUNNERS
from properties.engine.metadata import ForwardBatch
from properties.engine.runners import ByRow
from properties.engine.world import World
from properties.strategies.align.setup import Group, Kept, Setup
from statecheck.execution.registry import load_properties
from statecheck.kernels import triton_mode
from subjects import load
from tests.helpers.hunts import hunt

PLAIN = Setup((Group((Kept("temporal", (2, 2, 2)),)),), ("temporal",), block_size=2, num_spec=1)
BOTH = replace(
    PLAIN, groups=(Group((Kept("conv", (3, 2)), Kept("temporal", (2, 2, 2)))),), kinds=("conv", "temporal")
)
# Where kernels are interpreted, the machine is not given every engine but one, to be quick.
SMALL = World(BOTH, ("gdn",), num_blocks=16, max_num_seqs=2, max_model_len=16)


@dataclass(eq=False)
class RowsForget(ByRow):
    """Rows that sit a step out are removed, and come back with an accepted count of 1. Contract 2.4."""

    _present: set[str] = field(default_factory=set)

    def tell(self, scheduled: Scheduled) -> None:
        super().tell(scheduled)
        present = {row.id for row in scheduled.rows}
        self.accepted.update(dict.fromkeys(present - self._present, 1))
        self._present = present


@dataclass(eq=False)
class PromptsAlone(ByRow):
    """A request past the tokens of its prompt is not prefilling, though it may replay others. Contract 1.6."""

    _prompts: dict[str, int] = field(default_factory=dict)

    def batch(self, rows: tuple[ScheduledRequest, ...], padding: int) -> ForwardBatch:
        for row in rows:
            if row.samples:
                self._prompts.setdefault(row.id, row.end)
        marked = (replace(row, is_prefilling=self._in_prompt(row)) for row in rows)
        return super().batch(tuple(marked), padding)

    def _in_prompt(self, row: ScheduledRequest) -> bool:
        return row.computed < self._prompts.get(row.id, row.end)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runner", "id_", "world"),
    [
        (RowsForget, "lifecycle/no-copies", replace(SMALL, mode="none")),
        (PromptsAlone, "lifecycle/v1-provenance", replace(SMALL, setup=PLAIN, kinds=("mamba2",))),
    ],
    ids=["rows that forget", "prompts alone"],
)
def test_an_engine_that_decides_as_the_documents_do_is_found_out(
    runner: type[ByRow], id_: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; engines are hunted where they are executed")
    monkeypatch.setitem(RUNNERS, "V1", runner)
    monkeypatch.setattr(test_lifecycle, "worlds", lambda **_: st.just(world))
    assert hunt(load_properties()[id_], load("impl"), shrink=False) is not None
