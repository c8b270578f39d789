"""Calls of wrappers of vLLM and SGLang in the area of recurrent state, which launch the kernels of docs/kernel-operations.md.

`pytest -p lab.docs.kernel_operations lab/docs/calls_of_releases.py` with the release's site-packages on PYTHONPATH.
Inputs are small: what is noted is the IR. A release without a wrapper skips its call.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

TOKENS, HEADS, SIZE, SLOTS, WIDTH = 16, 2, 32, 4, 4
_MAMBA = {
    "conv": (
        "vllm.model_executor.layers.mamba.ops.causal_conv1d",
        "sglang.kernels.ops.mamba.causal_conv1d_triton",
    ),
    "ssm": (
        "vllm.model_executor.layers.mamba.ops.mamba_ssm",
        "sglang.kernels.ops.mamba.triton_ops.mamba_ssm",
    ),
    "ssd": (
        "vllm.model_executor.layers.mamba.ops.ssd_combined",
        "sglang.kernels.ops.mamba.triton_ops.ssd_combined",
    ),
    "lightning": ("vllm.model_executor.layers.lightning_attn",),
    "chunk": ("vllm.third_party.flash_linear_attention.ops.chunk", "sglang.kernels.ops.attention.fla.chunk"),
    "recurrent": (
        "vllm.third_party.flash_linear_attention.ops.fused_recurrent",
        "sglang.kernels.ops.attention.fla.fused_recurrent",
    ),
    "kda": ("vllm.third_party.flash_linear_attention.ops.kda", "sglang.kernels.ops.attention.fla.kda"),
    "gating": (
        "vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating",
        "sglang.kernels.ops.attention.fla.fused_sigmoid_gating_recurrent",
    ),
    "post_conv": ("vllm.third_party.flash_linear_attention.ops.fused_gdn_prefill_post_conv",),
    "gather": ("vllm.model_executor.layers.mamba.ops.gather_initial_states",),
}
"""Modules by what they compute, of vLLM and of SGLang."""


def wrapper(topic: str, name: str) -> Callable[..., Any]:
    """A function of the release that is installed."""
    why = ""
    for module in _MAMBA[topic]:
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            why = f"{why} {error}"
        else:
            return found
    pytest.skip(why.strip())


def in_sglang(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith("sglang")


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype)


def starts(*lengths: int) -> torch.Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def indices(*slots: int) -> torch.Tensor:
    return torch.tensor(slots, dtype=torch.int32)


@pytest.fixture(autouse=True, scope="session")
def release() -> None:
    """Prepare what a release asks of its machine."""
    try:
        platform = importlib.import_module("vllm.platforms.interface").Platform
        platform.get_device_name = lambda *_: "none"
    except ImportError:
        importlib.import_module("subjects.sglang.stand_ins").stand_in()


@pytest.mark.parametrize("drafts", [False, True])
def test_causal_conv1d_update(drafts: bool) -> None:
    function = wrapper("conv", "causal_conv1d_update")
    states = random(SLOTS, SIZE, WIDTH - 1 + drafts)
    if not drafts:
        function(
            random(2, SIZE),
            states,
            random(SIZE, WIDTH),
            random(SIZE),
            "silu",
            conv_state_indices=indices(1, 2),
        )
    elif in_sglang(function):
        window = random(2, 2, SIZE, WIDTH)
        function(
            random(2, SIZE, 2), states, random(SIZE, WIDTH), random(SIZE), "silu",
            conv_state_indices=indices(1, 2), intermediate_conv_window=window, intermediate_state_indices=indices(0, 1),
        )  # fmt: skip
    else:
        function(
            random(4, SIZE), states, random(SIZE, WIDTH), random(SIZE), "silu", conv_state_indices=indices(1, 2),
            num_accepted_tokens=indices(1, 2), query_start_loc=starts(2, 2), max_query_len=2,
        )  # fmt: skip


def test_causal_conv1d_fn() -> None:
    function = wrapper("conv", "causal_conv1d_fn")
    states = random(SLOTS, WIDTH - 1, SIZE).transpose(1, 2)
    rest = {"seq_lens_cpu": [5, 11]} if in_sglang(function) else {}
    function(
        random(TOKENS, SIZE).T, random(SIZE, WIDTH), random(SIZE), states, starts(5, 11), cache_indices=indices(1, 2),
        has_initial_state=torch.tensor([True, False]), activation="silu", **rest,
    )  # fmt: skip


@pytest.mark.parametrize("tied", [False, True])
def test_selective_state_update(tied: bool) -> None:
    function = wrapper("ssm", "selective_state_update")
    many = (2, HEADS, SIZE)
    A = random(HEADS, dtype=torch.float32)[:, None, None].expand(HEADS, SIZE, 16)
    D, bias, dt = (random(HEADS)[:, None].expand(HEADS, SIZE) for _ in range(3))
    if not tied:
        A, D, bias = A.contiguous(), D.contiguous(), bias.contiguous()
    function(
        random(SLOTS, HEADS, SIZE, 16), random(*many), dt[None].expand(many) if tied else random(*many), A, random(2, 1, 16),
        random(2, 1, 16), D=D, dt_bias=bias, z=random(*many), dt_softplus=True, state_batch_indices=indices(1, 2),
        out=random(*many),
    )  # fmt: skip


def test_mamba_chunk_scan() -> None:
    x, dt, A = random(TOKENS, HEADS, SIZE), random(TOKENS, HEADS), random(HEADS, dtype=torch.float32)
    B, C, D = random(TOKENS, 1, SIZE), random(TOKENS, 1, SIZE), random(HEADS)
    rest = {"D": D, "dt_bias": random(HEADS), "dt_softplus": True}
    try:
        function = wrapper("ssd", "mamba_chunk_scan_combined_varlen")
    except pytest.skip.Exception:
        function = wrapper("ssd", "mamba_chunk_scan_combined")
        seq_idx = torch.tensor([[0] * 5 + [1] * 11], dtype=torch.int32)
        function(
            x[None], dt[None], A, B[None], C[None], 16, **rest, seq_idx=seq_idx, cu_seqlens=starts(5, 11),
            chunk_indices=indices(0, 0), chunk_offsets=indices(0, 5), initial_states=random(2, HEADS, SIZE, SIZE),
            out=random(1, TOKENS, HEADS, SIZE), return_final_states=True, return_varlen_states=True,
        )  # fmt: skip
        return
    function(
        x, dt, A, B, C, 16, starts(5, 11), starts(5, 11), indices(0, 1), indices(0, 1), random(TOKENS, HEADS, SIZE), **rest,
        initial_states=random(2, HEADS, SIZE, SIZE),
    )  # fmt: skip


def qkv(size: int = SIZE) -> tuple[torch.Tensor, ...]:
    return tuple(random(1, TOKENS, HEADS, size) for _ in range(3))


def test_chunk_gated_delta_rule() -> None:
    function = wrapper("chunk", "chunk_gated_delta_rule")
    g, beta = -torch.rand(1, TOKENS, HEADS), torch.rand(1, TOKENS, HEADS).bfloat16()
    states = random(SLOTS if in_sglang(function) else 2, HEADS, SIZE, SIZE, dtype=torch.float32)
    rest = {"initial_state_indices": indices(1, 2)} if in_sglang(function) else {"output_final_state": True}
    function(
        *qkv(),
        g,
        beta,
        initial_state=states,
        cu_seqlens=starts(5, 11).long(),
        use_qk_l2norm_in_kernel=True,
        **rest,
    )


def test_fused_recurrent_gated_delta_rule() -> None:
    function = wrapper("recurrent", "fused_recurrent_gated_delta_rule")
    g, beta = -torch.rand(1, TOKENS, HEADS), torch.rand(1, TOKENS, HEADS)
    states = random(2 if in_sglang(function) else SLOTS, HEADS, SIZE, SIZE, dtype=torch.float32)
    rest: dict[str, Any] = {}
    if not in_sglang(function):
        rest = {"ssm_state_indices": torch.tensor([[1] * 11, [2] * 11]), "num_accepted_tokens": indices(1, 1)}
    function(*qkv(), g, beta=beta, initial_state=states, cu_seqlens=starts(5, 11).long(), **rest)


def test_fused_recurrent_gated_delta_rule_update() -> None:
    function = wrapper("recurrent", "fused_recurrent_gated_delta_rule_update")
    function(
        *qkv(), -torch.rand(1, TOKENS, HEADS), beta=torch.rand(1, TOKENS, HEADS), cu_seqlens=starts(5, 11).long(),
        initial_state_source=random(SLOTS, HEADS, SIZE, SIZE, dtype=torch.float32), initial_state_indices=indices(1, 2),
    )  # fmt: skip


def test_fused_recurrent_gated_delta_rule_packed_decode() -> None:
    wrapper("recurrent", "fused_recurrent_gated_delta_rule_packed_decode")(
        random(2, 3 * HEADS * SIZE), random(2, HEADS), random(2, HEADS), random(HEADS, dtype=torch.float32),
        random(HEADS, dtype=torch.float32), 1.0, random(SLOTS, HEADS, SIZE, SIZE), random(2, 1, HEADS, SIZE), indices(1, 2),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["chunk_kda", "fused_recurrent_kda"])
def test_kda(name: str) -> None:
    function = wrapper("kda", name)
    g, beta = -torch.rand(1, TOKENS, HEADS, SIZE), torch.rand(1, TOKENS, HEADS)
    states = random(SLOTS if in_sglang(function) else 2, HEADS, SIZE, SIZE, dtype=torch.float32)
    rest: dict[str, Any] = {"initial_state_indices": indices(1, 2)} if in_sglang(function) else {}
    if name == "fused_recurrent_kda":
        rest = {} if in_sglang(function) else {"ssm_state_indices": torch.tensor([[0] * 11, [1] * 11])}
    function(
        *qkv(),
        g,
        beta,
        initial_state=states,
        cu_seqlens=starts(5, 11).long(),
        use_qk_l2norm_in_kernel=True,
        **rest,
    )


def test_chunk_kda_with_fused_gate() -> None:
    wrapper("kda", "chunk_kda_with_fused_gate")(
        *qkv(), random(1, TOKENS, HEADS, SIZE), torch.rand(1, TOKENS, HEADS), random(HEADS, dtype=torch.float32),
        random(HEADS * SIZE, dtype=torch.float32), initial_state=random(2, HEADS, SIZE, SIZE, dtype=torch.float32),
        output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=starts(5, 11).long(),
    )  # fmt: skip


def test_fused_kda_gate() -> None:
    wrapper("kda", "fused_kda_gate")(
        random(TOKENS, HEADS * SIZE),
        random(HEADS, dtype=torch.float32),
        SIZE,
        random(HEADS * SIZE, dtype=torch.float32),
    )


def test_fused_sigmoid_gating_delta_rule_update() -> None:
    function = wrapper("gating", "fused_sigmoid_gating_delta_rule_update")
    A, bias = random(HEADS, dtype=torch.float32), random(HEADS, dtype=torch.float32)
    a, b = random(1, TOKENS, HEADS), random(1, TOKENS, HEADS)
    states = random(SLOTS, HEADS, SIZE, SIZE, dtype=torch.float32)
    q, k, v = qkv()
    if in_sglang(function):
        function(
            A_log=A, a=a, dt_bias=bias, softplus_beta=1.0, softplus_threshold=20.0, q=q, k=k, v=v, b=b,
            initial_state_source=states, initial_state_indices=indices(1, 2), cu_seqlens=starts(5, 11).long(),
        )  # fmt: skip
        return
    slots = torch.tensor([[1] * 11, [2] * 11])
    function(
        A, a, b, bias, q, k, v, initial_state=states, cu_seqlens=starts(5, 11).long(), ssm_state_indices=slots
    )


def test_fused_post_conv_prep() -> None:
    wrapper("post_conv", "fused_post_conv_prep")(
        random(TOKENS, 3 * HEADS * SIZE), random(TOKENS, HEADS), random(TOKENS, HEADS), random(HEADS, dtype=torch.float32),
        random(HEADS, dtype=torch.float32), HEADS, SIZE, SIZE,
    )  # fmt: skip


def test_lightning_attention() -> None:
    function = wrapper("lightning", "lightning_attention")
    q, k, v = (random(1, HEADS, TOKENS, 64, dtype=torch.float32) for _ in range(3))
    function(q, k, v, torch.rand(1, HEADS, 1, 1), kv_history=torch.zeros(1, HEADS, 64, 64))


def test_linear_decode_forward() -> None:
    q, k, v = (random(2, HEADS, 1, SIZE) for _ in range(3))
    wrapper("lightning", "linear_decode_forward_triton")(
        q, k, v, random(SLOTS, HEADS, SIZE, SIZE), torch.rand(HEADS), indices(1, 2)
    )
