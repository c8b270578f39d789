"""Bound launches, which on a GPU do without Triton's JIT after the first: right for all data, and seen by all who look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton import knobs

from lab.bench.cache import COPY_FUNCTIONS, BenchCache, in_layout
from lab.bench.copies import TINY
from lab.bench.loads import CopyLoad, postprocess, postprocess_align, precopy
from statecheck.kernels.launch import Launched, launching
from statecheck.kernels.launch_counts import LAUNCHES
from statecheck.kernels.private import JITFunction
from statecheck.sanitizer import FreedBlock, sanitize
from statecheck.subject import Subject, load

ROWS = 4
DRIVERS = {
    "run_fused_postprocess": postprocess(ROWS, ROWS),
    "run_fused_postprocess_align": postprocess_align(ROWS, ROWS),
    "run_fused_precopy": precopy(ROWS, ROWS),
    "run_precopy_rows": CopyLoad(
        "run_precopy_rows", ROWS, ROWS, 2, {"moves": [*[2] * ROWS, *[1] * ROWS, *[2] * ROWS]}
    ),
}
"""What each driver of a context is called with, by its name."""
KERNELS = ("postprocess_mamba_fused_kernel", "precopy_mamba_align_fused_kernel")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return load("impl")


@pytest.fixture(scope="module")
def cache(device: str, subject: Subject) -> BenchCache:
    with in_layout([subject], "SD"):
        return BenchCache(TINY.shapes[0], "SD", ROWS, device)


@pytest.fixture
def fresh(cache: BenchCache, subject: Subject) -> Callable[[], Any]:
    """Makes a context that has launched nothing."""

    def context() -> Any:
        with in_layout([subject], "SD"):
            return cache.context(subject, subject)

    return context


def vectors_of(load_: CopyLoad, device: str, offset: int = 0) -> dict[str, torch.Tensor]:
    """The driver's vectors, `offset` elements behind an address that is a multiple of 16."""
    found = {}
    for name, values in load_.vectors.items():
        memory = torch.zeros(offset + len(values), dtype=torch.int32, device=device)
        memory[offset:] = torch.tensor(values, dtype=torch.int32)
        found[name] = memory[offset:].view(3, -1) if name == "moves" else memory[offset:]
    return found


def left_by(
    cache: BenchCache, context: Any, load_: CopyLoad, vectors: dict[str, torch.Tensor], rows: int = ROWS
) -> list[torch.Tensor]:
    """Pools, vectors and counts after a launch for `rows` requests."""
    cache.fill()
    cache.rotate(0)
    getattr(context, load_.driver)(num_reqs=rows, **vectors)
    found = [*cache.pools, *vectors.values(), context.num_accepted_tokens_out[:rows]]
    return [tensor.clone() for tensor in found]


def same(tensors: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, tensors, other))


@pytest.mark.parametrize("driver", DRIVERS)
def test_later_launches_do_on_other_data_what_a_first_one_does(
    driver: str, cache: BenchCache, fresh: Callable[[], Any], device: str
) -> None:
    load_, context = DRIVERS[driver], fresh()
    for rows, offset in ((ROWS, 0), (ROWS, 0), (ROWS, 1), (1, 3), (ROWS - 1, 2)):
        expected = left_by(cache, fresh(), load_, vectors_of(load_, device, offset), rows)
        assert same(left_by(cache, context, load_, vectors_of(load_, device, offset), rows), expected)


def test_a_context_that_is_initialised_again_launches_on_the_states_that_it_has_then(
    cache: BenchCache, fresh: Callable[[], Any], device: str, subject: Subject
) -> None:
    load_, context = DRIVERS["run_fused_precopy"], fresh()
    left_by(cache, context, load_, vectors_of(load_, device))
    with in_layout([subject], "SD"):
        other = BenchCache(TINY.shapes[0], "SD", ROWS, device)
        functions = tuple(map(subject.resolve, COPY_FUNCTIONS))
        context.is_initialized = False
        context.initialize_from_forward_context(
            other.config(subject), other.forward_context(), functions, [other.table]
        )
        expected = left_by(cache, fresh(), load_, vectors_of(load_, device))
        assert same(left_by(other, context, load_, vectors_of(load_, device)), expected)


