"""The engine around the verified functions: its model's states, its builders, and the sizes of its cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from oracle.lifecycle.requests import Geometry
from oracle.types import cdiv
from properties.strategies import builders
from properties.strategies.align.setup import Setup
from statecheck.case.values import Let, Step, Tensor
from statecheck.subject.profile import DOCUMENTS, Profile

NEVER = 0xEE
"""Every byte of a page that was not written since the block was used before."""


@dataclass(frozen=True)
class World:
    """An engine to send requests through. `kinds` has a metadata builder for each group of `setup`.

    `runner`: "V1" keeps requests in rows, "V2" in slots. `pointers`: a V1 runner without device tables. `full_graphs`:
    batches of decodes may be padded. `zero_marks`: requests that drafted nothing count as zero drafts, not as none.
    `schedule` is the order in which the programs of a launch run on a CPU. `profile`: of the release that the engine is built
    around.
    """

    setup: Setup
    kinds: tuple[str, ...]
    mode: str = "align"
    runner: str = "V1"
    num_blocks: int = 32
    max_num_seqs: int = 4
    max_model_len: int = 48
    full_graphs: bool = False
    pointers: bool = False
    zero_marks: bool = False
    schedule: str = ""
    profile: Profile = field(default=DOCUMENTS, repr=False, kw_only=True)

    @property
    def block_size(self) -> int:
        return self.max_model_len if self.mode == "none" else self.setup.block_size

    @property
    def num_spec(self) -> int:
        return self.setup.num_spec

    @property
    def num_groups(self) -> int:
        return len(self.setup.groups)

    @property
    def width(self) -> int:
        """Columns of a block table."""
        columns = 1 if self.mode == "none" else cdiv(self.max_model_len, self.block_size)
        return columns + self.num_spec

    @property
    def copies(self) -> bool:
        """Whether the verified functions have anything to copy."""
        return self.mode == "align"

    @property
    def geometry(self) -> Geometry:
        return Geometry(
            self.mode,
            self.block_size,
            self.num_spec,
            self.num_groups,
            self.num_blocks,
            self.max_num_seqs,
            self.max_model_len,
        )

    def builder(self, group: int) -> builders.BuilderSetup:
        """The configuration of a group's metadata builder."""
        return builders.BuilderSetup(
            kind=self.kinds[group],
            mode=self.mode,
            block_size=self.block_size,
            num_spec=self.num_spec,
            max_num_seqs=self.max_num_seqs,
            full_cudagraphs=self.full_graphs,
            max_model_len=self.max_model_len,
            chunk_size=self.block_size,
        )

    def begin(self) -> list[Step]:
        """Name pools, tables, layers and configuration, and make the builders."""
        named: list[Step] = [Let(name, self._pool(name)) for name in self.setup.pools]
        named += [Let(f"table{group}", self.empty_table()) for group in range(self.num_groups)]
        named.append(Let("layers", self.setup.forward_context(self.num_blocks)))
        named.append(Let("config", self.setup.config(self.num_blocks)))
        for group in range(self.num_groups):
            named.append(self.builder(group).construct(f"builder{group}"))
        return named

    def _pool(self, name: str) -> Tensor:
        size = self.setup.pages()[name] * self.num_blocks
        return Tensor("uint8", (size,), bytes([NEVER]) * size)

    def empty_table(self) -> Tensor:
        shape = self.max_num_seqs, self.width
        return Tensor("int32", shape, (0,) * (shape[0] * shape[1]))
