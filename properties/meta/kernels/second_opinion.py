"""Generated launches, executed from the IR and run by Triton's interpreter on the same memory: bytes and milliseconds.

    python -m properties.meta.kernels.second_opinion --subject impl --launches 1000

Every launch that the properties make is made three times, each time from the same bytes: executed, interpreted, and
executed under the sanitizer, which is the one that the property goes on with. Prints a row for each kernel, and every
launch after which the bytes of a tensor that the launch could reach differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

SEED = 17


@dataclass
class OpinionRow:
    """What the launches of one kernel took, in seconds."""

    launches: int = 0
    programs: int = 0
    executed: float = 0.0
    sanitized: float = 0.0
    interpreted: float = 0.0
    differ: int = 0
    first: float = 0.0
    """Of the first launch, which makes the variant."""


@dataclass
class SecondOpinion:
    """Compares launch after launch.

    Args:
        views: the tensors that the launch in hand may reach, other than its arguments.
        limit: so many launches are compared.
    """

    views: Callable[[], list[Any]]
    limit: int
    rows: dict[str, OpinionRow] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    refused: int = 0

    @property
    def launches(self) -> int:
        return sum(row.launches for row in self.rows.values())

    def around(self, one: Any, proceed: Callable[[], None]) -> None:
        from properties.harness.kernels import launch
        from properties.harness.kernels.memory import Memory

        if self.launches >= self.limit or getattr(one, "interpreter", None) is None:
            proceed()
            return
        tensors = [*self.views(), *(each for each in one.arguments if isinstance(each, torch.Tensor))]
        before = _held(tensors)
        began = time.perf_counter()
        try:
            proceed()
        except Exception:
            # What the sanitizer refuses may be anything to others.
            self.refused += 1
            raise
        sanitized, after = time.perf_counter() - began, _held(tensors)
        _put(tensors, before)
        began = time.perf_counter()
        with np.errstate(all="ignore"):
            launch.in_turn(one, Memory())
        executed = time.perf_counter() - began
        plain = _held(tensors)
        _put(tensors, before)
        began = time.perf_counter()
        one.interpreter()
        taken = time.perf_counter() - began
        other = _held(tensors)
        _put(tensors, after)
        row = self.rows.setdefault(one.kernel, OpinionRow())
        row.launches += 1
        row.programs += one.grid[0] * one.grid[1] * one.grid[2]
        row.executed, row.sanitized, row.interpreted = (
            row.executed + executed,
            row.sanitized + sanitized,
            row.interpreted + taken,
        )
        for at, (first, second) in enumerate(zip(plain, other, strict=True)):
            if not torch.equal(first, second):
                row.differ += 1
                self.told.append(f"{one.kernel}, grid {one.grid}: tensor {at} of {len(tensors)} differs")
                break


def _held(tensors: list[Any]) -> list[torch.Tensor]:
    return [_raw(one).clone() for one in tensors]


def _put(tensors: list[Any], held: list[torch.Tensor]) -> None:
    for one, raw in zip(tensors, held, strict=True):
        _raw(one).copy_(raw)


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes as they lie, gaps between rows left out."""
    size = tensor.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.detach().view(kind)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="second_opinion", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--subject", default="impl")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="properties whose name has this")
    chosen = parser.parse_args()

    from properties.harness.execution import profiles
    from properties.harness.kernels import triton_mode

    triton_mode.prepare("cpu")
    profiles.load()
    from properties.harness.execution.example import Bench, Falsified
    from properties.harness.execution.port import InProcess
    from properties.harness.execution.registry import load_properties
    from properties.harness.kernels.launch import launching
    from properties.meta.breakages.table import hunting
    from properties.subjects import load

    subject = load(chosen.subject)
    tested = [
        one
        for one in load_properties().values()
        if one.launches and chosen.only in one.name and one.kind != "order-free"
    ]
    port = InProcess(subject, "cpu", sanitized=True)
    bench = Bench(subject, port)
    watched = port.watched
    assert watched is not None
    opinion = SecondOpinion(
        lambda: [view.tensor for view in watched.sanitizer.provenance.registered], chosen.launches
    )
    each, round_ = max(3, chosen.launches // (4 * len(tested))), 0
    with launching(opinion.around), hunting(shrink=False):
        while opinion.launches < chosen.launches and round_ < 20:
            for one in tested:
                if one.not_applicable(bench) is None and opinion.launches < chosen.launches:
                    try:
                        one.explore(bench, seed=chosen.seed + round_, max_examples=each)
                    except Falsified as falsified:
                        print(f"{one.name}: {falsified}", file=sys.stderr)
            round_ += 1
    print(
        "| kernel | launches | programs | interpreter ms | executor ms | times | with sanitizer ms | times | differ |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, row in sorted(opinion.rows.items()):
        count = row.launches / 1000
        print(
            f"| {name} | {row.launches} | {row.programs / row.launches:.1f} | {row.interpreted / count:.1f} | {row.executed / count:.2f} "
            f"| {row.interpreted / row.executed:.0f} | {row.sanitized / count:.2f} | {row.interpreted / row.sanitized:.0f} | {row.differ} |"
        )
    for line in opinion.told[:20]:
        print(line)
    return 1 if opinion.told or not opinion.rows else 0


if __name__ == "__main__":
    sys.exit(main())
