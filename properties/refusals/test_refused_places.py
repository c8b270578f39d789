"""Arguments that a host reads and that lie on a device, which only a GPU can tell apart: a `ValueError` names each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from properties.refusals.test_builder_refusals import BOUNDS, COMMON, DRAFTS, SETUPS, BadBuild, bad, build
from properties.refusals.test_refusals import conv
from properties.refusals.test_refused_forms import MARKED, STARTS
from properties.strategies.forms import value_at, with_value
from statecheck.case.values import Call
from statecheck.execution.example import Trial
from statecheck.execution.registry import prop


def on_device(call: Call, path: str) -> Call:
    """The call with that host tensor on the device."""
    return with_value(call, path, replace(value_at(call, path), on="device"))


def misplaced() -> Iterator[BadBuild]:
    starts, marks = f"{COMMON}.query_start_loc_cpu", f"{COMMON}.is_prefilling"
    yield BadBuild("conv starts", (), on_device(conv(STARTS.on_host()), "query_start_loc_p_cpu"))
    for path in (starts, marks):
        yield BadBuild(path, (), on_device(MARKED, path))
    for kind in SETUPS:
        for path in (starts, marks, BOUNDS, *((DRAFTS,) if kind == "gdn" else ())):
            yield bad(path, kind, on_device(build(kind), path))
    yield bad("a prompt whose length only the device knows", "mamba2", build("mamba2", bounds=False))


MISPLACED = tuple(misplaced())


@prop(
    "bad-input/places",
    "refusal",
    *sorted({bad.call.function for bad in MISPLACED}),
    device="cuda",
    bad=st.sampled_from(MISPLACED),
)
def test_host_arguments_on_the_device_are_refused_by_name(trial: Trial, bad: BadBuild) -> None:
    if bad.before:
        trial.agrees(*bad.before)
    trial.refuses(bad.call)
