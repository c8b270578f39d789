"""What is called in a worker: one twin of one exhibit is run, and what was wrong is returned in words, "" if nothing was."""

from __future__ import annotations

from typing import cast

import torch
import triton

from statecheck.kernels.orders.schedule import program_schedule
from statecheck.sanitizer import Finding, sanitize
from tests.gallery.exhibit import Exhibit, Launch, Twin
from tests.gallery.exhibits import BY_NAME
from tests.gallery.memory import ExhibitMemory


def machine(device: str) -> str:
    """Where results come from."""
    name = "CPU" if device == "cpu" else torch.cuda.get_device_name()
    return f"{name}, Triton {triton.__version__}, torch {torch.__version__.partition('+')[0]}"


def differs(name: str, twin: str, device: str, times: int = 1) -> str:
    """The first difference between all bytes and the rule, in so many runs on fresh tensors."""
    exhibit = BY_NAME[name]
    found = list(filter(None, (_difference(exhibit, twin, device) for _ in range(times))))
    if not found or times == 1:
        return "".join(found)
    return f"{found[0]} (in {len(found)} of {times} runs)"


def differs_in_orders(name: str, twin: str, schedules: list[str]) -> str:
    """The first difference when the programs run in these orders on a CPU."""
    for schedule in schedules:
        with program_schedule(schedule):
            found = _difference(BY_NAME[name], twin, "cpu")
        if found:
            return f"{schedule or 'plain order'}: {found}"
    return ""


def sanitized(name: str, twin: str) -> str:
    """What the sanitizer says."""
    exhibit, memory = BY_NAME[name], ExhibitMemory("cpu")
    launch = exhibit.lay_out(memory)
    with sanitize() as watch:
        memory.tell(watch)
        try:
            _run(exhibit, twin, launch)
        except Finding as finding:
            return f"{type(finding).__name__}: {finding}"
    return ""


def bare(name: str, twin: str, device: str) -> None:
    """Run it and look at nothing: others watch. Every tensor is an allocation of its own."""
    exhibit, memory = BY_NAME[name], ExhibitMemory(device, guarded=False)
    # Kept to the end: kernels reach some of the tensors by their addresses alone.
    launch = exhibit.lay_out(memory)
    _run(exhibit, twin, launch)
    if device == "cuda":
        torch.cuda.synchronize()


def _difference(exhibit: Exhibit, twin: str, device: str) -> str:
    memory = ExhibitMemory(device)
    launch = exhibit.lay_out(memory)
    wanted = memory.expected(memory.contents(), exhibit.rule())
    _run(exhibit, twin, launch)
    return memory.difference(wanted)


def _run(exhibit: Exhibit, twin: str, launch: Launch) -> None:
    launch.run(exhibit.kernel(cast(Twin, twin)))
