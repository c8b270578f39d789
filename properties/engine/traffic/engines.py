"""Engines for recorded traffic: with small states on the host, or with those of a published model on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from oracle.types import cdiv
from properties.engine.driver import Engine
from properties.engine.models import Fingerprints
from properties.engine.places import StatePlace
from properties.engine.traffic.claims import LayerPools
from properties.engine.traffic.device_states import DeviceEngine, Direct, UnseenSetup, UnseenWorld
from properties.engine.traffic.requests import BLOCK
from properties.engine.world import World
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.setup import Setup
from properties.strategies.layout import environment
from statecheck.execution.port import InProcess
from subjects import Subject
from subjects.impl import PUBLISHED_MODELS
from subjects.impl import SUBJECT as IMPL

CONV, TEMPORAL = "bfloat16", "float32"
SMALL, TINY, ON_DEVICE = "small", "tiny", "Qwen3-Next-80B-A3B"
GROUPS = 2
_FITS = 0.85
"""Of the free memory, what pools may take."""
_REMEMBERED = 200_000
_TOKENS_AT_ONCE = 65536
_FAMILIES = {
    "linear_attention_state_shape": ("mamba2", ("temporal",)),
    "mamba1_state_shape": ("mamba1", ("conv", "temporal")),
    "mamba2_state_shape": ("mamba2", ("conv", "temporal")),
    "short_conv_state_shape": ("mamba2", ("conv",)),
    "gated_delta_net_state_shape": ("gdn", ("conv", "temporal")),
    "kda_state_shape": ("gdn", ("conv", "conv", "conv", "temporal")),
}


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
    model: str = "auto"
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
    """An engine for requests of up to `longest` tokens.

    Raises:
        ValueError: there is no such model, or not room enough for it.
    """
    if _wanted(options, device) == SMALL:
        port = InProcess(subject, device)
        world = replace(_small(options, longest), profile=subject.profile)
        return Engine(world, port.execute, Forgetful)
    unseen = replace(_on_device(options, device, longest), profile=subject.profile)
    cache = LayerPools.of(unseen, device)
    return DeviceEngine(unseen, Direct(subject, device, cache.layers).execute, cache=cache)


def _wanted(options: ReplayOptions, device: str) -> str:
    if options.model == "auto":
        return SMALL if device == "cpu" else ON_DEVICE
    return options.model


def _small(options: ReplayOptions, longest: int) -> World:
    """Two kinds of layers that use the same memory in turn, with bytes between their states that belong to none."""
    conv = (3 + options.num_spec, 3)
    states = (
        Kept("conv", conv if options.layout == "SD" else conv[::-1], CONV),
        Kept("temporal", (1, 2, 2), TEMPORAL),
    )
    groups = (Group(states, lead=4), Group(states, padding=8))
    setup = Setup(
        groups, ("conv", "temporal"), options.tokens_per_block, options.num_spec, options.layout, True
    )
    kinds = ("mamba1", "mamba2") if not options.num_spec else ("gdn", "mamba2")
    return World(setup, kinds, **_sizes(options, longest, options.blocks or options.scarce_blocks))


def _sizes(options: ReplayOptions, longest: int, num_blocks: int) -> dict[str, Any]:
    size = options.tokens_per_block
    return {
        "runner": options.runner,
        "num_blocks": num_blocks,
        "max_num_seqs": options.max_num_seqs,
        # A request may run over its length by the drafts of its last step, and drafts once more before.
        "max_model_len": cdiv(longest + 2 * (1 + options.num_spec), size) * size,
        "full_graphs": True,
    }


def _on_device(options: ReplayOptions, device: str, longest: int) -> UnseenWorld:
    kind, states, layers = _states(_wanted(options, device), options)
    # Groups have layers as equal in number as can be, the n-th of all in the same memory, as engines do it.
    groups = [Group(states, layers=cdiv(layers - number, GROUPS)) for number in range(min(GROUPS, layers))]
    kinds = tuple(state.kind for state in states)
    setup = UnseenSetup(
        tuple(groups), kinds, options.tokens_per_block, options.num_spec, options.layout, len(groups) > 1
    )
    num_blocks = options.blocks or (
        options.scarce_blocks if device == "cpu" else _fitting(setup, options.scarce_blocks)
    )
    return UnseenWorld(setup, (kind,) * len(groups), **_sizes(options, longest, num_blocks))


def _fitting(setup: Setup, least: int) -> int:
    free, _ = torch.cuda.mem_get_info()
    block = sum(setup.pages().values())
    found = int(free * _FITS) // block
    _check("blocks", found, found >= least, f">= {least} of {block:,} bytes, with {free:,} bytes free")
    return found


def _states(wanted: str, options: ReplayOptions) -> tuple[str, tuple[Kept, ...], int]:
    """The builder of a model, the states of each of its layers, and how many layers."""
    if wanted == TINY:
        kind, layers = "gdn", 3
        kinds: Sequence[str] = ("conv", "temporal")
        conv = (3 + options.num_spec, 8)
        shapes: Sequence[tuple[int, ...]] = (conv if options.layout == "SD" else conv[::-1], (2, 4, 4))
    else:
        model = _published(wanted)
        kind, kinds = _FAMILIES[model.family]
        layers = model.num_layers
        with IMPL.environment(environment(options.layout)):
            shapes = model.state_shapes(num_spec=options.num_spec)
    dtypes = (CONV if one == "conv" else TEMPORAL for one in kinds)
    return kind, tuple(map(Kept, kinds, shapes, dtypes)), layers


def _published(wanted: str) -> Any:
    found = [model for model in PUBLISHED_MODELS if _plain(model.name).startswith(_plain(wanted))]
    names = ", ".join((SMALL, TINY, *(model.name for model in PUBLISHED_MODELS)))
    _check("model", wanted, len(found) == 1, f"one of {names}")
    return found[0]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
