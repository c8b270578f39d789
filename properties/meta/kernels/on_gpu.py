"""The same generated cases, executed from the IR on the CPU and compiled on a GPU: every outcome of every call.

    python -m properties.meta.kernels.on_gpu --subject impl --calls 2000

Each step goes to both. What a call returned and what it left in memory is plain data, so that it can be compared as it
is. Prints how many calls that launch kernels were compared, by function, and every difference.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any

from properties.harness.case.values import Call, Outcome, Step, Tensor
from properties.harness.execution.port import Port

SEED = 29


class Both:
    """Takes every step on two ports, and goes on with what the first one says."""

    device = "cpu"

    def __init__(self, here: Port, there: Port, compared: Any) -> None:
        self._here, self._there, self._compared = here, there, compared
        self.calls: Counter[str] = Counter()
        self.differ: list[str] = []

    def begin(self) -> None:
        self._here.begin()
        self._there.begin()

    def execute(self, step: Step) -> Outcome | None:
        here = self._here.execute(step)
        there = self._there.execute(step)
        if isinstance(step, Call) and self._compared(step.function):
            self.calls[step.function] += 1
            if _anywhere(here) != _anywhere(there):
                self.differ.append(
                    f"{step.function}: executed {str(here)[:300]}; on the GPU {str(there)[:300]}"
                )
        return here

    def waiting_refused(self) -> AbstractContextManager[None]:
        return nullcontext()


def _anywhere(value: Any) -> Any:
    """The same, wherever tensors lie: a CPU does not tell a device's memory from the host's."""
    if isinstance(value, str):
        return value.replace("cuda:0", "cpu")
    if isinstance(value, Tensor):
        return value.on_host()
    if isinstance(value, tuple):
        return tuple(_anywhere(one) for one in value)
    if isinstance(value, dict):
        return {name: _anywhere(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{one.name: _anywhere(getattr(value, one.name)) for one in fields(value) if one.init}
        )
    return value


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="on_gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--subject", default="impl")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()

    from properties.harness.execution import profiles
    from properties.harness.kernels import triton_mode

    triton_mode.prepare("cpu")
    profiles.load()
    from properties.device import InWorker
    from properties.harness.execution.example import Bench, Falsified
    from properties.harness.execution.port import InProcess
    from properties.harness.execution.registry import launches, load_properties
    from properties.meta.breakages.table import hunting
    from properties.subjects import load

    subject = load(chosen.subject)
    there = InWorker(subject.name, "cuda")
    both = Both(InProcess(subject, "cpu"), there, launches)
    bench = Bench(subject, both)
    tested = [
        one for one in load_properties().values() if one.launches and one.kind not in ("order-free", "cost")
    ]
    round_ = 0
    try:
        with hunting(shrink=False):
            while sum(both.calls.values()) < chosen.calls and round_ < 20:
                for one in tested:
                    if one.not_applicable(bench) is None and sum(both.calls.values()) < chosen.calls:
                        try:
                            one.explore(bench, seed=chosen.seed + round_, max_examples=8)
                        except Falsified as falsified:
                            print(f"{one.name}: {str(falsified)[:300]}", file=sys.stderr)
                round_ += 1
    finally:
        there.close()
    for function, count in sorted(both.calls.items()):
        print(f"{count:6} calls of {function}")
    print(f"{len(both.differ)} of {sum(both.calls.values())} differ")
    for line in both.differ[:20]:
        print(line)
    return 1 if both.differ or not both.calls else 0


if __name__ == "__main__":
    sys.exit(main())
