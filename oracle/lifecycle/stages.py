"""The laws of an engine whose layers are divided among stages, with several batches in flight, on plain values.

Each stage has the states of its own layers, and comes to a batch later than the stage before. Whenever that is, its forward runs exactly the
rows that the batch was scheduled with, reads the states of its layers after exactly the tokens computed before the batch, writes to the blocks
that the requests had as it was scheduled, and takes in what the stage before has made of the same tokens. No stage reads rows, tables or
host memory of a later batch. What may be hit as a batch is scheduled has its state in each stage once that stage has run the batch.
Source: the semantic invariant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from oracle.lifecycle.broken_laws import Broken
from oracle.lifecycle.known_states import KnownStates, LiveRequest
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.observed import ObservedStep


@dataclass
class StagedLaws:
    """Follows a scenario of an engine with stages, and says what breaks a law; see `LiveLaws` for the arguments.

    Args:
        num_stages: stages, which see the same batches in the same order.
    """

    block_sizes: Sequence[int]
    window: int
    num_blocks: int
    num_stages: int
    engine: LiveLaws = field(init=False)
    stages: tuple[LiveLaws, ...] = field(init=False)

    def __post_init__(self) -> None:
        laws = [LiveLaws(self.block_sizes, self.window, self.num_blocks) for _ in range(self.num_stages + 1)]
        self.engine, *stages = laws
        self.stages = tuple(stages)

    @property
    def known(self) -> KnownStates:
        """The states that requests have to come to."""
        return self.engine.known

    @property
    def requests(self) -> dict[str, LiveRequest]:
        """By their names."""
        return self.engine.requests

    def add(self, name: str, prompt: Sequence[int]) -> None:
        """A request comes in."""
        for laws in (self.engine, *self.stages):
            laws.add(name, prompt)

    def step(self, seen: ObservedStep) -> list[Broken]:
        """What the stages broke in the batches that they came to, and then the engine itself."""
        # Rows and contents are a stage's.
        engine = replace(
            seen, scheduled={}, rows=(), stray=(), published=[(*one[:4], ()) for one in seen.published]
        )
        in_stages = [broken for number, of in seen.stages for broken in self._stage(number, of)]
        return [*in_stages, *self.engine.step(engine)]

    def _stage(self, number: int, seen: ObservedStep) -> Iterator[Broken]:
        for law, text, wanted, about in self.stages[number].forward(seen):
            yield law, f"in stage {number}, {text}", wanted, {**about, "stage": number}
        for before, after in seen.host_memory:
            if before != after:
                yield (
                    "metadata",
                    f"in stage {number}, host memory that a batch in flight reads = {list(after)}",
                    f"should stay {list(before)} until the output of the batch comes",
                    {"stage": number},
                )
                return
