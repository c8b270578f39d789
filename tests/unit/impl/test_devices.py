"""Where tensors are: those of another device are refused by name, and uploads are pinned. torch's device `meta` is on every machine."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

# As any: what is asked here is no part of the interface.
batch: Any = import_module("impl.batch")
checks: Any = import_module("impl.checks")
chunks: Any = import_module("impl.chunks")
geometry: Any = import_module("impl.align.geometry")
host: Any = import_module("impl.builders.host")
launch: Any = import_module("impl.align.launch")
memcpy: Any = import_module("impl.align.memcpy")
runner: Any = import_module("impl.align.runner")

ELSEWHERE = torch.zeros(4, dtype=torch.int32, device="meta")
CPU = torch.device("cpu")
THREE_REQUESTS = {"num_reqs": 3, "max_query_len": 1, "num_actual_tokens": 3}


def split_starts() -> None:
    batch.split_decodes_and_prefills(SimpleNamespace(query_start_loc_cpu=ELSEWHERE, **THREE_REQUESTS))


def split_marks() -> None:
    marks = torch.zeros(3, dtype=torch.bool, device="meta")
    common = SimpleNamespace(query_start_loc_cpu=torch.arange(4), is_prefilling=marks, **THREE_REQUESTS)
    batch.split_decodes_and_prefills(common, treat_short_extends_as_decodes=False)


def columns() -> None:
    spec = SimpleNamespace(block_size=4, num_speculative_blocks=0)
    batch.mamba_get_block_table_tensor(torch.zeros(4, 2, dtype=torch.int32), ELSEWHERE, spec, "align")


def computed() -> None:
    made = batch.CommonAttentionMetadata.__new__(batch.CommonAttentionMetadata)
    made.query_start_loc, made.seq_lens = torch.arange(5, dtype=torch.int32), ELSEWHERE
    made.compute_num_computed_tokens()


def addresses() -> None:
    two = torch.zeros(2, dtype=torch.int64)
    memcpy.batch_memcpy(two, two.to("meta"), two)


REFUSED = {
    "starts of a split": (split_starts, r"query_start_loc_cpu = .* on meta, but should be on the CPU"),
    "marks of a split": (split_marks, r"is_prefilling = .* on meta, but should be on the CPU"),
    "lengths beside a table": (columns, r"seq_lens = .* on meta, but should be on cpu, as block_table"),
    "lengths beside starts": (computed, r"seq_lens = .* on meta, but should be of shape \(4,\) on cpu"),
    "starts of a convolution": (
        lambda: chunks.compute_causal_conv1d_metadata(ELSEWHERE, device="cpu"),
        r"query_start_loc_p_cpu = .* on meta, but should be on the CPU",
    ),
    "a block table": (
        lambda: geometry.checked_tables([torch.zeros(2, 3, dtype=torch.int32, device="meta")], 1, CPU, "f"),
        r"block_tables\[0\] = .* on meta",
    ),
    "addresses": (addresses, r"dst_ptrs = .* on meta, but should be of 2 entries on cpu"),
    "a vector of the host": (
        lambda: checks.host_rows("x", ELSEWHERE, 4, "f"),
        r"x = .* on meta, but should be an int32 or int64 tensor of shape \(4,\) on the CPU",
    ),
    "a vector of a batch": (
        lambda: checks.device_rows("x", ELSEWHERE, 4, CPU, "f"),
        r"x = .* on meta, but should be .* with 4 rows on cpu",
    ),
    "counts of a builder": (
        lambda: host.check_counts(ELSEWHERE, 4, CPU, "f"),
        r"num_accepted_tokens = .* on meta, but should be at least 4 entries on cpu",
    ),
    "counts of the host": (
        lambda: runner._check_host_counts(ELSEWHERE, 4, "f"),
        r"num_accepted_tokens_cpu_tensor = .* on meta, but should be an int32 tensor on the CPU",
    ),
    "a vector": (
        lambda: launch.check_vectors({"v": ELSEWHERE}, 4, CPU, "f"),
        r"v = int32 tensor of shape \(4,\) on meta, but should be .* on cpu \[f\]",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_a_tensor_of_another_device_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_metadata_of_a_convolution_is_where_it_is_asked_for() -> None:
    assert chunks.compute_causal_conv1d_metadata(torch.tensor([0, 3]), device="meta")[1].is_meta
