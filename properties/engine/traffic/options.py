"""What recorded traffic is replayed in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from properties.engine.traffic.requests import BLOCK

_TOKENS_AT_ONCE = 65536


@dataclass(frozen=True)
class ReplayOptions:
    """What to replay, and in what engine; where a number is None, it follows from the others and from the trace.

    `block_size`: tokens of a block, after scaling by `factor`. `tokens`: how many a step computes at most.
    `method` and `async_scheduling` are vLLM's: where drafts come from, and whether the next step is scheduled before
    this one's tokens are known.
    """

    trace: Path
    subject: str = "vllm"
    device: str = "cpu"
    requests: int = 2000
    factor: int = 64
    runner: str = "V2"
    block_size: int | None = None
    num_spec: int = 3
    method: str = "ngram"
    async_scheduling: bool | None = None
    max_num_seqs: int = 16
    blocks: int | None = None
    tokens: int | None = None
    layout: str = "SD"
    seed: int = 0
    acceptance: float = 0.7
    out: Path = Path("build/replay")

    def __post_init__(self) -> None:
        at_least = {"requests": 1, "factor": 1, "num_spec": 0, "max_num_seqs": 1}
        for name, least in at_least.items():
            _check(name, getattr(self, name), getattr(self, name) >= least, f">= {least}")
        _check("device", self.device, self.device in ("auto", "cpu"), "cpu")
        _check("runner", self.runner, self.runner in ("V1", "V2"), "V1 or V2")
        _check("layout", self.layout, self.layout in ("SD", "DS"), "SD or DS")
        _check("method", self.method, self.method in ("eagle", "ngram"), "eagle or ngram")
        rule = "eagle with async_scheduling = True and runner = 'V1'"
        _check("method", self.method, not self.async_scheduling or self._may_overlap, rule)
        _check("acceptance", self.acceptance, 0 <= self.acceptance <= 1, "from 0 to 1")
        _check("trace", str(self.trace), self.trace.is_file(), "a file of recorded requests")
        _check("factor", self.factor, BLOCK % self.factor == 0, f"a divisor of {BLOCK}")
        least = 1 + self.num_spec
        _check(
            "block_size",
            self.tokens_per_block,
            self.tokens_per_block >= least,
            f">= {least}, a token and its drafts",
        )
        least = self.max_num_seqs * (1 + self.num_spec) + self.tokens_per_block
        _check(
            "tokens",
            self.tokens_per_step,
            self.tokens_per_step >= least,
            f">= {least}, all drafts and a block",
        )

    @property
    def tokens_per_block(self) -> int:
        return BLOCK // self.factor if self.block_size is None else self.block_size

    @property
    def tokens_per_step(self) -> int:
        """Enough for a few prompts beside all drafts."""
        least = self.max_num_seqs * (1 + self.num_spec) + self.tokens_per_block
        return max(least, _TOKENS_AT_ONCE // self.factor) if self.tokens is None else self.tokens

    @property
    def overlaps_steps(self) -> bool:
        """As the user wants it, or else as vLLM chooses."""
        return self._may_overlap if self.async_scheduling is None else self.async_scheduling

    @property
    def _may_overlap(self) -> bool:
        """Whether vLLM has async scheduling with such drafts. It has it wherever it can."""
        return not self.num_spec or self.method == "eagle" or self.runner == "V2"


def _check(name: str, value: object, right: bool, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} = {value!r}, but should be {rule} [replay-trace]")