def test_slots_may_be_beyond_16_bits(cache: BenchCache, fresh: Callable[[], Any], device: str) -> None:
    load_, first = DRIVERS["run_fused_precopy"], 40_000
    near = vectors_of(load_, device)
    far = {name: torch.cat((vector.new_zeros(first), vector)) for name, vector in near.items()}
    far["idx_mapping"] = near["idx_mapping"] + first
    expected = left_by(cache, fresh(), load_, near)[: len(cache.pools)]
    assert same(left_by(cache, fresh(), load_, far)[: len(cache.pools)], expected)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows with each launch that goes through the JIT."""
    asked, plain = [], JITFunction.run

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        asked.append(self)
        return plain(self, *arguments, **keywords)

    monkeypatch.setattr(JITFunction, "run", run)
    return asked


@pytest.fixture
def on_gpu(device: str) -> None:
    if device != "cuda":
        pytest.skip("on a CPU every launch goes through Triton's JIT")


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_jit_is_asked_once(
    driver: str, cache: BenchCache, fresh: Callable[[], Any], device: str, asked: list[Any]
) -> None:
    load_, context = DRIVERS[driver], fresh()
    for offset in range(4):
        left_by(cache, context, load_, vectors_of(load_, device, offset))
    assert len(asked) == 1


@pytest.mark.parametrize("driver", DRIVERS)
def test_no_data_asks_the_jit_for_another_compilation(
    driver: str,
    cache: BenchCache,
    fresh: Callable[[], Any],
    device: str,
    subject: Subject,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_, context = DRIVERS[driver], fresh()
    left_by(cache, context, load_, vectors_of(load_, device))
    monkeypatch.setattr(JITFunction, "_do_compile", lambda *_: pytest.fail("compiled again"))
    kernel = subject.resolve(KERNELS["precopy" in driver])
    # So that every launch goes through the JIT.
    kernel.add_pre_run_hook(lambda *_, **__: None)
    try:
        for rows, offset in ((ROWS, 1), (1, 0), (ROWS - 1, 3)):
            left_by(cache, context, load_, vectors_of(load_, device, offset), rows)
    finally:
        kernel.pre_run_hooks.clear()


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_profilers_see_later_launches(
    name: str, cache: BenchCache, fresh: Callable[[], Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_, context, launches = DRIVERS["run_fused_precopy"], fresh(), list[Any]()
    left_by(cache, context, load_, vectors_of(load_, device))
    monkeypatch.setattr(getattr(knobs.runtime, name), "calls", [launches.append])
    left_by(cache, context, load_, vectors_of(load_, device))
    assert len(launches) == 1


def test_a_hook_before_runs_sees_every_launch(
    cache: BenchCache, fresh: Callable[[], Any], device: str, subject: Subject
) -> None:
    context, hook_calls = fresh(), []
    kernel = subject.resolve(KERNELS[True])
    load_ = DRIVERS["run_fused_precopy"]
    left_by(cache, context, load_, vectors_of(load_, device))
    kernel.add_pre_run_hook(lambda *arguments, **_: hook_calls.append(len(arguments)))
    try:
        left_by(cache, context, load_, vectors_of(load_, device))
        left_by(cache, context, load_, vectors_of(load_, device))
    finally:
        kernel.pre_run_hooks.clear()
    assert hook_calls == [len(kernel.arg_names)] * 2


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("driver", DRIVERS)
def test_later_launches_are_counted_and_made_as_the_state_says(
    driver: str, cache: BenchCache, fresh: Callable[[], Any], device: str
) -> None:
    load_, context, seen, before = DRIVERS[driver], fresh(), [], LAUNCHES.total()
    vectors = vectors_of(load_, device)

    def around(launch: Launched, make: Callable[[], None]) -> None:
        seen.append((launch.kernel, dict(zip(launch.names, launch.arguments, strict=True))["tiles_ptr"]))
        make()

    with launching(around):
        for _ in range(3):
            left_by(cache, context, load_, vectors)
    assert LAUNCHES.total() == before + 3
    assert [name for name, _ in seen] == [KERNELS["precopy" in driver]] * 3
    assert all(tiles is context.tiles for _, tiles in seen)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("driver", DRIVERS)
def test_later_launches_are_watched(
    driver: str, cache: BenchCache, fresh: Callable[[], Any], device: str
) -> None:
    load_, context = DRIVERS[driver], fresh()
    left_by(cache, context, load_, vectors_of(load_, device))
    with sanitize() as watch:
        watch.register(cache.table, "table")
        for layer in range(cache.shape.layers):
            for state in cache.states(layer):
                watch.register(state, "state")
                watch.free(state[int(cache.table[0, 2])], "its request ended")
        with pytest.raises(FreedBlock):
            left_by(cache, context, load_, vectors_of(load_, device))


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_captured_launch_replays_on_new_data(
    driver: str, cache: BenchCache, fresh: Callable[[], Any], device: str
) -> None:
    if device != "cuda":
        pytest.skip("graphs are captured on a GPU")
    load_, context = DRIVERS[driver], fresh()
    vectors = vectors_of(load_, device)
    given = [vector.clone() for vector in vectors.values()]
    expected = left_by(cache, context, load_, vectors)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        getattr(context, driver)(num_reqs=ROWS, **vectors)
    cache.fill()
    for vector, values in zip(vectors.values(), given, strict=True):
        vector.copy_(values)
    graph.replay()
    torch.cuda.synchronize()
    found = [*cache.pools, *vectors.values(), context.num_accepted_tokens_out[:ROWS]]
    assert same(found, expected)
