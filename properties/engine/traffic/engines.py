"""Engines for recorded traffic: around a subject's functions, with small states."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from oracle.types import cdiv
from properties.engine.driver import Engine
from properties.engine.models import Fingerprints
from properties.engine.places import StatePlace
from properties.engine.traffic.requests import BLOCK
from properties.engine.world import World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.setup import Setup
from statecheck.execution.port import InProcess
from subjects import Subject

CONV, TEMPORAL = "bfloat16", "float32"
GROUPS = 2
_REMEMBERED = 200_000
_TOKENS_AT_ONCE = 65536


@dataclass(frozen=True)
class ReplayOptions:
    """What to replay, and on what. None, and "auto", are what `resolved` makes of the trace and the device.

    `engine`: "release" is the subject's own, "ours" the one around its functions, "auto" the subject's own where it has one and
    runs on a CPU. `block_size`: tokens of a block, after scaling by `factor`. `tokens`: how many a step computes at most.
    `method` and `async_scheduling` are vLLM's, of its own engine: where drafts come from, and whether the next step is scheduled before
    this one's tokens are known.
    """

    trace: Path
    subject: str = "impl"
    device: str = "auto"
    engine: str = "auto"
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
        _check("engine", self.engine, self.engine in ("auto", "ours", "release"), "auto, ours or release")
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
        if self.blocks is not None:
            least = 1 + GROUPS * (3 + self.num_spec)
            _check("blocks", self.blocks, self.blocks >= least, f">= {least}, those of one request")

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

    @property
    def scarce_blocks(self) -> int:
        """Fewer than so many requests hold at a time, so that some are preempted."""
        held = self.max_num_seqs * (1 + self.num_spec) * 7 // 8
        return 1 + GROUPS * max(held, 3 + self.num_spec)


def _check(name: str, value: object, right: bool, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} = {value!r}, but should be {rule} [replay-trace]")


@dataclass(eq=False)
class Forgetful(Fingerprints):
    """Fingerprints that are made again rather than kept for all tokens of a day."""

    _known: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def right(self, place: StatePlace, prefix: int) -> bytes:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        return super().right(place, prefix)


def make_engine(options: ReplayOptions, subject: Subject, device: str, longest: int) -> Engine:
    """An engine for requests of up to `longest` tokens, with two kinds of layers that use the same memory in turn."""
    conv = (3 + options.num_spec, 3)
    states = (
        Kept("conv", conv if options.layout == "SD" else conv[::-1], CONV),
        Kept("temporal", (1, 2, 2), TEMPORAL),
    )
    # With bytes between the states that belong to none.
    groups = (Group(states, lead=4), Group(states, padding=8))
    size = options.tokens_per_block
    world = World(
        Setup(groups, ("conv", "temporal"), size, options.num_spec, options.layout, True),
        ("mamba1", "mamba2") if not options.num_spec else ("gdn", "mamba2"),
        runner=options.runner,
        num_blocks=options.blocks or options.scarce_blocks,
        max_num_seqs=options.max_num_seqs,
        # A request may run over its length by the drafts of its last step, and drafts once more before.
        max_model_len=cdiv(longest + 2 * (1 + options.num_spec), size) * size,
        full_graphs=True,
        profile=subject.profile,
    )
    return Engine(world, InProcess(subject, device).execute, Forgetful)
