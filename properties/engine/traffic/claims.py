"""Pools of recurrent state on a device, with claims about the prefixes that they hold, which are checked once per step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from properties.engine.traffic.pool_memory import make_pools
from properties.engine.traffic.state_pools import StatePools
from properties.engine.world import World

_ODD = 0x9E3779B97F4A7C15
_SEED_BITS = 63


def seed_of(prefix: int) -> int:
    """A seed for each prefix, far from those of its neighbours; 0 for the empty one."""
    return prefix * _ODD % (1 << _SEED_BITS)


@dataclass(frozen=True)
class Claim:
    """A block, or one of its conv rows, holds the state after `prefix`; `when` says when, and who relies on it.

    `stays`: it is not written before claims are answered, so that what is there instead is there still.
    """

    group: int
    block: int
    row: int | None
    prefix: int
    when: str = field(compare=False)
    stays: bool = field(default=False, compare=False)


Refuted = tuple[Claim, int, int]
"""A claim that is not true, and the layer and the state of that layer that show it."""


class ClaimedPools(StatePools):
    """Pools with claims, which are compared at once and answered later, so that the host does not wait in between."""

    def __init__(self, layers: Sequence[Sequence[tuple[str, torch.Tensor]]], **form: Any) -> None:
        super().__init__(layers, **form)
        self._claims: dict[Claim, None] = {}
        self._asked: list[tuple[list[Claim], list[tuple[int, int]], torch.Tensor]] = []

    def claim(self, claims: Iterable[Claim]) -> None:
        """Say what the pools hold until the next `compare`."""
        self._claims.update(dict.fromkeys(claims))

    def compare(self) -> None:
        """Start to compare all that is claimed with what the pools hold now."""
        together: dict[tuple[int, str], list[Claim]] = {}
        for one in self._claims:
            together.setdefault((one.group, "temporal" if one.row is None else "conv"), []).append(one)
        self._claims.clear()
        for (group, kind), same in together.items():
            states = [(state.layer, state.number) for state in self._of_kind(kind, group)]
            if states:
                self._asked.append((same, states, self._wrong(kind, group, same)))

    def _wrong(self, kind: str, group: int, claims: Sequence[Claim]) -> torch.Tensor:
        """By state and claim; on the device, which may still be at it."""
        places: tuple[list[int], ...] = ([one.block for one in claims],)
        if kind == "conv":
            places = (*places, [one.row or 0 for one in claims])
        return self.different(self._of_kind(kind, group), places, [seed_of(one.prefix) for one in claims])

    def refuted(self) -> Refuted | None:
        """Compare what is left, and wait for all comparisons; the first claim that is not true."""
        self.compare()
        asked, self._asked = self._asked, []
        if not asked:
            return None
        answers = torch.cat([wrong.flatten() for _, _, wrong in asked]).cpu()
        parts = answers.split([wrong.numel() for _, _, wrong in asked])
        for (claims, states, _), part in zip(asked, parts, strict=True):
            found = part.view(len(states), len(claims)).T.nonzero().tolist()
            if found:
                return (claims[found[0][0]], *states[found[0][1]])
        return None

    def meaning(self, refuted: Refuted, prefixes: Sequence[int]) -> int | None:
        """The one of these prefixes whose state is there instead."""
        claim, *place = refuted
        blocks, seeds = [claim.block] * len(prefixes), [seed_of(prefix) for prefix in prefixes]
        if claim.row is None:
            different = self.check_temporal(claim.group, blocks, seeds)
        else:
            different = self.check_rows(claim.group, blocks, [claim.row] * len(prefixes), seeds)
        others = {i for i, *where in different if where == place}
        return next((prefix for i, prefix in enumerate(prefixes) if i not in others), None)


@dataclass(frozen=True, eq=False)
class LayerPools:
    """Pools of a world's layers, and the tensors by layer as the subject gets them; `window` = K - 1, `num_rows` of a block."""

    pools: ClaimedPools
    layers: dict[str, list[torch.Tensor]]
    window: int
    num_rows: int
    poisoned: tuple[int, ...]

    @classmethod
    def of(cls, world: World, device: str) -> LayerPools:
        """Pools with poison in all blocks; groups that share them use the same memory."""
        setup = world.setup
        names = dict.fromkeys(pool for pools in setup.pool_names for pool in pools)
        states = {pool: setup.groups[group].states for _, group, pool in setup.named_layers()}
        specs = [[(one.kind, one.shape, getattr(torch, one.dtype)) for one in states[pool]] for pool in names]
        made = dict(zip(names, make_pools(specs, num_blocks=world.num_blocks, device=device), strict=True))
        named = list(setup.named_layers())
        rows = [one.shape[setup.layout == "DS"] for one in setup.groups[0].states if one.kind == "conv"]
        window = max(rows, default=world.num_spec) - world.num_spec
        pools = ClaimedPools(
            [made[pool] for _, _, pool in named],
            window=window,
            layout=setup.layout,
            groups=[group for _, group, _ in named],
        )
        layers = {name: [tensor for _, tensor in made[pool]] for name, _, pool in named}
        found = cls(
            pools, layers, window, max(rows, default=0), (0,) if setup.shared else (*range(world.num_groups),)
        )
        found.poison(range(world.num_blocks))
        return found

    def poison(self, blocks: Iterable[int]) -> None:
        for group in self.poisoned:
            self.pools.poison(group, list(dict.fromkeys(blocks)))
