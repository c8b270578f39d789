"""The attributes of a builder that an engine reads, and the buffers that its graphs are captured with."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from properties.strategies.builders import BuilderSetup
from statecheck.execution.in_process import InProcess
from subjects import load

IMPL = load("impl")
SETUPS = [
    BuilderSetup(kind, mode, block_size=4, num_spec=spec, max_num_seqs=3, max_model_len=longest)
    for kind, specs, modes in (
        ("mamba1", (0,), ("none", "align", "all")),
        ("mamba2", (0, 2), ("none", "align", "all")),
        ("gdn", (0, 2), ("none", "align")),
    )
    for spec in specs
    for mode in modes
    for longest in (1, 9)
]


def made(setup: BuilderSetup, **about: Any) -> tuple[Any, dict[str, Any]]:
    """A builder, and what it was constructed with."""
    port = InProcess(IMPL, "cpu")
    keywords = {name: port.materialise(value) for name, value in setup.construct().keywords} | about
    return IMPL.resolve(setup.builder)(**keywords), keywords


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_a_builder_says_how_many_drafts_it_is_for(setup: BuilderSetup) -> None:
    builder, _ = made(setup)
    assert builder.use_spec_decode is (setup.num_spec > 0)
    assert (builder.num_spec if setup.kind == "gdn" else builder.num_spec_tokens) == setup.num_spec
    assert setup.kind == "gdn" or builder.supports_update_block_table is not builder.use_spec_decode


@pytest.mark.parametrize("drafts", [None, 0])
def test_a_gdn_builder_may_be_configured_for_speculation_without_drafts(drafts: int | None) -> None:
    setup = BuilderSetup("gdn", num_spec=1)
    port = InProcess(IMPL, "cpu")
    config = port.materialise(dict(setup.construct().keywords)["vllm_config"])
    config.speculative_config.num_speculative_tokens = drafts
    builder, _ = made(setup, vllm_config=config)
    assert builder.num_spec == 0
    assert type(builder.num_spec) is int


@pytest.mark.parametrize("kind", ["mamba1", "mamba2", "gdn"])
def test_values_that_only_the_documents_classes_check_are_refused_by_name(kind: str) -> None:
    setup = BuilderSetup(kind)
    cache = SimpleNamespace(mamba_cache_mode="some")
    with pytest.raises(ValueError, match=r"^mamba_cache_mode = 'some', but should be one of "):
        made(setup, vllm_config=changed(setup, "vllm_config", cache_config=cache))
    for block_size in (0, -1):
        spec = changed(setup, "kv_cache_spec", block_size=block_size)
        with pytest.raises(ValueError, match=rf"^block_size = {block_size}, but should be >= 1 "):
            made(setup, kv_cache_spec=spec)


def test_mamba_1_has_no_drafts() -> None:
    setup = BuilderSetup("mamba1")
    with pytest.raises(ValueError, match=r"^num_speculative_tokens = 1, but should be 0 "):
        made(setup, vllm_config=changed(setup, "vllm_config", num_speculative_tokens=1))


def test_in_mode_all_drafts_need_no_blocks_of_their_own() -> None:
    setup = BuilderSetup("mamba2", "all", num_spec=2)
    made(setup, kv_cache_spec=changed(setup, "kv_cache_spec", num_speculative_blocks=0))
    with pytest.raises(ValueError, match=r"^num_speculative_blocks = 0, but should be >= 2 "):
        made(
            replace(setup, mode="none"),
            kv_cache_spec=changed(setup, "kv_cache_spec", num_speculative_blocks=0),
        )


def changed(setup: BuilderSetup, argument: str, **fields: Any) -> Any:
    """An argument of the constructor as plain data, with other fields."""
    port = InProcess(IMPL, "cpu")
    given = port.materialise(dict(setup.construct().keywords)[argument])
    return SimpleNamespace(**{**vars(given), **fields})
