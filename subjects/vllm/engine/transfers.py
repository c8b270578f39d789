"""The worker's side of the connector of scenarios: what is saved, outside of the cache, and loads and saves at the moments drawn.

A save reads its blocks, and a load writes its own, some steps after it was asked for. Steps are counted by the worker.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory


@dataclasses.dataclass(frozen=True)
class BlockMove:
    """A block to load or to save: of which group, what it is kept under, and as how many tokens of which request."""

    group: int
    block: int
    prefix: Any
    request: str
    tokens: int


@dataclasses.dataclass(frozen=True)
class LiveTransfer:
    """A load or a save of several blocks.

    Args:
        number: counts loads, and saves, from 0.
        request: for which it loads, or that is gone and whose blocks are kept until it is saved; else "".
        steps: of the worker until it is done; 0 is in the step that asks for it.
        sync: a load that the scheduler takes for done in the step.
        fails: a load that writes nothing.
        pinned: a save for which its blocks are counted as in use.
    """

    number: int
    request: str
    blocks: tuple[BlockMove, ...]
    steps: int
    sync: bool = False
    fails: bool = False
    pinned: bool = False


class LiveTransfers:
    """Carries out loads and saves.

    Args:
        memory: of the engine, to tell what stood in a block when it was saved.
        names: of the layers, group by group.
    """

    def __init__(self, settings: LiveSettings, memory: LiveMemory, names: Sequence[Sequence[str]]) -> None:
        self.settings, self.memory, self.names = settings, memory, names
        self.store: dict[tuple[int, Any], list[torch.Tensor]] = {}
        self.saved: list[tuple[Any, ...]] = []
        """What was read to be saved since the engine last looked: group, block, request, tokens, contents."""
        self.written: list[tuple[int, int, str, int]] = []
        """What was loaded since then: group, block, request, tokens."""
        self.unloaded: list[str] = []
        """Requests whose loads failed since then."""
        self._waits = False
        self._caches: dict[str, list[torch.Tensor]] = {}
        self._loads: dict[LiveTransfer, int] = {}
        self._saves: dict[LiveTransfer, int] = {}
        self._loaded: list[LiveTransfer] = []
        self._sent: list[LiveTransfer] = []
        self._kept: list[LiveTransfer] = []

    def register(self, caches: Mapping[str, Any]) -> None:
        """The memory of each layer, as the release hands it over: a tensor, or one for each kind of state."""
        self._caches = {
            name: [found] if isinstance(found, torch.Tensor) else list(found)
            for name, found in caches.items()
        }

    def begin(self, loads: Iterable[LiveTransfer], saves: Iterable[LiveTransfer]) -> None:
        """What a step asks for."""
        if self._waits:
            # Before 0.29 a step without rows does not come to its end.
            self.save()
        self._waits = True
        self._loads |= {one: one.steps for one in loads}
        self._saves |= {one: one.steps for one in saves}

    def load(self) -> None:
        """Loads of this step."""
        for one in self._due(self._loads):
            if one.fails:
                self.unloaded.append(one.request)
            else:
                self.write(one)
            self._loaded.append(one)

    def save(self) -> None:
        """Saves of this step, after its forward."""
        self._waits = False
        for one in self._due(self._saves):
            for move in one.blocks:
                self.saved.append((*_as_published(move), self.memory.contents(move.group, move.block)))
                self.store[move.group, move.prefix] = [
                    states[move.block].clone() for states in self._states(move.group)
                ]
            self._sent.append(one)
            self._kept.append(one)

    def write(self, load: LiveTransfer) -> None:
        """What was saved, into the blocks of a load."""
        for move in load.blocks:
            kept = self.store[move.group, move.prefix]
            for states, values in zip(self._states(move.group), kept, strict=True):
                states[move.block] = values
            self.written.append(_as_published(move))

    def received(self) -> set[str]:
        """Requests whose loads were done since this was asked, also those that failed."""
        done, self._loaded = self._loaded, []
        return {one.request for one in done if not one.sync}

    def failed(self) -> set[str]:
        """Of those that `received` will name, the ones whose loads failed."""
        return {one.request for one in self._loaded if one.fails}

    def sent(self) -> set[str]:
        """Requests that are gone and whose blocks were saved since this was asked."""
        done, self._sent = self._sent, []
        return {one.request for one in done if one.request}

    def kept(self) -> tuple[int, ...]:
        """Numbers of saves that were done since this was asked."""
        done, self._kept = self._kept, []
        return tuple(one.number for one in done)

    def _states(self, group: int) -> list[torch.Tensor]:
        return [states for name in self.names[group] for states in self._caches[name]]

    def _due(self, waiting: dict[LiveTransfer, int]) -> list[LiveTransfer]:
        due = [one for one, steps in waiting.items() if steps == 0]
        for one in list(waiting):
            waiting[one] -= 1
        for one in due:
            del waiting[one]
        return due


def _as_published(move: BlockMove) -> tuple[int, int, str, int]:
    return move.group, move.block, move.request, move.tokens
