"""The types and constants of `impl` that no property calls."""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lab.docs.symbols import MANIFEST
from oracle import types as oracle_types
from oracle.align.buffers import copied_elements
from oracle.builders.batch import reorder_batch_threshold
from properties.strategies.builders import BuilderSetup
from statecheck.execution.in_process import InProcess
from statecheck.reference.builders import config_of
from statecheck.subject.profile import DOCUMENTS
from subjects import LAYOUT_VARIABLE, load

IMPL = load("impl")


def test_constants_are_those_of_the_oracle() -> None:
    constants = [symbol for symbol in MANIFEST if symbol.name.isupper() and "." in symbol.oracle]
    assert len(constants) == 4
    for symbol in constants:
        topic, _, name = symbol.oracle.partition(".")
        assert IMPL.resolve(symbol.name) == getattr(importlib.import_module(f"oracle.{topic}"), name), (
            symbol.name
        )


@pytest.mark.parametrize("before", [None, "SD", "DS"])
@pytest.mark.parametrize("chosen", ["SD", "DS"])
def test_a_layout_is_selected_for_the_length_of_a_with_block(before: str | None, chosen: Any) -> None:
    subject = IMPL.resolve
    with IMPL.environment({} if before is None else {LAYOUT_VARIABLE: before}):
        assert subject("get_conv_state_layout")() == (before or "SD")
        with subject("conv_state_layout")(chosen):
            assert subject("get_conv_state_layout")() == chosen
            assert subject("is_conv_state_dim_first")() is (chosen == "DS")
        assert os.environ.get(LAYOUT_VARIABLE) == before
        assert subject("get_conv_state_layout")() == (before or "SD")


def test_an_unknown_layout_is_refused_before_anything_changes() -> None:
    with IMPL.environment({}):
        with pytest.raises(ValueError, match=r"^layout = 'NHD', but should be "):
            IMPL.resolve("conv_state_layout")("NHD")
        assert LAYOUT_VARIABLE not in os.environ


@pytest.mark.parametrize("rows", [None, 0, 2, 3])
def test_the_first_rows_of_a_buffer_come_back_to_the_host(rows: int | None) -> None:
    buffer = IMPL.resolve("CpuGpuBuffer")(3, 2, dtype=torch.int32, device="cpu", pin_memory=False)
    buffer.gpu.copy_(torch.arange(1, 7).view(3, 2))
    came = buffer.copy_to_cpu(rows)
    copied = copied_elements((3, 2), rows)
    assert buffer.np.ravel().tolist() == [*range(1, 1 + copied), *[0] * (6 - copied)]
    assert came.data_ptr() == buffer.cpu.data_ptr() or copied == 0
    assert came.numel() == copied


def test_a_buffer_may_be_empty_or_of_a_type_that_numpy_does_not_have() -> None:
    make = IMPL.resolve("CpuGpuBuffer")
    assert make(0, 2, dtype=torch.int32, device="cpu", pin_memory=False).np.shape == (0, 2)
    plain = make(2, dtype=torch.bfloat16, device="cpu", pin_memory=False, with_numpy=False)
    assert not hasattr(plain, "np")
    assert plain.gpu.dtype == torch.bfloat16


def test_the_dtype_of_a_state_is_one_of_torch() -> None:
    with pytest.raises(ValueError, match=r"^dtypes\[1\] = 'float32', but should be a torch.dtype"):
        IMPL.resolve("MambaSpec")(4, ((2, 3), (2,)), (torch.float32, "float32"))


def test_a_group_that_differs_is_named_beside_the_first() -> None:
    specs = [
        IMPL.resolve("MambaSpec")(size, ((2, 3),), (torch.float32,), mamba_cache_mode="align")
        for size in (4, 8)
    ]
    groups = [IMPL.resolve("KVCacheGroupSpec")(["layer"], spec) for spec in (object(), *specs)]
    message = r"^kv_cache_config.kv_cache_groups\[2\].kv_cache_spec.block_size = 8, .* 4 as in group 1 \["
    with pytest.raises(ValueError, match=message):
        IMPL.resolve("get_mamba_groups")(IMPL.resolve("KVCacheConfig")(4, [], groups))


def test_enumerations_have_the_documented_members() -> None:
    modes, support = IMPL.resolve("CUDAGraphMode"), IMPL.resolve("AttentionCGSupport")
    assert {mode.name: mode.value for mode in modes} == oracle_types.GRAPH_MODES
    assert {level.name: level.value for level in support} == oracle_types.GRAPH_SUPPORT
    assert sorted(support) == [support[name] for name in oracle_types.GRAPH_SUPPORT]
    for mode in modes:
        assert mode.has_full_cudagraphs() == oracle_types.has_full_cudagraphs(mode.name)
        assert bool(mode) == (mode.name != "NONE")


class Runner(SimpleNamespace):
    """The part of an engine's configuration that the threshold reads."""

    def __init__(self, drafts: int | None, parallel_drafting: bool, ranks: int) -> None:
        speculative = SimpleNamespace(num_speculative_tokens=drafts, parallel_drafting=parallel_drafting)
        parallel = SimpleNamespace(decode_context_parallel_size=ranks)
        super().__init__(speculative_config=speculative if drafts else None, parallel_config=parallel)


def plain_threshold(config: Any, *options: Any) -> int | None:
    """The threshold of a builder that has nothing but what all builders have."""

    class Plain(IMPL.resolve("AttentionMetadataBuilder")):  # type: ignore[misc]
        def build(self, *_: Any, **__: Any) -> None: ...

        def build_for_cudagraph_capture(self, *_: Any) -> None: ...

    builder = Plain(None, [], config, "cpu")
    builder._init_reorder_batch_threshold(*options)
    threshold: int | None = builder.reorder_batch_threshold
    return threshold


def test_a_configuration_may_lack_what_only_some_engines_have() -> None:
    assert plain_threshold(SimpleNamespace(), 3, True) == 3
    drafts = SimpleNamespace(num_speculative_tokens=2)
    config = SimpleNamespace(speculative_config=drafts, parallel_config=SimpleNamespace())
    assert plain_threshold(config, 1, True) == 3


@pytest.mark.parametrize(
    ("runner", "options", "threshold"),
    [
        (Runner(None, False, 1), (1, True), 1),
        (Runner(2, False, 1), (1, True), 3),
        (Runner(2, False, 1), (1, False), 1),
        (Runner(2, True, 1), (1, True), 5),
        (Runner(2, False, 2), (1, True), 1),
        (Runner(2, False, 2), (1, True, True), 3),
        (Runner(2, False, 1), (None, True), None),
        (Runner(2, False, 1), (7, True), 7),
    ],
)
def test_the_reorder_threshold_of_state_builders_is_that_of_contract_and_oracle(
    runner: Runner, options: tuple[Any, ...], threshold: int | None
) -> None:
    assert plain_threshold(runner, *options) == threshold
    for kind in ("mamba2", "gdn"):
        setup = BuilderSetup(
            kind=kind,
            num_spec=runner.speculative_config.num_speculative_tokens if runner.speculative_config else 0,
            decode_context_parallel_size=runner.parallel_config.decode_context_parallel_size,
        )
        port = InProcess(IMPL, "cpu")
        made = setup.construct()
        state_builder = IMPL.resolve(setup.builder)(
            **{name: port.materialise(v) for name, v in made.keywords}
        )
        assert state_builder.reorder_batch_threshold == reorder_batch_threshold(config_of(made, DOCUMENTS))
